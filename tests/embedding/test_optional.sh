#!/usr/bin/env bash
# Runs the framework of examples/embed/dlopen without a libdsc that it can use:
#   test_optional.sh PROGRAM LIBRARY_WITHOUT_FUNCTIONS OLDER_LIBRARY
# A single process continues and says why. One of several processes must not: each would train alone.
set -euo pipefail
program=$1 incomplete=$2 older=$3
unset RANK WORLD_SIZE LD_LIBRARY_PATH

# Expects a reason from both kinds of process: expect LIBRARY REASON
expect() {
  local got code=0
  got=$(DSC_LIBRARY=$1 "$program") || { echo "$1: a single process exited with $?: $got"; exit 1; }
  [[ $got == *"ranks: a single process, because libdsc cannot be used: "*"$2"*"rank 0 of 1: mean gradient 1" ]] ||
    { echo "$1: expected the reason '$2', got '$got'"; exit 1; }
  got=$(RANK=0 WORLD_SIZE=2 DSC_LIBRARY=$1 "$program" 2>&1) || code=$?
  [[ $code == 1 && $got == "ranks: WORLD_SIZE is 2, but libdsc cannot be used: "*"$2"* ]] ||
    { echo "$1: one of two processes exited with $code, expected 1 and the reason '$2', got '$got'"; exit 1; }
}

expect libdsc.so.missing "libdsc.so.missing: cannot open shared object file"
expect "$incomplete" "$incomplete: it has no function dsc_result_name"
expect "$older" "$older: it is version "
