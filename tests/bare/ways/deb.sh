# Builds Debian's packages, checks them with lintian, installs them, uses them in C and Python, runs debian/tests, and
# removes the packages without leaving files behind.
source "$LIBDSC_SOURCE/tests/bare/ways/use.bash"

# ---- build
cp -r "$LIBDSC_SOURCE" libdsc
apt-get update -qq
start=$SECONDS
(cd libdsc && apt-get build-dep -qq -y --no-install-recommends ./) >apt.log 2>&1 || { tail -n 20 apt.log; exit 1; }
say "build dependencies took $((SECONDS - start)) s"
start=$SECONDS
(cd libdsc && dpkg-buildpackage -us -uc) >build.log 2>&1 || { tail -n 20 build.log; exit 1; }
say "dpkg-buildpackage took $((SECONDS - start)) s"
[[ -z $(git -C libdsc status --porcelain) ]] || { say "the build left: $(git -C libdsc status --porcelain)"; exit 1; }

# ---- check of the source package and of all others
get_packages lintian
lintian --info --display-info --pedantic --fail-on error,warning ./*.changes
say "lintian is content"

# ---- install
get_packages gcc libc6-dev man-db pkgconf
apt-get install -qq -y --install-recommends ./*.deb >apt.log 2>&1 || { tail -n 20 apt.log; exit 1; }

# ---- use
first_block c >hello.c
# shellcheck disable=SC2046  # a list of words
cc hello.c -o hello $(pkg-config --cflags --libs libdsc)
four_ranks 6 ./hello
first_block python >hello.py
four_ranks "[6. 6. 6. 6.]" python3 hello.py
[[ $(python3 -c 'from importlib import metadata; print(metadata.version("libdsc"))') == $(pkg-config --modversion libdsc) ]]
dscctl info | grep -E '^ +gloo +yes'
for page in dscrun dscctl; do MANPAGER=cat man $page | grep -qE "^ *$page +- "; done
for program in dscrun dscctl; do
  bash -c "source /usr/share/bash-completion/completions/$program.bash; complete -p $program" >/dev/null
  [[ -f /usr/share/zsh/vendor-completions/_$program ]]
done

[[ -f /usr/share/doc/libdsc-doc/html/index.html ]]

# ---- debian/tests, as autopkgtest runs them, with the packages that were built
get_packages autopkgtest
autopkgtest ./*.deb libdsc/ -- null >tests.log 2>&1 || { tail -n 60 tests.log; exit 1; }
say "debian/tests: $(grep -c ' PASS$' tests.log) tests passed"
rm -r libdsc

# ---- remove
packages=(libdsc0 libdsc-dev libdsc-doc libdsc-tools python3-libdsc libdsc0-dbgsym libdsc-tools-dbgsym)
dpkg -L "${packages[@]}" | grep -E 'dsc' | sort -u >files
apt-get purge -qq -y "${packages[@]}" >apt.log 2>&1 || { tail -n 20 apt.log; exit 1; }
left=$(while read -r file; do [[ ! -e $file ]] || echo "$file"; done <files)
[[ -s files && -z $left ]] || { say "still there after apt-get purge: $left"; exit 1; }
say "good"
