#!/usr/bin/env python3
"""Ranks with different numbers of batches: a join, micro-batches without communication, a hook, and a limited norm.

    dscrun -n 4 -- python3 16_uneven.py
"""

import numpy as np

import libdsc as dsc

world = dsc.init_distributed()
weights = np.zeros(1000, dtype=np.float32)
reducer = dsc.BucketReducer(world, [weights], names=["weights"], hook="bf16")


def iterate(gradient):
    reducer.begin()
    reducer.mark_ready(0, gradient)
    reducer.finish()


batches = world.rank + 1  # rank 0 is the first to have no more batches
with dsc.Join(reducer, [weights]) as join:
    for batch in range(batches):
        with reducer.no_sync():
            iterate(np.full_like(weights, 1))  # the first micro-batch is not communicated
        gradient = np.full_like(weights, 3)
        iterate(gradient)  # the mean of the sums over all ranks, some of which may have no batch
        active = world.size - batch
        assert np.allclose(gradient, 4 * active / world.size, rtol=0.01)  # sent as bfloat16
        norm = reducer.clip(max_norm=1.0)
        weights -= gradient

print(
    f"rank {world.rank}: {batches} batches, the last one with a norm of {norm:.1f}; "
    f"rank {join.last_rank} came last, weights {weights[0]:.4f}"
)
dsc.finalize()
