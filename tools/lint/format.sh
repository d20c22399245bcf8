#!/usr/bin/env bash
# C and C++ files must have the layout of clang-format.
set -uo pipefail
git ls-files -z --cached --others --exclude-standard -- '*.c' '*.h' '*.cpp' '*.hpp' |
  xargs -0 -r ls -d 2>/dev/null | # leaves out files that are deleted but not committed
  xargs -r -d '\n' clang-format-14 --dry-run --Werror --ferror-limit=3 && exit 0
echo "format: './dev format' formats these files" >&2
exit 1
