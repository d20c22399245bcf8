# A crate of someone else's, with Debian's own cargo and no registry.
source "$LIBDSC_SOURCE/tests/bare/ways/use.sh"
install_library
get_packages cargo pkgconf
export PATH=$prefix/bin:$PATH
library=$prefix/lib/x86_64-linux-gnu
export RUSTFLAGS="-C link-arg=-Wl,-rpath,$library"

mkdir -p hello/src
first_block rust >hello/src/main.rs
cat >hello/Cargo.toml <<TOML
[package]
name = "hello"
version = "0.1.0"
edition = "2021"

[dependencies]
dsc = { path = "$LIBDSC_SOURCE/bindings/rust/dsc" }

[workspace]
TOML
cd hello
DSC_LIB_DIR=$prefix/lib cargo build --offline # the folder of the architecture below it is found
four_ranks "[6.0, 6.0, 6.0, 6.0]" target/debug/hello
rm -r target
PKG_CONFIG_PATH=$library/pkgconfig cargo build --offline
four_ranks "[6.0, 6.0, 6.0, 6.0]" target/debug/hello
rm -r target
! cargo build --offline 2>error.txt
grep -q "either set DSC_LIB_DIR" error.txt
say "good"
