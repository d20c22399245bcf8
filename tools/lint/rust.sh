#!/usr/bin/env bash
# Rust files must have rustfmt's layout, and clippy and rustdoc must give no warnings. If a tool is not installed, it
# is skipped.
set -uo pipefail
manifest=bindings/rust/Cargo.toml
failed=0
if cargo fmt --version >/dev/null 2>&1; then
  cargo fmt --manifest-path "$manifest" --all --check || failed=1
fi
library=
# Meson creates the link libdsc.so before the library, so its target may not exist yet
for built in build*/capi/libdsc.so; do if [[ -e $built ]]; then library=$built; fi; done
if [[ -n $library ]]; then
  export DSC_LIB_DIR=$PWD/${library%/*} CARGO_TARGET_DIR=$PWD/build/cargo
  if cargo clippy --version >/dev/null 2>&1; then
    RUSTFLAGS="-D warnings" bindings/rust/cargo.sh "clippy --workspace --all-targets --features dsc/half" || failed=1
  fi
  if rustdoc --version >/dev/null 2>&1; then
    RUSTDOCFLAGS="-D warnings" bindings/rust/cargo.sh "doc --no-deps -p dsc -p dsc-sys --features dsc/half" || failed=1
  fi
fi
exit $failed
