# A user's crate, built with Debian's cargo and without a registry. Part of meson_install.sh.
get_packages cargo librust-half-dev
export RUSTFLAGS="-C link-arg=-Wl,-rpath,$library" CARGO_TARGET_DIR=$PWD/cargo

mkdir -p crate/src
first_block rust >crate/src/main.rs
cat >crate/Cargo.toml <<TOML
[package]
name = "hello"
version = "0.1.0"
edition = "2021"

[dependencies]
dsc = { path = "$LIBDSC_SOURCE/bindings/rust/dsc" }

[workspace]
TOML
build_crate() { cargo build --quiet --offline --manifest-path crate/Cargo.toml; }

DSC_LIB_DIR=$prefix/lib build_crate # the build script finds the architecture's folder below it
four_ranks "[6.0, 6.0, 6.0, 6.0]" cargo/debug/hello
rm -r cargo
build_crate # found by pkg-config
four_ranks "[6.0, 6.0, 6.0, 6.0]" cargo/debug/hello
rm -r cargo
PKG_CONFIG_PATH='' build_crate 2>error.txt || true
grep -q "either set DSC_LIB_DIR" error.txt
