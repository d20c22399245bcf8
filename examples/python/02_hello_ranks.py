#!/usr/bin/env python3
"""The four basic collectives. With four ranks each of them prints

    rank summed to 6, reduce-scatter 6, all-gather [0, 1, 2, 3], broadcast 4

    dscrun -n 4 -- python3 02_hello_ranks.py
"""

import numpy as np

import libdsc as dsc

world = dsc.init_distributed()

# Every rank gives its number; every rank gets the sum of all.
total = np.array([world.rank])
world.all_reduce(total, op="sum")

# Every rank gives one number for each rank; rank r gets the sum of those meant for it.
part = np.empty(1, dtype=int)
world.reduce_scatter(part, np.full(world.size, world.rank), op="sum")

# Every rank gives its number; every rank gets all of them, in rank order.
numbers = np.empty(world.size, dtype=int)
world.all_gather(numbers, np.array([world.rank]))

# Rank 0 tells all the others how many they are.
told = np.array([world.size if world.rank == 0 else -1])
world.broadcast(told, root=0)

print(
    f"rank {world.rank} of {world.size}: rank summed to {total[0]}, reduce-scatter {part[0]}, "
    f"all-gather {numbers.tolist()}, broadcast {told[0]}"
)
dsc.finalize()
