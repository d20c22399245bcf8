#!/usr/bin/env bash
# clang-tidy over the library, with the compile commands of the clang build.
set -uo pipefail
[[ -f build-clang/compile_commands.json ]] || tools/lint/clang.sh || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
git ls-files -z --cached --others --exclude-standard -- 'impl/*.cpp' 'capi/*.cpp' |
  xargs -0 -r -n 1 -P "$(nproc)" clang-tidy-14 -p build-clang --quiet >"$log" 2>/dev/null && exit 0
cat "$log" >&2
exit 1
