#!/usr/bin/env python3
"""A mesh: axes with names instead of colors and keys. Pairs of ranks share a layer (tp), and there is a pipeline (pp)
of such pairs; the last stage tells the others what only it knows.

    dscrun -n 4 -- python3 14_mesh.py
"""

import numpy as np

import libdsc as dsc

world = dsc.init_distributed()
rank = world.rank

# The first axis of the order is the one along which neighbours in rank stand; -1 is what the world leaves.
mesh = dsc.Mesh({"tp": 1 if world.size % 2 else 2, "pp": -1}, order="tp-pp", world_size=world.size)
print(f"rank {rank} is {mesh.rank_name(rank)}: layer of {mesh.group(rank, 'tp')}, pipeline of {mesh.group(rank, 'pp')}")

loss = np.array([float(rank)])
mesh.broadcast_from("pp", "last", loss)  # the communicator is made at the first use, by all ranks
assert loss[0] == mesh.last(rank, "pp")
print(f"rank {rank}: the loss is {loss[0]:g}")
dsc.finalize()
