#!/usr/bin/env python3
"""Groups: split() divides the world by color, create_group() takes a list of ranks.

    dscrun -n 4 -- python3 04_groups.py
"""

import numpy as np

import libdsc as dsc


def sum_over(group, value):
    """Adds up a number over a group."""
    x = np.array([value])
    group.all_reduce(x, op="sum")
    return x[0]


world = dsc.init_distributed()

# Ranks of one color form a group: here the even ranks and the odd ranks.
half = world.split(color=world.rank % 2, key=world.rank)
kind = "odd" if world.rank % 2 else "even"
print(
    f"rank {world.rank}: number {half.rank} of {half.size} {kind} ranks, which sum to {sum_over(half, world.rank)}"
)

# All ranks of the parent make this call with the same list. The order of the list is the order in the group.
ends = world.create_group([world.size - 1, 0] if world.size > 1 else [0])
if ends is not None:  # ranks that are not listed get None
    first = ends.global_rank(0)
    assert first == world.size - 1
    print(
        f"rank {world.rank}: in the group of both ends, whose first is rank {first}; "
        f"sum {sum_over(ends, world.rank)}"
    )

dsc.finalize()
