#!/usr/bin/env python3
"""One process alone is a world of one rank: a program needs no second version for it.

    python3 01_one_process.py
"""

import numpy as np

import libdsc as dsc

world = dsc.init_distributed()  # no launcher has set RANK: this process is alone
print(f"rank {world.rank} of {world.size}")

x = np.array([1.0, 2.0, 3.0])
world.all_reduce(x, op="sum")  # the sum over one rank is that rank's own values
assert x.tolist() == [1.0, 2.0, 3.0]
print("all-reduce of [1, 2, 3] is", x.astype(int).tolist())

dsc.finalize()
