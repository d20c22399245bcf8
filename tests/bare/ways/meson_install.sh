# meson install into a prefix that no system folder is part of; C by pkg-config.
source "$LIBDSC_SOURCE/tests/bare/ways/use.sh"
install_library
get_packages man-db
export PATH=$prefix/bin:$PATH PKG_CONFIG_PATH=$prefix/lib/x86_64-linux-gnu/pkgconfig MANPATH=$prefix/share/man
dscctl --version
dscctl info >/dev/null

first_block c >hello.c
library=$(pkg-config --variable=libdir libdsc)
# shellcheck disable=SC2046  # a list of words
cc hello.c -o hello $(pkg-config --cflags --libs libdsc) "-Wl,-rpath,$library"
four_ranks 6 ./hello
for page in dscrun dscctl; do MANPAGER=cat man $page | grep -q "^ *$page - "; done
bytes=$(stat -Lc %s "$library/libdsc.so")
((bytes < 5000000)) || { say "libdsc.so has $bytes bytes, expected less than 5 MB"; exit 1; }
say "good"
