#!/usr/bin/env bash
# Doxygen reads the headers and the articles; a warning, such as a parameter without a word, is an error.
set -uo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# HTML is made although nobody looks at it here: without an output Doxygen 1.9.4 reads no @param.
sed -e "s|@SOURCE@|$PWD|g" -e "s|@OUTPUT@|$out|g" -e "s|@VERSION@|lint|g" docs/Doxyfile.in >"$out/Doxyfile"
doxygen -q "$out/Doxyfile" >"$out/log" 2>&1 && exit 0
sed "s|$PWD/||" "$out/log" >&2
exit 1
