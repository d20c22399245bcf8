#!/usr/bin/env bash
# A build of a static library is refused with the reason, and not ignored: test_shared_only.sh SOURCE
set -euo pipefail
source=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for wanted in static both; do
  ! meson setup "$scratch/$wanted" "$source" "-Ddefault_library=$wanted" >"$scratch/log" 2>&1 </dev/null ||
    { echo "default_library=$wanted was accepted"; exit 1; }
  grep -q "only built as a shared library.* got $wanted" "$scratch/log" || { cat "$scratch/log"; exit 1; }
done
