# Another project uses libdsc as a Meson subproject and compiles it.
source "$LIBDSC_SOURCE/tests/bare/ways/use.bash"
get_packages g++ meson pkgconf libhwy-dev libasio-dev libsodium-dev nlohmann-json3-dev
cp -r "$LIBDSC_SOURCE/tests/consumer/project" project
mkdir project/subprojects
cp -r "$LIBDSC_SOURCE" project/subprojects/libdsc
meson setup build project >setup.log || { tail -n 20 setup.log; exit 1; }
ninja -C build >build.log 2>&1 || { tail -n 20 build.log; exit 1; }
[[ $(build/consumer) == "consumer: 1 2 3" ]]
say "good"
