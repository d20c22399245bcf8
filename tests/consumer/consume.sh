#!/usr/bin/env bash
# Builds and runs project/ outside of this tree, as a user would:
#   consume.sh pkgconfig|cmake|prefix|subproject SOURCE BUILD
set -euo pipefail
way=$1 source=$2 build=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$source/tests/consumer/project" "$scratch/project"
cd "$scratch/project"
unset LD_LIBRARY_PATH PKG_CONFIG_PATH DSC_LIBRARY

# Prints the output of a step only if the step fails.
step() { "$@" >"$scratch/log" 2>&1 </dev/null || { cat "$scratch/log"; exit 1; }; }

install_library() {
  step env DESTDIR="$scratch/root" meson install -C "$build" --no-rebuild
  pc=$(find "$scratch/root" -name libdsc.pc)
  prefix=$scratch/root$(pkg-config --variable=prefix "$pc")
}

case $way in
  pkgconfig)
    install_library
    flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs "$pc")
    # shellcheck disable=SC2086  # $flags is a list of words
    step gcc -std=c99 -Wall -Wextra -Wpedantic -Werror main.c -o consumer $flags
    export LD_LIBRARY_PATH=${pc%/pkgconfig/libdsc.pc}
    result=$(./consumer)
    ;;
  cmake)
    command -v cmake >/dev/null || { echo "cmake is not installed"; exit 77; }
    install_library
    # The file is given by name, because CMake searches lib64 only on some distributions.
    config=$(dirname "$(find "$prefix" -name libdscConfig.cmake)")
    step cmake -G Ninja -S . -B build -Dlibdsc_DIR="$config"
    step cmake --build build
    result=$(build/consumer)
    # A version that breaks compatibility must not be accepted.
    sed -i 's/libdsc 0.1/libdsc 99.0/' CMakeLists.txt
    ! cmake -G Ninja -S . -B other -Dlibdsc_DIR="$config" >"$scratch/log" 2>&1 || { echo "accepted as version 99.0"; exit 1; }
    ;;
  prefix) # programs still find their library after the prefix was moved, and the installed files are small
    install_library
    mv "$prefix" "$scratch/moved"
    step env -i "$scratch/moved/bin/dscctl" info
    step env -i "$scratch/moved/bin/dscrun" -n 2 -- "$scratch/moved/bin/dscctl" info
    library=$(find "$scratch/moved" -name 'libdsc.so.*.*')
    strip "$library"
    bytes=$(stat -c %s "$library")
    ((bytes < 5000000)) || { echo "the stripped library has $bytes bytes, expected less than 5 MB"; exit 1; }
    [[ -f $scratch/moved/share/doc/libdsc/LICENSE ]] || { echo "LICENSE is not installed"; exit 1; }
    result="consumer: 1 2 3"
    ;;
  subproject) # compiles the program but not the library; ./dev test bare subproject compiles both
    mkdir subprojects
    ln -s "$source" subprojects/libdsc
    # The parent's own libraries may be static; libdsc remains shared.
    step meson setup build --force-fallback-for=libdsc -Dlibdsc:cuda=disabled --default-library=static
    step ninja -C build consumer.p/main.c.o
    inputs=$(ninja -C build -t query consumer) # read completely: with pipefail, a grep that ends early would make ninja fail by a broken pipe
    [[ $inputs == *libdsc.so* ]] || { echo "the program is not linked to the subproject's library: $inputs"; exit 1; }
    result="consumer: 1 2 3"
    ;;
  *)
    echo "consume.sh: expected pkgconfig, cmake, prefix or subproject, got '$way'" >&2
    exit 2
    ;;
esac
[[ $result == "consumer: 1 2 3" ]] || { echo "expected 'consumer: 1 2 3', got '$result'"; exit 1; }
