#!/usr/bin/env bash
# Tests the comparison on a toy library: it must accept pure additions and refuse everything else.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v abidiff >/dev/null || { echo "abidiff (abigail-tools) is not installed"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# toy NAME FIELDS ARGUMENT FUNCTIONS... makes a library with one sized struct, one plain struct, and functions.
toy() {
  local name=$1 sized=$2 plain=$3 argument=$4
  mkdir -p "$scratch/$name/toy"
  {
    echo '#include <stddef.h>'
    echo "typedef struct toy_options { size_t struct_size; $sized } toy_options_t;"
    echo "typedef struct toy_pair { $plain } toy_pair_t;"
    printf '%s\n' "int toy_open(const toy_options_t *options);" "int toy_add(toy_pair_t *pair, $argument count);" "${@:5}"
  } >"$scratch/$name/toy/toy.h"
  grep -oP '^int .*(?=;)' "$scratch/$name/toy/toy.h" | sed 's/$/ { return 0; }/' |
    cat <(echo '#include <toy/toy.h>') - >"$scratch/$name/toy.c"
  gcc -g -shared -fPIC -I "$scratch/$name" "$scratch/$name/toy.c" -o "$scratch/$name/libtoy.so"
}

verdict() {
  local rc=0
  "$here/baseline.py" check "$scratch/$1/libtoy.so" "$scratch/$1" "$scratch/toy.abi" >"$scratch/log" 2>&1 || rc=$?
  echo $rc
}

failures=0
expect() {
  local wanted=$1 name=$2 rc
  rc=$(verdict "$name")
  if [[ ($wanted == accepted && $rc -ne 0) || ($wanted == refused && $rc -eq 0) || $rc -eq 77 ]]; then
    echo "$name: expected $wanted, got exit $rc"
    cat "$scratch/log"
    failures=$((failures + 1))
  fi
}

close='int toy_close(void);'
toy same 'int a; int b;' 'int x; int y;' size_t "$close"
"$here/baseline.py" write "$scratch/same/libtoy.so" "$scratch/same" "$scratch/toy.abi"
toy function_added 'int a; int b;' 'int x; int y;' size_t "$close" 'int toy_new(void);'
toy field_appended 'int a; int b; size_t c;' 'int x; int y;' size_t "$close"
toy function_removed 'int a; int b;' 'int x; int y;' size_t
toy field_inserted 'int a; int c; int b;' 'int x; int y;' size_t "$close"
toy field_inserted_wide 'int a; size_t c; int b;' 'int x; int y;' size_t "$close"
toy field_removed 'int a;' 'int x; int y;' size_t "$close"
toy field_retyped_and_appended 'int a; float b; size_t c;' 'int x; int y;' size_t "$close"
toy field_retyped 'int a; float b;' 'int x; int y;' size_t "$close"
toy plain_appended 'int a; int b;' 'int x; int y; int z;' size_t "$close"
toy argument_narrowed 'int a; int b;' 'int x; int y;' unsigned "$close"

accepted=(same function_added field_appended)
refused=(function_removed field_inserted field_inserted_wide field_removed field_retyped field_retyped_and_appended
  plain_appended argument_narrowed)
for name in "${accepted[@]}"; do expect accepted "$name"; done
for name in "${refused[@]}"; do expect refused "$name"; done
exit $((failures > 0))
