#!/usr/bin/env bash
# Compiles the tests of the C++ layer with clang, with all warnings as errors, and runs them. tools/lint/headers.sh
# compiles each header alone, and the build compiles the tests with its own compiler:
#   compilers.sh SOURCE LIBRARY DSCRUN
set -euo pipefail
source=$1 library=$2 dscrun=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
clang=$(command -v clang++-14 || command -v clang++) || { echo "clang++ is not installed"; exit 77; }
command -v g++ >/dev/null || { echo "g++ is not installed"; exit 77; }

warnings=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual -Werror)
includes=(-I "$source/capi/include")

# Without exceptions the header refuses to compile, and says what to use instead.
for compiler in g++ "$clang"; do
  message=$(echo "#include <dsc/dsc.hpp>" | "$compiler" -x c++ -std=c++17 -fno-exceptions -fsyntax-only "${includes[@]}" - 2>&1) && {
    echo "$compiler -fno-exceptions: expected an error"
    exit 1
  }
  [[ $message == *"with -fno-exceptions include dsc/dsc.h"* ]] || { echo "$message"; exit 1; }
done

folder=$(dirname "$library")
export LD_LIBRARY_PATH=$folder
for standard in c++17 c++20; do
  for program in values ranks; do
    "$clang" -std=$standard -fno-rtti "${warnings[@]}" "${includes[@]}" "$source/tests/cpp/test_$program.cpp" \
      "$library" -pthread -o "$scratch/$program"
  done
  "$scratch/values"
  "$dscrun" -n 2 --timeout 100 -- "$scratch/ranks"
done
