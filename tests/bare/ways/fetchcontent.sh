# A CMake project compiles libdsc through FetchContent, where no libdsc is installed.
source "$LIBDSC_SOURCE/tests/bare/ways/use.bash"
get_packages cmake g++ meson pkgconf libhwy-dev libasio-dev libsodium-dev libcli11-dev nlohmann-json3-dev
cp -r "$LIBDSC_SOURCE" libdsc
cmake -G Ninja -S libdsc/examples/embed/cmake -B build -DLIBDSC_MESON_OPTIONS=--buildtype=release \
  -DLIBDSC_TARGET=programs -DLIBDSC_INSTALL=ON >cmake.log
start=$SECONDS
build() { cmake --build build >build.log 2>&1 || { tail -n 20 build.log; exit 1; }; }
build
say "the first build took $((SECONDS - start)) s"

PATH=$PWD/build/_deps/libdsc-build/meson/tools:$PATH
[[ $(dscrun -n 4 -- build/hello_ranks | grep -c "rank summed to 6") == 4 ]]

# Only what a change affects is made again: nothing; a module; the library and the program.
relinked() { [[ $(grep -c 'Linking C executable hello_ranks' build.log) == "$1" ]] || { cat build.log; exit 1; }; }
build
grep -q 'no work to do' build.log
relinked 0
echo >>libdsc/capi/jax/handlers.c
build
grep -q 'Linking target capi/libdsc_jax.so' build.log
relinked 0
echo >>libdsc/impl/topology/names.cpp
build
grep -q 'Linking target capi/libdsc.so' build.log
relinked 1

cmake --install build --prefix "$PWD/installed" >install.log
library=$(dirname "$(find installed -name libdsc.so.0)")
LD_LIBRARY_PATH=$library build/hello_ranks | grep -q "rank summed to 0"
[[ -f $library/libdsc_jax.so ]]
say "good"
