"""Continuing after a failure: agree(), shrink() and missing.

Ranks are threads, and a rank that leaves simulates a death.
"""

import os
import threading
import time

import numpy as np
import pytest

import libdsc as dsc

SECONDS = 60


def on_ranks(n, body):
    """Runs body(world) on n threads, each of which is a rank. Returns the results."""
    results, errors = [None] * n, []

    def rank(r):
        try:
            world = dsc.init_distributed(
                rank=r, world_size=n, rank_per_thread=True, job_id=f"recovery-{os.getpid()}", timeout=30, init_timeout=30
            )
            results[r] = body(world)
            dsc.finalize()
        except BaseException as error:  # the main thread raises it again
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
    return results


def agrees(world):
    everybody, somebody = world.agree(True), world.agree(world.rank != 1)
    flags = world.agree(0b110 if world.rank else 0b011)
    assert type(everybody) is bool and type(flags) is int and world.missing == []
    return everybody, somebody, flags, world.agree(-1)


def test_agree():
    assert on_ranks(3, agrees) == [(True, False, 0b010, -1)] * 3


def shrinks(world):
    shared = world.empty(10_000, "float32")
    group = world.split(0)
    if world.rank == 1:
        group.close()
        world.barrier()
        return None
    with pytest.raises(dsc.PeerLeftError):
        group.barrier()
    small = group.shrink(name="small", timeout=12)
    assert group.missing == [1] and small.name == "small"
    group.close()
    shared[:] = world.rank
    small.all_reduce(shared)
    again = small.shrink()
    assert again.name == "small/shrunk2" and small.missing == []
    world.barrier()
    result = small.size, small.rank, [small.global_rank(r) for r in range(small.size)], shared[0], shared[-1]
    small.finalize()
    return result


def test_shrink():
    assert on_ranks(4, shrinks) == [(3, 0, [0, 2, 3], 5, 5), None, (3, 1, [0, 2, 3], 5, 5), (3, 2, [0, 2, 3], 5, 5)]


def is_late(world):
    world.barrier()
    if world.rank == 2:
        while world.error() is None:  # waits until the other ranks have given up
            time.sleep(0.01)
    else:
        world.set_timeout(4)  # enough time for the other rank that joins
        with pytest.raises(dsc.TimeoutError, match="rank 2") as caught:
            world.agree(True)
        assert caught.value.ranks == (2,) and caught.value.rank == 2 and world.missing == [2]
        assert caught.value.op == "agree" and caught.value.group == "world"
        world.set_timeout(30)
    return world.agree(True)


def test_a_late_rank_is_named():
    assert on_ranks(3, is_late) == [True] * 3


started = threading.Barrier(2)


def ends_together(world):
    started.wait(SECONDS)  # no rank may abort while another rank is still starting
    world.abort()
    small = world.shrink()
    total = np.ones(1)
    small.all_reduce(total)
    return total[0]  # finalize() follows and waits for the other rank


def test_finalize_after_shrink():
    for _ in range(3):
        assert on_ranks(2, ends_together) == [2.0, 2.0]


def begins_anew(rank, early):
    world = dsc.init_distributed(timeout=SECONDS)
    if rank == early:
        world.barrier()  # the other rank has started, too
        world.abort()
    else:
        with pytest.raises(dsc.RevokedError):
            while True:
                world.barrier()
        time.sleep(0.3)  # the old world still exists when the other rank asks for the new one
    dsc.finalize()
    world = dsc.init_distributed(timeout=SECONDS, init_timeout=SECONDS)
    world.barrier()
    dsc.finalize()


@pytest.mark.parametrize("early", [0, 1])
def test_a_new_world_after_a_failed_one(early):
    dsc.spawn(begins_anew, 2, (early,), timeout=SECONDS)
