#!/bin/sh
# Builds libdsc on a machine with a GPU and runs its GPU tests, sanitizers and benchmarks: ./run.sh [--help]
# This script only starts run.py with the packed Python, loader and C library.
here=${0%/*}
[ "$here" != "$0" ] || here=.
here=$(CDPATH='' cd -- "$here" && pwd) || exit 2
tools=$here/tools
export PYTHONHOME="$tools/python"
python() { "$tools/lib/ld-linux-x86-64.so.2" --library-path "$tools/lib" "$tools/programs/python3" -B "$@"; }
if ! python -c 'import json, subprocess'; then
  echo "run.sh: the packed programs do not run on this machine; they need Linux on x86-64" >&2
  exit 2
fi
python "$here/run.py" "$@"
