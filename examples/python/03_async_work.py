#!/usr/bin/env python3
"""Operations that run while the program computes: async_op=True returns a work object to wait for later.

    dscrun -n 4 -- python3 03_async_work.py
"""

import numpy as np

import libdsc as dsc

COUNT, OPERATIONS = 1 << 18, 4

world = dsc.init_distributed()

# Each call returns immediately. The array belongs to the operation until the operation has completed.
buffers = [np.full(COUNT, world.rank + i, dtype=np.float32) for i in range(OPERATIONS)]
works = [world.all_reduce(buffer, op="sum", async_op=True) for buffer in buffers]

harmonic = (1.0 / np.arange(1, 5_000_001)).sum()  # meanwhile a thread of the library computes the sums

completed = sum(work.test() for work in works)  # tests without waiting
for work in reversed(works):  # waiting in any order is fine
    work.wait()

for i, buffer in enumerate(buffers):
    assert (buffer == world.size * (world.size - 1) // 2 + world.size * i).all()
print(
    f"rank {world.rank}: {completed} of {OPERATIONS} all-reduces were complete after the computing "
    f"({harmonic:.3f}), now all are"
)
dsc.finalize()
