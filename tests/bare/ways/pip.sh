# pip compiles the library from the source tree, and brings it with its programs.
apt-get update -qq
packages="python3-venv git g++ pkg-config libhwy-dev libasio-dev libsodium-dev libcli11-dev nlohmann-json3-dev libgloo-dev"
apt-get install -y -qq --no-install-recommends $packages >/dev/null
python3 -m venv venv
export PATH=$PWD/venv/bin:$PATH
pip install -q numpy "$LIBDSC_SOURCE"
cat >hello.py <<'EOF'
import numpy as np
import libdsc as dsc

world = dsc.init_distributed()
x = np.full(4, world.rank, np.float32)
world.all_reduce(x)
print(f"rank {world.rank}: {x}")
dsc.finalize()
EOF
expected=$(for rank in 0 1 2 3; do echo "[$rank] rank $rank: [6. 6. 6. 6.]"; done)
[[ $(dscrun -n 4 python hello.py | sort) == "$expected" ]]
[[ $(python -m libdsc.run -n 2 python hello.py | sort) == $'[0] rank 0: [1. 1. 1. 1.]\n[1] rank 1: [1. 1. 1. 1.]' ]]
python -c 'import libdsc; assert libdsc.feature("gloo")'
dscctl info
