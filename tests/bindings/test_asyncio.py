"""await on works: many at the same time, canceled, failed; with the library's progress thread and without it."""

import asyncio
import os

import numpy as np
import pytest

import libdsc as dsc

SECONDS = 60
MANY = 100
LONG = 20  # the limit for a wait that should be short


def ranks(n, body, progress_thread):
    return dsc.spawn(_in_world, n, (body, progress_thread), timeout=SECONDS)


def _in_world(rank, body, progress_thread):
    world = dsc.init_distributed(init_timeout=30, timeout=30, progress_thread=progress_thread)
    assert world.progress_thread is progress_thread
    result = asyncio.run(asyncio.wait_for(body(world), SECONDS))
    dsc.finalize()
    return result


@pytest.fixture(params=[True, False], ids=["thread", "no_thread"])
def progress_thread(request):
    return request.param


def descriptors():
    return len(os.listdir("/proc/self/fd"))


async def awaits_many(world):
    groups = [world.split(0) for _ in range(4)]
    before = descriptors()
    for _ in range(2):
        arrays = [np.full(500, world.rank + i, np.float64) for i in range(MANY)]
        # groups may be used in a different order on each rank
        order = range(MANY) if world.rank else reversed(range(MANY))
        works = {}
        for group in range(4):
            for i in range(group, MANY, 4):
                works[i] = groups[group].all_reduce(arrays[i], async_op=True)
        await asyncio.gather(*(works[i] for i in order))
        assert [x[-1] for x in arrays] == [1.0 + 2 * i for i in range(MANY)]
    assert descriptors() == before
    return "good"


def test_many_at_once(progress_thread):
    assert ranks(2, awaits_many, progress_thread) == ["good"] * 2


async def awaits_one_often(world):
    x = np.full(3, 1.0)
    if world.rank == 1:
        await asyncio.sleep(0.05)
    work = world.all_reduce(x, async_op=True)

    async def wait():
        await work
        return x[0]

    assert await asyncio.gather(*(wait() for _ in range(10))) == [2.0] * 10
    await work  # a second time
    return x[2]


def test_one_work_awaited_by_many(progress_thread):
    assert ranks(2, awaits_one_often, progress_thread) == [2.0] * 2


async def gives_up(world):
    world.barrier()  # after this the package has opened everything that it opens only once
    loop, before = asyncio.get_running_loop(), descriptors()
    x = np.zeros(3)
    if world.rank == 0:
        work = world.recv(x, 1, async_op=True)
        task = loop.create_task(work._wait_async())
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(work, 0.02)
        assert not work.test()
        assert descriptors() <= before + 1  # the descriptor of the work, which exists until the work completes
        await loop.run_in_executor(None, world.barrier)
        await work
        assert x[1] == 5
        dropped = world.recv(x, 1, async_op=True)
        task = loop.create_task(dropped._wait_async())
        await asyncio.sleep(0.01)
        task.cancel()
        del dropped, task  # the operation goes on, driven by the progress thread or by the barrier below
        await loop.run_in_executor(None, world.barrier)
    else:
        await loop.run_in_executor(None, world.barrier)
        world.send(np.full(3, 5.0), 0)
        sent = world.send(np.full(3, 6.0), 0, async_op=True)
        await loop.run_in_executor(None, world.barrier)
        await sent
    assert descriptors() <= before + 1
    return x[2]


def test_cancelled_and_timed_out(progress_thread):
    assert ranks(2, gives_up, progress_thread)[0] == 6.0


async def fails(world):
    group = world.split(0, name="doomed")
    if world.rank == 0:
        works = [group.barrier(async_op=True) for _ in range(3)]
        waits = asyncio.gather(*works, return_exceptions=True)
        await asyncio.sleep(0.01)
        world.barrier()
        for failure in await asyncio.wait_for(waits, LONG):
            assert isinstance(failure, dsc.RevokedError), failure
            assert failure.group == "doomed" and failure.rank == 1 and failure.op == "barrier"
        with pytest.raises(dsc.RevokedError):
            await works[0]
    else:
        world.barrier()
        group.abort()
    late = world.split(0, name="late", timeout=0.1)
    if world.rank == 0:
        with pytest.raises(dsc.TimeoutError, match="did not arrive"):
            await asyncio.wait_for(late.barrier(async_op=True), LONG)
    world.barrier()
    return "good"


def test_failures_are_raised(progress_thread):
    assert ranks(2, fails, progress_thread) == ["good"] * 2


async def progresses(world):
    x = np.arange(200_000.0)
    if world.rank == 0:
        work = world.recv(x, 1, async_op=True)
        while not world.progress(0.5):
            pass
        assert work.test() and x[7] == 14.0
        assert world.progress() and world.progress(1.5)
    else:
        world.send(2 * x, 0)
    world.close()
    with pytest.raises(dsc.BadHandleError, match="closed"):
        world.progress()
    dsc.init_distributed(rank=0, world_size=1, job_id=f"end-{os.getpid()}")
    return "good"


def test_progress_by_hand(progress_thread):
    assert ranks(2, progresses, progress_thread) == ["good"] * 2
