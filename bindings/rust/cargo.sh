#!/usr/bin/env bash
# Runs cargo on this workspace without a network, then a command: cargo.sh "CARGO ARGUMENTS" [COMMAND...]
# Exits 77 (skipped) with a reason if there is no cargo.
set -euo pipefail
if ! command -v cargo >/dev/null; then
  echo "skipped: cargo is not in PATH"
  exit 77
fi
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")

# The feature `half` needs the only external crate. It is taken from Debian's package, if that is installed.
crates=/usr/share/cargo/registry
config=()
if compgen -G "$crates/half-*" >/dev/null; then
  config=(--config 'source.crates-io.replace-with="debian"' --config "source.debian.directory=\"$crates\"")
fi
# shellcheck disable=SC2086  # $1 is a list of words
cargo $1 "${config[@]}" --quiet --offline --locked --manifest-path "$here/Cargo.toml"
shift
(($# == 0)) || exec "$@"
