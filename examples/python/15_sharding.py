#!/usr/bin/env python3
"""Sharded training: every rank keeps one part of the optimizer's state, of the gradients and of the parameters. A layer
is whole only while it computes. At the end a checkpoint is written and read.

    dscrun -n 4 -- python3 15_sharding.py [STAGE]
"""

import sys
import tempfile

import numpy as np

import libdsc as dsc

COUNTS = {"w0": 100, "b0": 10, "w1": 50, "b1": 5}
LAYERS = [0, 2]  # the first parameter of each layer
STEPS = 3

world = dsc.init_distributed()
stage = int(sys.argv[1]) if len(sys.argv) > 1 else 3
params = {name: np.ones(count, np.float32) for name, count in COUNTS.items()}
sharded = dsc.Sharded(world, list(params.values()), list(params), stage=stage, units=LAYERS)
del params  # their values are in the library's buffers now
momentum = [np.zeros_like(shard.grads) for shard in sharded.shards]

for step in range(STEPS):
    for layer in range(len(LAYERS)):  # forward
        with sharded.unit(layer) as (w, b):  # gathered from all ranks, and released at the end of the block
            activations = w.sum() + b.sum()
    sharded.begin()
    for layer in reversed(range(len(LAYERS))):  # backward: the last layer's gradients are computed first
        with sharded.unit(layer) as arrays:
            grads = [np.full_like(array, (world.rank + 1) * (i + 1)) for i, array in zip(sharded.units[layer], arrays)]
        for i, gradient in zip(reversed(sharded.units[layer]), reversed(grads)):
            sharded.mark_ready(i, gradient)  # the last gradient of a layer starts the layer's reduction
    sharded.finish()  # now this rank's shards hold the mean
    norm = sharded.clip(1000.0)
    for shard, own in zip(sharded.shards, momentum):  # the optimizer updates only this rank's shards
        own *= 0.9
        own += shard.grads
        shard.params[:] -= 0.1 * own
    sharded.step_done()

first_of = []
for layer in range(len(LAYERS)):
    with sharded.unit(layer) as arrays:
        first_of += [f"{array[0]:.4f}" for array in arrays]
print(f"rank {world.rank}: parameters", *first_of)
if world.rank == 0:
    print(f"norm of all gradients {norm:.2f}")

folder = tempfile.mkdtemp() if world.rank == 0 else None
folder = dsc.broadcast_object(world, folder)
sharded.save(folder, {"momentum": momentum})
world.barrier()
restored = sharded.load(folder)  # possible with any number of ranks and any stage
assert all((mine == read).all() for mine, read in zip(momentum, restored["momentum"]))
sharded.close()
dsc.finalize()
