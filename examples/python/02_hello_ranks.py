#!/usr/bin/env python3
"""The four basic collectives. With four ranks each of them prints

    rank summed to 6, reduce-scatter 6, all-gather [0, 1, 2, 3], broadcast 4

    dscrun -n 4 -- python3 02_hello_ranks.py
"""

import numpy as np

import libdsc as dsc

world = dsc.init_distributed()

# All-reduce: every rank contributes its number; every rank gets the sum of all numbers.
total = np.array([world.rank])
world.all_reduce(total, op="sum")

# Reduce-scatter: every rank contributes one number for each rank; rank r gets the sum of the numbers for it.
part = np.empty(1, dtype=int)
world.reduce_scatter(part, np.full(world.size, world.rank), op="sum")

# All-gather: every rank contributes its number; every rank gets all numbers, in rank order.
numbers = np.empty(world.size, dtype=int)
world.all_gather(numbers, np.array([world.rank]))

# Broadcast: rank 0 sends the number of ranks to all others.
told = np.array([world.size if world.rank == 0 else -1])
world.broadcast(told, root=0)

print(
    f"rank {world.rank} of {world.size}: rank summed to {total[0]}, reduce-scatter {part[0]}, "
    f"all-gather {numbers.tolist()}, broadcast {told[0]}"
)
dsc.finalize()
