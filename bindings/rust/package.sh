#!/usr/bin/env bash
# Packages both crates without a network, and compiles the packages: package.sh [FOLDER]
#
# Writes dsc-sys-VERSION.crate and dsc-VERSION.crate to FOLDER, by default target/package. Compiling needs libdsc
# (DSC_LIB_DIR).
# Exits 77 (skipped) with a reason if cargo is too old.
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
folder=$(realpath -m "${1:-$here/target/package}")

version=$(cargo --version 2>/dev/null | cut -d' ' -f2) || true
if [[ $(printf '%s\n' 1.90 "${version:-0}" | sort -V | head -1) != 1.90 ]]; then
  echo "skipped: cargo ${version:-(none)} cannot package a crate whose dependency is not published yet; 1.90 can"
  exit 77
fi

# Cargo writes Cargo.lock, so this script works on a copy of the tree.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$folder"
tar -C "$here/../.." --dereference --exclude bindings/rust/target -c bindings/rust examples/rust | tar -C "$copy" -x

# Cargo also resolves optional crates, although it does not compile them. An empty crate replaces the crate `half`, which
# only the feature `half` uses. The packages depend on the real crate.
half=$copy/half
mkdir -p "$half/src"
touch "$half/src/lib.rs"
printf '[package]\nname = "half"\nversion = "2.0.0"\n' >"$half/Cargo.toml"

export CARGO_TARGET_DIR=$copy/target
(cd "$copy/bindings/rust" && cargo package --offline --allow-dirty --quiet --exclude-lockfile -p dsc-sys -p dsc \
  --config "patch.crates-io.half.path=\"$half\"")
cp "$copy"/target/package/*.crate "$folder"
