#!/usr/bin/env bash
# pack_test.sh PACK.PY: makes the folder for another machine, checks its size, and checks that its script prints its
# steps.
set -euo pipefail
if ! command -v dpkg >/dev/null || ! git -C "$(dirname "$1")" rev-parse 2>/dev/null; then
  echo "skipped: the pack is made of Debian's packages and of a git checkout"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" "$folder/gpu-pack"
tar -tzf "$folder/gpu-pack.tar.gz" gpu-pack/run.sh gpu-pack/source/meson.build >/dev/null
listed=$(env -i PATH=/nonexistent "$(command -v sh)" "$folder/gpu-pack/run.sh" --list)
for step in configure build gpu_reference bench_calls racecheck_kernels; do
  grep -q "^$step " <<<"$listed" || { echo "run.sh --list does not say $step"; exit 1; }
done
