#!/usr/bin/env bash
# Compiles the code with a second compiler. In the library, clang-tidy reports clang's warnings together with its own
# findings, so that nothing is read twice; clang compiles everything else. Clang also compiles the kernels, because
# errors about instruction sets appear only when code is generated. The build does not optimize or link, because
# warnings do not need it. Two kinds of files are skipped: those that clang has already compiled for the asan build
# with warnings as errors, and those that have not changed since clang read the whole tree.
set -uo pipefail
folder=build-clang
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

[[ -f $folder/build.ninja ]] || CC=clang-14 CXX=clang++-14 meson setup "$folder" --werror -Db_lundef=false \
  -Dtests=enabled -Dbench=enabled -Done_file_each=true -Doptimization=0 -Ddebug=false -Dcpp_args=-Wthread-safety >"$log" 2>&1 </dev/null || failed=1

# Prints the objects that clang must compile.
objects() {
  ninja -C "$folder" build.ninja >>"$log" 2>&1 && # updates compile_commands.json
    tools/lint/clang_objects.py "$folder" build-asan 2>>"$log"
}

if ((!failed)); then
  objects | xargs -r ninja --quiet -C "$folder" >>"$log" 2>&1 || failed=1
  /usr/bin/python3 tools/lint/tidy.py "$folder" >>"$log" || failed=1
fi
if ((failed)); then
  cat "$log" >&2
elif [[ -n ${LINT_ALL-} ]]; then
  /usr/bin/python3 tools/lint/changed.py # writes the commit to clang_base
fi
exit "$failed"
