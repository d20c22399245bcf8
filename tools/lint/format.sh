#!/usr/bin/env bash
# The layout of C and C++ files is clang-format's.
set -uo pipefail
git ls-files -z --cached --others --exclude-standard -- '*.c' '*.h' '*.cpp' '*.hpp' |
  xargs -0 -r ls -d 2>/dev/null | # without what is deleted and not yet committed
  xargs -r -d '\n' clang-format-14 --dry-run --Werror --ferror-limit=3 && exit 0
echo "format: './dev format' formats these files" >&2
exit 1
