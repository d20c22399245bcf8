#!/usr/bin/env bash
# Checks that every constant of an older release still has its value:
#   test_constants.sh OLD_INCLUDE NEW_INCLUDE
# abidiff cannot see constants, because functions take plain 32-bit integers.
set -euo pipefail
old=$1 new=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
{
  echo '#include <dsc/dsc.h>'
  sed -E 's|/\*.*\*/||' "$old"/dsc/*.h | grep -oP '^\s+\KDSC_\w+ = [-\w]+(?=,|\s*$)' |
    sed -E 's/(\w+) = (.*)/_Static_assert((\1) == (\2), "\1 was \2");/'
} >"$scratch/constants.c"
count=$(grep -c _Static_assert "$scratch/constants.c") || true
((count > 30)) || { echo "found only $count constants in $old: expected the enumerations of types.h"; exit 1; }
gcc -std=c11 -fsyntax-only -I "$new" "$scratch/constants.c"

# Checks that the check itself can fail: it must with one other value.
sed -i '0,/== (0)/s//== (12345)/' "$scratch/constants.c"
! gcc -std=c11 -fsyntax-only -I "$new" "$scratch/constants.c" 2>/dev/null || { echo "a changed value went unseen"; exit 1; }
