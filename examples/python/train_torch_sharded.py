#!/usr/bin/env python3
"""Trains a torch module in shards on all ranks, on images of handwritten digits. A checkpoint continues in a new
module.

    dscrun -n 4 -- python3 train_torch_sharded.py [STAGE]
"""

import importlib.util
import sys
import tempfile

if importlib.util.find_spec("torch") is None:
    print(f"skipped: {sys.executable} has no torch")
    sys.exit(77)

import torch
from torch import nn

import digits
import libdsc as dsc
from libdsc.torch import ShardedDataParallel

EPOCHS, BATCH, WANTED = 8, 48, 0.95

torch.set_num_threads(1)
world = dsc.init_distributed()
stage = int(sys.argv[1]) if len(sys.argv) > 1 else 3
(images, labels), (test_images, test_labels) = [
    (torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.int64)) for x, y in digits.load()
]


def make():
    """Returns a model whose layers are gathered one by one, because each rank keeps a part of it, and an optimizer for
    that part.
    """
    module = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    model = ShardedDataParallel(module, units=[nn.Linear], stage=stage)
    return model, torch.optim.AdamW(model.parameters(), lr=0.003)


def train(model, optimizer, epochs):
    for epoch in epochs:
        mine = torch.tensor(dsc.shard_indices(len(images), world.size, world.rank, seed=epoch))
        for batch in mine.split(BATCH // world.size):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            model.clip_grad_norm_(1.0)  # the norm over all ranks
            optimizer.step()  # updates only this rank's parts


torch.manual_seed(world.rank)  # the wrapper takes rank 0's weights
model, optimizer = make()
train(model, optimizer, range(EPOCHS // 2))
folder = dsc.broadcast_object(world, tempfile.mkdtemp() if world.rank == 0 else None)
model.save(folder, optimizer)  # each rank saves its part
model.close()

model, optimizer = make()
model.load(folder, optimizer)  # possible with any number of ranks and any stage
train(model, optimizer, range(EPOCHS // 2, EPOCHS))

whole = sum(value.numel() for value in model.state_dict().values())
held = sum(p.numel() for p in model.parameters())
with torch.no_grad():
    right = (model(test_images).argmax(1) == test_labels).float().mean().item()
print(f"rank {world.rank}: holds {held} of {whole} parameters")
if world.rank == 0:
    print(f"accuracy {right:.1%}, at least {WANTED:.0%} wanted: {'reached' if right >= WANTED else 'missed'}")
dsc.finalize()
