# A recipe for Yggdrasil, which builds the binary package libdsc_jll. A draft: it was parsed, but not run.
#
# Fill in the address of a release and the hash of its archive before use.

using BinaryBuilder

name = "libdsc"
version = v"0.1.0"

sources = [
    ArchiveSource("https://example.org/libdsc-$version.tar.gz", "0"^64),
]

script = raw"""
cd $WORKSPACE/srcdir/libdsc-*
meson setup build --cross-file=${MESON_TARGET_TOOLCHAIN} --buildtype=release
ninja -C build -j${nproc}
ninja -C build install
install_license LICENSE
"""

# libdsc needs Linux and glibc; it is tested on x86_64 and aarch64.
platforms = expand_cxxstring_abis([
    Platform("x86_64", "linux"; libc = "glibc"),
    Platform("aarch64", "linux"; libc = "glibc"),
])

products = [
    LibraryProduct("libdsc", :libdsc),
    ExecutableProduct("dscrun", :dscrun),
]

# To be added: the binary packages of Highway, nlohmann_json, libsodium and CLI11, with which libdsc is built.
dependencies = Dependency[]

# C++20 needs GCC 11 or newer.
build_tarballs(ARGS, name, version, sources, script, platforms, products, dependencies; julia_compat = "1.6",
    preferred_gcc_version = v"11")
