# Functions that the scripts in this folder share. Each *.sh here runs as root in its own bare Debian 12. LIBDSC_SOURCE
# is a clone of the project. The script sources this file first.
# shellcheck shell=bash
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
way=$(basename "$0" .sh)
cd "$(mktemp -d)"
chmod 755 . # apt reads packages as another user

say() { echo "$way: $* (at $SECONDS s)"; }

get_packages() {
  say "apt-get install $*"
  apt-get update -qq
  apt-get install -qq -y --no-install-recommends "$@" >apt.log 2>&1 || { tail -n 20 apt.log; exit 1; }
}

# Prints the first block of a language in the README: first_block python >hello.py
first_block() { awk -v start="\`\`\`$1" '/^```/ && on { exit } on { print } $0 == start { on = 1 }' "$LIBDSC_SOURCE/README.md"; }

# Runs the hello program of the README on four ranks: four_ranks EXPECTED ./hello
four_ranks() {
  local wanted got
  wanted=$(for rank in 0 1 2 3; do echo "[$rank] rank $rank: $1"; done)
  got=$(dscrun -n 4 -- "${@:2}" | sort)
  [[ $got == "$wanted" ]] || { say "$2: expected"$'\n'"$wanted"$'\n'"got"$'\n'"$got"; exit 1; }
  say "four ranks of '${*:2}' agree"
}
