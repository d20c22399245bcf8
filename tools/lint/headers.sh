#!/usr/bin/env bash
# Every public header must compile alone without warnings, in each language that users may write.
set -uo pipefail

# Compiles one header as one language: try NAME COMPILER LANGUAGE STANDARD
try() {
  local flags=(-fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Werror -I capi/include)
  if [[ $3 == c ]]; then flags+=(-Wstrict-prototypes); fi
  echo "#include <$1>" | "$2" -x "$3" -std="$4" "${flags[@]}" -
}
export -f try

rc=0
{
  for header in capi/include/dsc/*.h; do printf '%s\n' "dsc/${header##*/} gcc c "{c99,c11}; done
  for header in capi/include/dsc/*.h capi/include/dsc/*.hpp; do
    printf '%s\n' "${header#capi/include/} g++ c++ "c++{17,20}
  done
  for header in capi/include/dsc/cpp/*.hpp; do echo "${header#capi/include/} g++ c++ c++17"; done
} | xargs -P "$(nproc)" -I {} bash -c 'try {}' || rc=1 # xargs continues after a failure

for header in capi/include/dsc/*.h; do
  name=dsc/${header##*/}
  # functions.h, which includes dsc.h, is only for programs that load the library themselves.
  grep -q "<$name>" capi/include/dsc/dsc.h || [[ $name == dsc/dsc.h || $name == dsc/functions.h ]] || {
    echo "$header: dsc/dsc.h does not include it" >&2
    rc=1
  }
done
exit $rc
