# A user of the wheel has Python, but no compiler.
wheel=$(ls "$LIBDSC_SHARED"/wheels/*.whl) # made by ./dev test bare wheel
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
python3 -m venv venv
export PATH=$PWD/venv/bin:$PATH
pip install -q numpy "$wheel"
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
[[ $(python -m libdsc.run -n 4 python hello.py | sort) == "$expected" ]]
dscctl info
# The wheel includes communication between hosts. DSC_HOST_ID simulates two hosts on one machine.
python -c 'import libdsc; assert libdsc.feature("gloo")'
for node in 0 1; do
  DSC_ALLOW_UNAUTHENTICATED=1 DSC_HOST_ID=host$node \
    dscrun --nnodes 2 --node-rank $node --master-addr 127.0.0.1 -n 2 python hello.py >lines$node &
done
wait
[[ $(sort lines0 lines1) == "$expected" ]]
