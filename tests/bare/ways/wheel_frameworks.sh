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
for framework in torch jax; do # a process for each: ranks are forked from a process without a world and without threads
  python -m pytest -q -rs -p no:cacheprovider "$LIBDSC_SOURCE/tests/frameworks/test_$framework"*.py --gate
done
