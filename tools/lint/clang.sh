#!/usr/bin/env bash
# The second compiler. In the library clang-tidy reports clang's warnings beside its own findings, so that each file is
# read once; clang compiles all the rest. It also compiles the kernels, since instruction sets are checked only where
# code is made. Warnings need no optimizing, and no linking.
set -uo pipefail
folder=build-clang
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

[[ -f $folder/build.ninja ]] || CC=clang-14 CXX=clang++-14 meson setup "$folder" --werror -Db_lundef=false \
  -Doptimization=0 -Ddebug=false -Dcpp_args=-Wthread-safety >"$log" 2>&1 </dev/null || failed=1

# Prints the objects of what clang compiles.
objects() {
  ninja -C "$folder" build.ninja >>"$log" 2>&1 && # makes the list of commands new
    /usr/bin/python3 - "$folder/compile_commands.json" <<'PYTHON'
import json, re, sys

for command in json.load(open(sys.argv[1], encoding="utf-8")):
    if not re.match(r"\.\./(impl/(?!dtype/)|capi/)", command["file"]):
        print(command["output"])
PYTHON
}

if ((!failed)); then
  objects | xargs -r ninja --quiet -C "$folder" >>"$log" 2>&1 || failed=1
  # Clang's warning about reserved names says what bugprone-reserved-identifier says, in a tenth of the time.
  git ls-files -z --cached --others --exclude-standard -- 'impl/*.cpp' 'capi/*.cpp' |
    xargs -0 -r ls -dS 2>/dev/null | # without what is deleted and not yet committed; the longest first
    xargs -r -d '\n' -n 1 -P "$(nproc)" clang-tidy-14 -p "$folder" --quiet --extra-arg=-Wreserved-identifier \
      2>/dev/null >>"$log" || failed=1
fi
((failed)) && cat "$log" >&2
exit "$failed"
