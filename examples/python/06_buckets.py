#!/usr/bin/env python3
"""Gradient buckets: the plan alone, and a reducer that averages gradients while they are being computed.

    dscrun -n 4 -- python3 06_buckets.py
"""

import numpy as np

import libdsc as dsc

COUNTS = [100, 10, 50, 5]

world = dsc.init_distributed()
if world.rank == 0:
    for limit_bytes in (1 << 20, 200):
        print(f"limit of {limit_bytes} bytes:", *dsc.plan_buckets(COUNTS, ["float32"] * len(COUNTS), [limit_bytes]))

params = [np.zeros(count, dtype=np.float32) for count in COUNTS]
reducer = dsc.BucketReducer(world, params, bucket_bytes=200, first_bucket_bytes=200)

reducer.begin()
grads = {}
for index in reversed(range(len(params))):  # backward: the last parameter's gradient is computed first
    grads[index] = np.full_like(params[index], (world.rank + 1) * (index + 1))
    reducer.mark_ready(index, grads[index])  # the reduction of a full bucket starts automatically
reducer.finish()  # now grads hold the mean over all ranks

for index, grad in grads.items():
    assert (grad == (world.size + 1) / 2 * (index + 1)).all()
print(f"rank {world.rank}: mean gradients", *(f"{grads[index][0]:g}" for index in range(len(params))))

dsc.finalize()
