#!/usr/bin/env python3
"""Megatron-LM's groups with eight ranks: two ranks share each layer (tensor), there are two stages (pipeline), and
there are two copies of the model (data). Seven checks show which ranks form each group, and its purpose.

                           stage 0           stage 1
    copy 0 of the model    ranks 0, 1        ranks 4, 5
    copy 1 of the model    ranks 2, 3        ranks 6, 7

    dscrun -n 8 -- python3 megatron_groups.py
"""

import sys

import numpy as np

import libdsc as dsc
import libdsc.megatron as mpu

SEED = 1234
world = dsc.init_distributed()
if world.size != 8:
    sys.exit(f"eight ranks, please, not {world.size}: dscrun -n 8 -- python3 megatron_groups.py")
rank = world.rank
# Consecutive ranks share a layer; ranks of different stages are farthest apart.
tensor_rank, copy, stage = rank % 2, rank // 2 % 2, rank // 4


def members(group):
    """Returns the ranks of a group as ranks of the world. Each member sends its own rank to the others."""
    gathered = np.empty(group.size, np.int64)
    group.all_gather(gathered, np.array([rank]))
    return gathered.tolist()


def in_tensor_group(value):
    """Returns a number from each rank of the tensor-parallel group."""
    group = mpu.get_tensor_model_parallel_group()
    gathered = np.empty(group.size)
    group.all_gather(gathered, np.array([value]))
    return gathered.tolist()


def tensor_groups():
    assert members(mpu.get_tensor_model_parallel_group()) == [rank - tensor_rank, rank - tensor_rank + 1]
    assert mpu.get_tensor_model_parallel_src_rank() == rank - tensor_rank


def data_groups():
    assert members(mpu.get_data_parallel_group()) == [tensor_rank + 4 * stage, tensor_rank + 4 * stage + 2]
    assert (mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()) == (copy, 2)


def pipelines():
    assert members(mpu.get_pipeline_model_parallel_group()) == [rank % 4, rank % 4 + 4]
    assert mpu.get_pipeline_model_parallel_next_rank() == (rank + 4) % 8


def stages():
    assert mpu.is_pipeline_first_stage() == (rank < 4)
    assert mpu.is_pipeline_last_stage() == (rank >= 4)


def a_sum():
    """Each rank of a layer has a part of every sum, as after a matrix product with divided rows."""
    part = np.full(3, rank, np.float32)
    assert (mpu.reduce_from_tensor_model_parallel_region(part) == 2 * (rank - tensor_rank) + 1).all()


def a_batch():
    """The first rank of a layer loads the samples of its copy of the model. The other ranks know only the names of the
    fields.
    """
    loaded = {"text": np.arange(6).reshape(2, 3) + 100 * copy} if tensor_rank == 0 else None
    batch = mpu.broadcast_data(["text"], loaded, "int64")
    assert batch["text"].tolist() == [[100 * copy, 100 * copy + 1, 100 * copy + 2], [100 * copy + 3, 100 * copy + 4, 100 * copy + 5]]


def seeds():
    """Random numbers for divided activations differ between the ranks of a layer. Those for whole activations are the
    same.
    """
    mpu.model_parallel_cuda_manual_seed(SEED + 100 * stage)
    with mpu.get_rng_tracker().fork() as rng:
        divided = in_tensor_group(rng.random())
    with mpu.get_rng_tracker().fork("data-parallel-rng") as rng:
        whole = in_tensor_group(rng.random())
    assert divided[0] != divided[1] and whole[0] == whole[1]


mpu.initialize_model_parallel(tensor_model_parallel_size=2, pipeline_model_parallel_size=2)
checks = [tensor_groups, data_groups, pipelines, stages, a_sum, a_batch, seeds]
for check in checks:
    check()
print(f"rank {rank}: part {tensor_rank} of stage {stage} in copy {copy} of the model, all {len(checks)} checks hold")
mpu.destroy_model_parallel()
dsc.finalize()
