#!/usr/bin/env python3
"""A single process is a world of one rank, so a program needs no special version for it.

    python3 01_one_process.py
"""

import numpy as np

import libdsc as dsc

world = dsc.init_distributed()  # no launcher has set RANK: a world of one rank
print(f"rank {world.rank} of {world.size}")

x = np.array([1.0, 2.0, 3.0])
world.all_reduce(x, op="sum")  # the sum over one rank is that rank's own values
assert x.tolist() == [1.0, 2.0, 3.0]
print("all-reduce of [1, 2, 3] is", x.astype(int).tolist())

dsc.finalize()
