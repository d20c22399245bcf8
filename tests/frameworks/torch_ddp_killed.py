"""Rank VICTIM kills itself in a backward pass. The other ranks report how their backward or forward pass ended.

    python3 torch_ddp_killed.py VICTIM
"""

import sys

import torch
from torch import nn

import libdsc as dsc
from killed_rank import kill_self, telling
from libdsc.torch import DistributedDataParallel

victim = int(sys.argv[1])
torch.set_num_threads(1)
world = dsc.init_distributed(timeout=60, init_timeout=60)
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))), bucket_cap_mb=0.01)
with telling():
    for iteration in range(100):
        output = model(torch.ones(2, 64))
        if iteration == 3 and world.rank == victim:
            model.module[1].weight.register_hook(lambda grad: kill_self())
        output.sum().backward()
