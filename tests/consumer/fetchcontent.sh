#!/usr/bin/env bash
# Checks the CMakeLists.txt of libdsc with the project of examples/embed/cmake: fetchcontent.sh SOURCE BUILD
# Instead of Meson runs a program that provides the library of BUILD. `./dev test bare fetchcontent` compiles one.
set -euo pipefail
source=$1 build=$2
for program in cmake ninja make; do command -v $program >/dev/null || { echo "$program is not installed"; exit 77; }; done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
unset LD_LIBRARY_PATH DSC_LIBRARY RANK WORLD_SIZE

fail() { echo "$generator: $1"; cat log calls; exit 1; }
step() { "$@" >log 2>&1 </dev/null || fail "failed: $*"; }
calls() { grep -c "^$1 " calls || true; }

# The arguments of `meson setup` end with the folder of the build and that of the source.
cat >meson <<SCRIPT
#!/usr/bin/env bash
echo "\$*" >>$scratch/calls
[[ \$1 == compile ]] && exit
echo "\$CC" >$scratch/compiler
mkdir -p "\${@: -2:1}/capi"
for file in $build/capi/libdsc*.so*; do [[ -d \$file ]] || cp -d "\$file" "\${@: -2:1}/capi"; done
SCRIPT
chmod +x meson

configure() {
  step cmake -G "$generator" -S "$source/examples/embed/cmake" -B project -DFETCHCONTENT_TRY_FIND_PACKAGE_MODE=NEVER \
    -DLIBDSC_MESON="$scratch/meson" "$@"
}

for generator in Ninja 'Unix Makefiles'; do
  rm -rf project installed && : >calls
  configure "-DLIBDSC_MESON_OPTIONS=-Dgloo=disabled;--buildtype=release" -DLIBDSC_INSTALL=ON \
    -DCMAKE_C_COMPILER_LAUNCHER=env
  [[ ! -s calls ]] || fail "Meson runs before anything is built"
  step cmake --build project
  [[ $(project/hello_ranks) == "rank 0 of 1: rank summed to 0, "* ]] || fail "hello_ranks does not work"
  grep -q "^setup -Dgloo=disabled --buildtype=release $scratch/project/.*" calls || fail "the options are not passed to Meson"
  [[ $(<compiler) == "env /"*cc ]] || fail "expected CC with launcher and compiler, got '$(<compiler)'"
  grep -q "^compile -C $scratch/project/.* libraries$" calls || fail "expected a build of the libraries"

  step cmake --build project
  [[ $(calls setup) == 1 && $(calls compile) == 2 ]] || fail "expected a second build without a second setup"
  ! grep -q 'Linking C executable' log || fail "the program is linked again although nothing has changed"

  step cmake --install project --prefix installed
  [[ -n $(find installed -name libdsc.so.0) && -n $(find installed -name libdsc_jax.so) ]] || fail "libdsc.so.0 is not installed"

  configure -DLIBDSC_MESON_OPTIONS=-Dgloo=enabled -DLIBDSC_TARGET=programs
  step cmake --build project
  [[ $(calls setup) == 2 ]] || fail "changed options have no effect"
  grep -q "^compile -C $scratch/project/.* programs$" calls || fail "expected a build of the programs"
done

! cmake -S "$source/examples/embed/cmake" -B cross -DFETCHCONTENT_TRY_FIND_PACKAGE_MODE=NEVER -DCMAKE_SYSTEM_NAME=Linux >log 2>&1 ||
  fail "a cross build without a cross file is accepted"
grep -q "expected --cross-file=FILE" log || fail "expected an error that names --cross-file"
