#!/usr/bin/env python3
"""Operations in an asyncio program: a work object can be awaited together with anything else in the event loop.

    dscrun -n 4 -- python3 12_event_loop.py
"""

import asyncio

import numpy as np

import libdsc as dsc

COUNT, OPERATIONS = 1 << 16, 8


async def tick(ticks):
    """Stands for other work of the program, such as answering requests, drawing, or writing files."""
    while True:
        ticks.append(1)
        await asyncio.sleep(0.0005)


async def train(world):
    groups = [world.split(0, world.rank, name=f"group {i}") for i in range(2)]
    ticks = []
    other = asyncio.create_task(tick(ticks))
    total = 0.0
    for _ in range(5):
        arrays = [np.full(COUNT, float(world.rank + i)) for i in range(OPERATIONS)]
        # All of them run at the same time, half of them on each group. As in any other call, failures are raised
        # here.
        await asyncio.gather(*(groups[i % 2].all_reduce(x, async_op=True) for i, x in enumerate(arrays)))
        total += sum(x[-1] for x in arrays)
        # If a wait times out, or its task is canceled, the operation continues.
        work = world.barrier(async_op=True)
        try:
            await asyncio.wait_for(work, timeout=0.00001)
        except asyncio.TimeoutError:
            await work
    other.cancel()
    return total, len(ticks)


def run(progress_thread):
    world = dsc.init_distributed(progress_thread=progress_thread)
    total, ticks = asyncio.run(train(world))
    assert total == 5 * sum(world.size * (world.size - 1) / 2 + world.size * i for i in range(OPERATIONS))
    rank = world.rank
    dsc.finalize()
    return rank, total, ticks


# The library's own thread makes the descriptors readable, for any event loop. Without it (progress_thread=False), an
# await asks the library every millisecond. Other event loops then call world.progress().
rank, with_thread, ticks = run(progress_thread=True)
_, without_thread, more_ticks = run(progress_thread=False)
print(
    f"rank {rank}: sums of {with_thread:.0f} with a thread and {without_thread:.0f} without; "
    f"meanwhile the loop had {ticks} and {more_ticks} other turns"
)
