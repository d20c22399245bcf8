# Installs with Meson into a prefix that no system folder includes. Uses the library in C with pkg-config and CMake, and
# in Rust.
source "$LIBDSC_SOURCE/tests/bare/ways/use.bash"
prefix=/opt/libdsc library=/opt/libdsc/lib/x86_64-linux-gnu

# ---- install: only with what is required, and nothing optional
get_packages g++ meson pkgconf libhwy-dev libasio-dev libsodium-dev libcli11-dev nlohmann-json3-dev man-db
start=$SECONDS
meson setup build "$LIBDSC_SOURCE" --prefix "$prefix" --libdir lib/x86_64-linux-gnu --buildtype release >setup.log ||
  { tail -n 20 setup.log; exit 1; }
meson install -C build --strip >install.log 2>&1 || { tail -n 20 install.log; exit 1; }
say "meson setup and install took $((SECONDS - start)) s, in $(grep -oE '^\[[0-9]+/[0-9]+\]' install.log | tail -n 1) steps"
bytes=$(stat -Lc %s "$library/libdsc.so")
((bytes < 5000000)) || { say "libdsc.so has $bytes bytes, expected less than 5 MB"; exit 1; }

# ---- use: programs find the library without settings
export PATH=$prefix/bin:$PATH PKG_CONFIG_PATH=$library/pkgconfig MANPATH=$prefix/share/man
dscctl --version
dscctl info >/dev/null
for page in dscrun dscctl; do MANPAGER=cat man $page | grep -qE "^ *$page +- "; done

first_block c >hello.c
# shellcheck disable=SC2046  # a list of words
cc hello.c -o hello $(pkg-config --cflags --libs libdsc) "-Wl,-rpath,$library"
four_ranks 6 ./hello

source "$LIBDSC_SOURCE/tests/bare/ways/cmake.bash"
source "$LIBDSC_SOURCE/tests/bare/ways/cargo.bash"
say "good"
