#!/usr/bin/env bash
# Unpacks Julia 1.5.3 of Debian 11 into a folder, because Debian 12 has no Julia: install.sh FOLDER
#
# FOLDER/bin/julia then runs it. Nothing is installed: apt only downloads, with folders and lists of its own. The
# packages bring the libraries of their release; only those of glibc and of the compiler come from this machine,
# because a process can have just one of each. The address of the mirror is that of this machine's apt sources, with
# the name of the release replaced. apt checks the signatures.
#
# A folder that is complete is left as it is.
set -euo pipefail
(($# == 1)) || { echo "usage: install.sh FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
release=bullseye
keys=/usr/share/keyrings/debian-archive-keyring.gpg

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

# Calls apt-get with folders of its own.
apt() {
  apt-get -qq -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State="$state" -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" \
    -o Dir::Cache="$state" -o Dir::Cache::archives="$state/archives" -o APT::Sandbox::User= \
    -o Acquire::Retries=3 -o Acquire::http::Timeout=30 "$@"
}

# Prints the address of the repository from which this machine gets Debian 12.
mirror() {
  apt-get update --print-uris 2>/dev/null | sed -nE "s|^'([^']*)/dists/bookworm/InRelease'.*|\1|p" | head -n 1
}

download() {
  local site
  site=$(mirror)
  [[ -n $site ]] || fail "no apt source has the release bookworm"
  [[ -f $keys ]] || fail "$keys is missing (package debian-archive-keyring)"
  mkdir -p "$state/lists/partial" "$state/archives/partial"
  : >"$state/status"
  echo "deb [signed-by=$keys] $site $release main" >"$state/sources.list"
  apt update || fail "the mirror of this machine does not have Debian 11"
  apt install --download-only --yes --no-install-recommends julia || fail "Julia's packages could not be downloaded"
}

unpack() {
  local package
  for package in "$state"/archives/*.deb; do
    dpkg -x "$package" "$state/root"
  done
  find "$state/root" \( -name 'libc[.-]*' -o -name 'libm[.-]*' -o -name 'libmvec[.-]*' -o -name 'libpthread[.-]*' \
    -o -name 'libdl[.-]*' -o -name 'librt[.-]*' -o -name 'libresolv[.-]*' -o -name 'ld-*' -o -name 'ld[.-]linux*' \
    -o -name 'libstdc++.so*' -o -name 'libgcc_s.so*' \) -path '*/lib*' ! -type d -delete
}

# Writes a program that runs Julia with the unpacked libraries. libgcc_s comes first, because Debian's libunwind, which
# Julia loads, would replace its functions, and then the first C++ exception of any library ends the process.
write_wrapper() {
  mkdir -p "$state/bin"
  cat >"$state/bin/julia" <<'WRAPPER'
#!/bin/sh
root=$(dirname "$(dirname "$(readlink -f "$0")")")/root
for folder in "$root"/lib/*-linux-gnu "$root"/usr/lib/*-linux-gnu "$root"/usr/lib/*-linux-gnu/julia \
  "$root"/usr/lib/*-linux-gnu/openblas-pthread; do
  LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
export LD_LIBRARY_PATH LD_PRELOAD="libgcc_s.so.1${LD_PRELOAD:+:$LD_PRELOAD}"
exec "$root/usr/bin/julia" "$@"
WRAPPER
  chmod +x "$state/bin/julia"
}

[[ ! -x $folder/bin/julia ]] || exit 0
state=$folder/partial
rm -rf "$state"
mkdir -p "$state"
download
unpack
write_wrapper
"$state/bin/julia" --startup-file=no -e 'exit(VERSION >= v"1.5" ? 0 : 1)' || fail "the unpacked Julia does not run"
mv "$state/root" "$folder/root"
mv "$state/bin" "$folder/bin" # the last step: bin/julia exists only if all is complete
rm -rf "$state"
