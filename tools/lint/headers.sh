#!/usr/bin/env bash
# Every public header compiles alone, as each language a user may write, without a warning.
set -uo pipefail
flags=(-fsyntax-only -Wall -Wextra -Wpedantic -Werror -I capi/include)
rc=0
for header in capi/include/dsc/*.h; do
  name=dsc/${header##*/}
  for standard in c99 c11; do
    echo "#include <$name>" | gcc -x c -std=$standard "${flags[@]}" -Wstrict-prototypes - || rc=1
  done
  for standard in c++17 c++20; do
    echo "#include <$name>" | g++ -x c++ -std=$standard "${flags[@]}" - || rc=1
  done
  grep -q "<$name>" capi/include/dsc/dsc.h || [[ $name == dsc/dsc.h ]] || {
    echo "$header: dsc/dsc.h does not include it" >&2
    rc=1
  }
done
exit $rc
