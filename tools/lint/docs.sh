#!/usr/bin/env bash
# Doxygen reads the headers and the articles. A warning, for example about a parameter without description, is an
# error.
set -uo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# Although nobody reads this HTML it must be made, because Doxygen 1.9.4 checks @param only if there is an output.
sed -e "s|@SOURCE@|$PWD|g" -e "s|@OUTPUT@|$out|g" -e "s|@VERSION@|lint|g" docs/Doxyfile.in >"$out/Doxyfile"
doxygen -q "$out/Doxyfile" >"$out/log" 2>&1 && exit 0
sed "s|$PWD/||" "$out/log" >&2
exit 1
