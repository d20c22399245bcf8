#!/usr/bin/env bash
# Runs a command that finds `julia` in PATH and LibDSC among its packages: with_julia.sh FOLDER COMMAND...
#
# It uses the julia of PATH, or the one that install.sh has unpacked into FOLDER. Without both it exits with 77, which
# Meson counts as skipped. Compiled packages are kept in FOLDER.
set -euo pipefail
(($# >= 2)) || { echo "usage: with_julia.sh FOLDER COMMAND..." >&2; exit 2; }
folder=$1
shift
packages=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../bindings/julia" && pwd)
if ! command -v julia >/dev/null; then
  if [[ ! -x $folder/bin/julia ]]; then
    echo "skipped: no julia in PATH; './dev setup julia' unpacks one where Debian 11's packages can be downloaded"
    exit 77
  fi
  export PATH="$folder/bin:$PATH"
fi
mkdir -p "$folder"
export JULIA_LOAD_PATH="$packages:@stdlib" JULIA_DEPOT_PATH="$folder/depot"
# Compiles the package once, so that the ranks do not all do it.
flock "$folder/lock" julia --startup-file=no -e 'using LibDSC'
exec "$@"
