#!/usr/bin/env bash
# Runs cargo on this workspace without a network, then a command: cargo.sh "CARGO ARGUMENTS" [COMMAND...]
# Exits 77 (skipped) with a reason where there is no cargo.
set -euo pipefail
if ! command -v cargo >/dev/null; then
  echo "skipped: there is no cargo in PATH"
  exit 77
fi
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck disable=SC2086  # $1 is a list of words
cargo $1 --quiet --offline --locked --manifest-path "$here/Cargo.toml"
shift
(($# == 0)) || exec "$@"
