"""Run by torchrun in test_torch_programs.py: rank 1 kills itself in the first attempt."""

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
os.write(1, f"attempt {attempt}, rank {rank}: {x.item()}\n".encode())  # a line as a whole
dist.destroy_process_group()
