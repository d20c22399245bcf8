# A user of PyTorch or JAX has the wheel and the framework, but no compiler. init_process_group("dsc") works without an
# import of libdsc.
wheel=$(ls "$LIBDSC_SHARED"/wheels/*.whl) # made by ./dev test bare wheel
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
python3 -m venv venv
export PATH=$PWD/venv/bin:$PATH OMP_NUM_THREADS=1
pip install -q "$wheel" torch jax numpy pytest expecttest
cat >train.py <<'EOF'
import torch
import torch.distributed as dist

dist.init_process_group("dsc")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.full((2, 4), 1.0 + dist.get_rank())).sum().backward()
if dist.get_rank() == 0:
    print(dist.get_backend(), model.module.weight.grad.tolist())
dist.destroy_process_group()
EOF
found=$(torchrun --standalone --nproc-per-node 2 train.py) # torchrun fails if a rank fails, even at its exit
[[ $found == "dsc [[3.0, 3.0, 3.0, 3.0]]" ]]
found=$(dscrun -n 2 python train.py)
[[ $found == "[0] dsc [[3.0, 3.0, 3.0, 3.0]]" ]]
# torch contains another version of Gloo. The wheel's own must work even if torch's symbols are visible to all libraries.
# DSC_HOST_ID simulates two hosts on one machine.
cat >both_gloos.py <<'EOF'
import ctypes
import pathlib

import numpy as np
import torch

import libdsc

ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib/libtorch_cpu.so"), ctypes.RTLD_GLOBAL)
world = libdsc.init_distributed()
x = np.full(1 << 18, world.rank + 1, np.float32)
world.all_reduce(x)
print(f"rank {world.rank}: {set(x.tolist())}")
libdsc.finalize()
EOF
for node in 0 1; do
  DSC_ALLOW_UNAUTHENTICATED=1 DSC_HOST_ID=host$node \
    dscrun --nnodes 2 --node-rank $node --master-addr 127.0.0.1 -n 1 python both_gloos.py >lines$node &
done
wait
[[ $(sort lines0 lines1) == "$(printf '[%s] rank %s: {3.0}\n' 0 0 1 1)" ]]

# A process for each framework: ranks are forked from a process without a world and without threads. The tests of torch
# are divided into two processes, which run beside each other.
parts=('torch_[a-f]' 'torch_[g-z]' jax)
for part in "${parts[@]}"; do
  # shellcheck disable=SC2086  # $part is a pattern
  python -m pytest -q -rs -p no:cacheprovider "$LIBDSC_SOURCE"/tests/frameworks/test_$part*.py --gate >"$part.log" 2>&1 &
  pids+=($!)
done
for i in "${!parts[@]}"; do
  wait "${pids[i]}" || failed=yes
  cat "${parts[i]}.log"
done
[[ -z ${failed-} ]]
