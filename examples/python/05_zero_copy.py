#!/usr/bin/env python3
"""Zero-copy memory: all ranks of a host can access memory from world.empty(), so operations on it need no intermediate
copies.

    dscrun -n 4 -- python3 05_zero_copy.py
"""

import time

import numpy as np

import libdsc as dsc

COUNT, ROUNDS = 1 << 20, 20


def time_all_reduce(world, array):
    """Fills the array with rank + 1 and sums it over all ranks, several times. Returns the mean time in ms."""
    spent = 0.0
    for _ in range(ROUNDS):
        array[:] = world.rank + 1
        world.barrier()
        started = time.perf_counter()
        world.all_reduce(array, op="sum")
        spent += time.perf_counter() - started
        assert (array == world.size * (world.size + 1) // 2).all()
    return spent / ROUNDS * 1e3


world = dsc.init_distributed()

plain = np.empty(COUNT, dtype=np.float32)
shared = world.empty((COUNT,), "float32")  # collective: all ranks allocate the same number of bytes

plain_ms, shared_ms = time_all_reduce(world, plain), time_all_reduce(world, shared)
if world.rank == 0:
    print(f"all-reduce of 4 MiB on {world.size} ranks: plain array {plain_ms:.2f} ms, world.empty {shared_ms:.2f} ms")
print(f"rank {world.rank}: every element is {shared[0]:g}")

dsc.finalize()
