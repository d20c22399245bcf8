#!/usr/bin/env python3
"""Two groups per rank: its pipeline, and the ranks with the same stage in all replicas.

                 stage 0   stage 1
    replica 0    rank 0    rank 1      a row passes on activations
    replica 1    rank 2    rank 3      a column averages gradients

    dscrun -n 4 -- python3 10_groups_2x2.py
"""

import sys

import numpy as np

import libdsc as dsc

STAGES = 2


def members(group):
    """Returns the ranks of a group as ranks of the world."""
    return [group.global_rank(rank) for rank in range(group.size)]


world = dsc.init_distributed()
if world.size % STAGES:
    sys.exit("an even number of ranks, please: dscrun -n 4 -- python3 10_groups_2x2.py")
replica, stage = divmod(world.rank, STAGES)

# Ranks of one color form a group, ordered by key. Errors contain the names.
pipeline = world.split(color=replica, key=stage, name=f"pipeline {replica}")
replicas = world.split(color=stage, key=replica, name=f"stage {stage}")
print(f"rank {world.rank}: stage {stage} of pipeline {members(pipeline)}, replica {replica} of {members(replicas)}")

# Along the row: every stage except the first receives from the stage before, and adds 10.
x = np.array([replica + 1.0])
if stage > 0:
    pipeline.recv(x, stage - 1)
    x += 10
if stage < STAGES - 1:
    pipeline.send(x, stage + 1)

replicas.all_reduce(x, op="avg")  # along the column: the mean over the replicas
assert x[0] == 10 * stage + (replicas.size + 1) / 2
print(f"rank {world.rank}: average over the replicas of stage {stage} is {x[0]:g}")

dsc.finalize()
