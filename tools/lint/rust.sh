#!/usr/bin/env bash
# The layout of Rust files is rustfmt's, and clippy has nothing to say, where these two are installed.
set -uo pipefail
manifest=bindings/rust/Cargo.toml
failed=0
if cargo fmt --version >/dev/null 2>&1; then
  cargo fmt --manifest-path "$manifest" --all --check || failed=1
fi
library=
for built in build*/capi/libdsc.so; do if [[ -e $built ]]; then library=$built; fi; done # Meson links before it builds
if cargo clippy --version >/dev/null 2>&1 && [[ -n $library ]]; then
  export DSC_LIB_DIR=$PWD/${library%/*} CARGO_TARGET_DIR=$PWD/build/cargo
  RUSTFLAGS="-D warnings" bindings/rust/cargo.sh "clippy --workspace --all-targets --features dsc/half" || failed=1
fi
exit $failed
