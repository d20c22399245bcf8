#!/usr/bin/env python3
"""A mesh: named axes instead of colors and keys. Pairs of ranks share a layer (tp), and such pairs form a pipeline
(pp). The last stage broadcasts a value that only it knows.

    dscrun -n 4 -- python3 14_mesh.py
"""

import numpy as np

import libdsc as dsc

world = dsc.init_distributed()
rank = world.rank

# The first axis of the order varies fastest: neighbors along it have consecutive ranks. -1 stands for the rest of the
# world.
mesh = dsc.Mesh({"tp": 1 if world.size % 2 else 2, "pp": -1}, order="tp-pp", world_size=world.size)
print(f"rank {rank} is {mesh.rank_name(rank)}: layer of {mesh.group(rank, 'tp')}, pipeline of {mesh.group(rank, 'pp')}")

loss = np.array([float(rank)])
mesh.broadcast_from("pp", "last", loss)  # all ranks make the communicator together, at its first use
assert loss[0] == mesh.last(rank, "pp")
print(f"rank {rank}: the loss is {loss[0]:g}")
dsc.finalize()
