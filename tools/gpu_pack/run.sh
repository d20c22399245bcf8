#!/bin/sh
# Builds libdsc on a machine with a GPU and runs its GPU tests, sanitizers and benchmarks: ./run.sh [--help]
# Only starts the packed Python, or the machine's: the rest is run.py.
here=${0%/*}
[ "$here" != "$0" ] || here=.
here=$(CDPATH='' cd -- "$here" && pwd) || exit 2
tools=$here/tools
if PYTHONHOME=$tools/python "$tools/lib/ld-linux-x86-64.so.2" --library-path "$tools/lib" "$tools/programs/python3" \
  -c 'import json, subprocess' 2>/dev/null; then
  export PYTHONHOME="$tools/python"
  exec "$tools/lib/ld-linux-x86-64.so.2" --library-path "$tools/lib" "$tools/programs/python3" -B "$here/run.py" "$@"
fi
if python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then exec python3 -B "$here/run.py" "$@"; fi
echo "run.sh: the packed Python, for Linux on x86-64, does not run here, and there is no Python 3.8" >&2
exit 2
