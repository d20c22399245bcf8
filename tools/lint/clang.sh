#!/usr/bin/env bash
# The second compiler: everything is compiled, nothing may warn, locks are checked by their annotations. Warnings need no
# optimizing.
set -uo pipefail
folder=build-clang
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{
  [[ -f $folder/build.ninja ]] || CC=clang-14 CXX=clang++-14 meson setup "$folder" --werror -Db_lundef=false \
    -Doptimization=0 -Ddebug=false -Dcpp_args=-Wthread-safety
} >"$log" 2>&1 </dev/null && ninja --quiet -C "$folder" >>"$log" 2>&1 && exit 0
cat "$log" >&2
exit 1
