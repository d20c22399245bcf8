#!/usr/bin/env python3
"""Trains a torch module on all ranks, on images of handwritten digits, with the same code as for torch's DDP.

    dscrun -n 4 -- python3 train_torch_ddp.py
"""

import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    print(f"skipped: {sys.executable} has no torch")
    sys.exit(77)

import torch
from torch import nn

import digits
import libdsc as dsc
from libdsc.torch import DistributedDataParallel

EPOCHS, BATCH, WANTED = 8, 48, 0.95

torch.set_num_threads(1)
world = dsc.init_distributed()
(images, labels), (test_images, test_labels) = [
    (torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.int64)) for x, y in digits.load()
]

torch.manual_seed(world.rank)  # the wrapper copies rank 0's weights to the others
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(EPOCHS):
    mine = torch.tensor(dsc.shard_indices(len(images), world.size, world.rank, seed=epoch))
    for batch in mine.split(BATCH // world.size):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()  # afterwards p.grad has the mean over all ranks
        optimizer.step()

weights = torch.cat([p.detach().flatten() for p in model.parameters()])
least, most = weights.clone(), weights.clone()
world.all_reduce(least, op="min")
world.all_reduce(most, op="max")
with torch.no_grad():
    right = (model(test_images).argmax(1) == test_labels).float().mean().item()
print(f"rank {world.rank}: weights are {'equal' if torch.equal(least, most) else 'different'} on all ranks")
if world.rank == 0:
    print(f"accuracy {right:.1%}, at least {WANTED:.0%} wanted: {'reached' if right >= WANTED else 'missed'}")
dsc.finalize()
