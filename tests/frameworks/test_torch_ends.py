"""How programs end that use "dsc": a normal exit, threads that are still inside torch, and Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import torch
import torch.distributed as dist
import torch_ranks as ranks

import libdsc.torch  # noqa: F401

ROUNDS = 4  # number of repetitions, because failures depend on timing

TRAIN = """
import sys, torch, torch.distributed as dist, libdsc.torch
torch.set_num_threads(1)
dist.init_process_group("dsc", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(60)])
model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=1e-5)  # makes many futures, the last one at the end of the pass
model(torch.ones(2, 4)).sum().backward()
if sys.argv[3] == "destroy":
    dist.destroy_process_group()
"""


def test_torch_programs_end(tmp_path):
    for number in range(ROUNDS):
        end = ("destroy", "leave")[number % 2]
        commands = [[sys.executable, "-c", TRAIN, str(tmp_path / f"store{number}"), str(rank), end] for rank in range(2)]
        ranks = [subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE, text=True) for command in commands]
        texts = [rank.communicate(timeout=100)[1] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], texts


CALLS = {
    "all_reduce": lambda: dist.all_reduce(torch.ones(4)),
    "wait": lambda: dist.all_reduce(torch.ones(4), async_op=True).wait(),
    "recv": lambda: dist.recv(torch.ones(4), 1),
    "recv from any": lambda: dist.recv(torch.ones(4)),
    "new_group": lambda: dist.new_group([0, 1]),
}


def interrupted(rank, call):
    """Rank 0 gets Ctrl-C in a call that rank 1 never makes."""
    if rank == 0:
        # a shell starts background programs without this handler
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            CALLS[call]()
        except KeyboardInterrupt:
            os._exit(130)
        return "went on"
    try:
        dist.barrier()
    except dist.DistBackendError as error:
        return "rank 0" in str(error)


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c(call):
    """The call ends, and the other rank is told which rank left."""
    assert ranks.run(2, interrupted, call, lost=[0]) == [None, True]
