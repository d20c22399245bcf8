# What the ways in have in common. Each is run as root in a bare Debian 12, in an empty folder, with LIBDSC_SOURCE, a
# clone of the project; a way sources this file.
# shellcheck shell=bash
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
prefix=/opt/libdsc # of the ways that share one installation

say() { echo "$(basename "$0" .sh): $*"; }

get_packages() {
  say "apt-get install $*"
  apt-get update -qq
  apt-get install -qq -y --no-install-recommends "$@" >apt.log 2>&1 || { tail -n 20 apt.log; exit 1; }
}

# The first block of a language in the README: first_block python >hello.py
first_block() { awk -v start="\`\`\`$1" '/^```/ && on { exit } on { print } $0 == start { on = 1 }' "$LIBDSC_SOURCE/README.md"; }

# Runs the hello of the README on four ranks: four_ranks "6" ./hello
four_ranks() {
  local wanted got
  wanted=$(for rank in 0 1 2 3; do echo "[$rank] rank $rank: $1"; done)
  got=$(dscrun -n 4 -- "${@:2}" | sort)
  [[ $got == "$wanted" ]] || { say "$2: expected"$'\n'"$wanted"$'\n'"got"$'\n'"$got"; exit 1; }
  say "four ranks of '${*:2}' agree"
}

# What README says to need, and what is optional here: nothing.
install_library() {
  [[ ! -x $prefix/bin/dscrun ]] || return 0
  get_packages g++ meson pkgconf libhwy-dev libasio-dev libsodium-dev libcli11-dev nlohmann-json3-dev
  meson setup build "$LIBDSC_SOURCE" --prefix "$prefix" --buildtype release -Dtests=disabled -Dbench=disabled >setup.log ||
    { tail -n 20 setup.log; exit 1; }
  local start=$SECONDS
  meson install -C build --strip >install.log 2>&1 || { tail -n 20 install.log; exit 1; }
  say "meson install took $((SECONDS - start)) s"
}
