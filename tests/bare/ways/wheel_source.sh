# Building from the source distribution fails with the names of missing packages, and works after they are installed.
archive=$(ls "$LIBDSC_SHARED"/wheels/*.tar.gz) # made by ./dev test bare wheel
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3-venv g++ pkg-config >/dev/null
python3 -m venv venv
export PATH=$PWD/venv/bin:$PATH
if pip install -q "$archive" >refused 2>&1; then
  echo "expected an error about what is missing"
  exit 1
fi
packages="libhwy-dev libasio-dev libsodium-dev libcli11-dev nlohmann-json3-dev"
for package in $packages; do
  grep "$package" refused || { cat refused; exit 1; }
done
apt-get install -y -qq --no-install-recommends $packages >/dev/null
pip install -q "$archive"
dscrun -n 2 dscctl info
python -c 'import libdsc; print(libdsc.version())'
