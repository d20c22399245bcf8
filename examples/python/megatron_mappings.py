#!/usr/bin/env python3
"""Megatron-LM's mappings with eight ranks in four tensor-parallel groups, [0, 1] to [6, 7]. Seven checks show the
results of forward passes and the gradients of backward passes.

    dscrun -n 8 -- python3 megatron_mappings.py
"""

import sys

import numpy as np

import libdsc as dsc
import libdsc.megatron as mpu

world = dsc.init_distributed()
if world.size != 8:
    sys.exit(f"eight ranks, please, not {world.size}: dscrun -n 8 -- python3 megatron_mappings.py")
mpu.initialize_model_parallel(tensor_model_parallel_size=2, pipeline_model_parallel_size=2)
group = mpu.get_tensor_model_parallel_group()
rank, pair = world.rank, [world.rank // 2 * 2, world.rank // 2 * 2 + 1]
own = np.array([float(rank)])


def gradient(mapping, of_output):
    """Returns a gradient as automatic differentiation does: by the same mapping in the other direction."""
    return group.tensor_map(of_output, mapping, direction="backward")


def reduce_forward():
    assert mpu.reduce_from_tensor_model_parallel_region(own) == [sum(pair)]  # 1 in the first group, 13 in the last one


def gather_forward():
    assert mpu.gather_from_tensor_model_parallel_region(own).tolist() == pair  # [0, 1] on rank 1, [6, 7] on rank 7


def scatter_forward():
    assert mpu.scatter_to_tensor_model_parallel_region(np.array([0.0, 1.0])) == [rank % 2]  # even ranks have [0]


def copy_backward():
    assert gradient("copy", own) == [sum(pair)]  # 13 on ranks 6 and 7


def reduce_backward():
    """Forward sums twice, and backward does nothing. On ranks 6 and 7 the loss is 2 (6 * 6 + 7 * 7) = 170."""
    loss = own * own
    for _ in range(2):
        loss = mpu.reduce_from_tensor_model_parallel_region(loss)
    assert loss == [2 * (pair[0] ** 2 + pair[1] ** 2)]
    of_square = gradient("reduce", gradient("reduce", np.ones(1)))
    assert of_square * 2 * own == [2 * rank]  # 12 on rank 6, 14 on rank 7


def scatter_backward():
    assert gradient("scatter", own).tolist() == pair  # [6, 7] on ranks 6 and 7


def gather_backward():
    whole = mpu.gather_from_tensor_model_parallel_region(own)
    assert whole.tolist() == pair and gradient("gather", whole) == own


checks = [reduce_forward, gather_forward, scatter_forward, copy_backward, reduce_backward, scatter_backward, gather_backward]
for check in checks:
    check()
print(f"rank {rank}: group {pair}, sum {sum(pair)}, all {len(checks)} checks hold")
mpu.destroy_model_parallel()
dsc.finalize()
