#!/usr/bin/env bash
# Runs all checks, even after one has failed, and prints a summary.
# A check is one of the programs in this folder that are listed below. On success it prints nothing and returns 0.
# Otherwise it prints the problems and returns another code.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2

checks=(format layers vendors sizes words names environment pictures scripts licenses headers exports guards bindings rust docs clang)

about() {
  case $1 in
    format) echo "the code is formatted as by clang-format 14" ;;
    layers) echo "each folder includes only the layers below it" ;;
    vendors) echo "names of vendors are used only in the folders of their libraries" ;;
    sizes) echo "files and classes have at most 600 lines, functions at most 70" ;;
    words) echo "no absolute paths and no notes of work left; guides and headers have plain words and short lines" ;;
    names) echo "public functions that the guides name exist" ;;
    environment) echo "docs/environment.md lists the variables that the code reads" ;;
    pictures) echo "pictures of the guides are small, readable and used in a page" ;;
    scripts) echo "shell and Python files parse" ;;
    licenses) echo "files, licenses and addresses of packages agree" ;;
    headers) echo "every header compiles alone as C99, C11, C++17 and C++20" ;;
    exports) echo "the library, the headers and the version map name the same functions" ;;
    guards) echo "no exception can leave the C boundary" ;;
    bindings) echo "the generated bindings match the headers" ;;
    rust) echo "rustfmt and clippy find nothing, if they are installed" ;;
    docs) echo "every public name is documented" ;;
    clang) echo "clang compiles changed files without warnings, with -Wthread-safety; clang-tidy finds nothing in the library" ;;
  esac
}

if [[ ${1-} == --help ]]; then
  echo "./dev lint [--all] [CHECK ...]"
  for check in "${checks[@]}"; do printf '  %-11s %s\n' "$check" "$(about "$check")"; done
  echo "With --all, clang checks the whole tree, not only files that changed since its last run."
  exit 0
fi

if [[ ${1-} == --all ]]; then
  export LINT_ALL=yes
  shift
fi
for check; do
  [[ " ${checks[*]} " == *" $check "* ]] || { echo "lint: no check '$check' (known: ${checks[*]})" >&2; exit 2; }
done
(($#)) && checks=("$@")

passed=0 failed=()
for check in "${checks[@]}"; do
  start=$SECONDS
  program=$(compgen -G "tools/lint/$check.*")
  if "$program"; then
    passed=$((passed + 1))
    printf 'ok    %-11s %s (%d s)\n' "$check" "$(about "$check")" $((SECONDS - start))
  else
    failed+=("$check")
    printf 'FAIL  %-11s %s\n' "$check" "$(about "$check")"
  fi
done
echo "lint: $passed passed, ${#failed[@]} failed${failed:+: ${failed[*]}}"
((${#failed[@]} == 0))
