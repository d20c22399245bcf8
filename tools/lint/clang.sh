#!/usr/bin/env bash
# The second compiler. In the library clang-tidy reports clang's warnings beside its own findings, so that nothing is
# read twice; clang compiles all the rest. It also compiles the kernels, since instruction sets are checked only where
# code is made. Warnings need no optimizing, and no linking. What the build for asan has compiled by clang, with warnings
# as errors, is not compiled once more; and nothing is that did not change since clang read the whole tree.
set -uo pipefail
folder=build-clang
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

[[ -f $folder/build.ninja ]] || CC=clang-14 CXX=clang++-14 meson setup "$folder" --werror -Db_lundef=false \
  -Dtests=enabled -Dbench=enabled -Done_file_each=true -Doptimization=0 -Ddebug=false -Dcpp_args=-Wthread-safety >"$log" 2>&1 </dev/null || failed=1

# Prints the objects of what clang compiles.
objects() {
  ninja -C "$folder" build.ninja >>"$log" 2>&1 && # makes the list of commands new
    tools/lint/clang_objects.py "$folder" build-asan 2>>"$log"
}

if ((!failed)); then
  objects | xargs -r ninja --quiet -C "$folder" >>"$log" 2>&1 || failed=1
  /usr/bin/python3 tools/lint/tidy.py "$folder" >>"$log" || failed=1
fi
if ((failed)); then
  cat "$log" >&2
elif [[ -n ${LINT_ALL-} ]]; then
  /usr/bin/python3 tools/lint/changed.py # notes the commit
fi
exit "$failed"
