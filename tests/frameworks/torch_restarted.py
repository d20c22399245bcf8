"""The program that torchrun runs in test_torch_programs.py. Rank 1 kills itself in the first attempt."""

import os
import signal

import torch
import torch.distributed as dist

import libdsc.torch  # noqa: F401

dist.init_process_group("dsc")
attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), dist.get_rank()
x = torch.tensor([rank + 1.0])
dist.all_reduce(x)
if attempt == 0 and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
group = dist.new_group([0, 1])
dist.barrier(group)
# writes the line in one call, so that lines of two ranks do not mix
os.write(1, f"attempt {attempt}, rank {rank}: {x.item()}\n".encode())
dist.destroy_process_group()
