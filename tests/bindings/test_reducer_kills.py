"""A rank is killed while reducers join, run hooks, rebuild buckets, clip or gather sparse rows.

The other ranks name it.
"""

import os
import random
import sys
import threading

import numpy as np
import pytest
from conftest import ROOT
from killed_rank import kill_self, others_of, telling

import libdsc as dsc

sys.path.insert(0, str(ROOT / "tests" / "support"))
from repetitions import repetitions  # noqa: E402

RANKS, VICTIM = 4, 2
SIZES = [(40, 30), (30,), (7, 5), (900,)]
POINTS = ("join", "shadow", "hook", "rebuild", "finish", "clip", "buffers", "sparse")


def gradients(rank, step):
    random_of = np.random.default_rng(100 * step + rank)
    return [random_of.standard_normal(size).astype(np.float32) for size in SIZES]


class Victim:
    """Kills its own process at the chosen point."""

    def __init__(self, rank, point):
        self.is_it, self.point = rank == VICTIM, point

    def here(self, point, step):
        if self.is_it and point == self.point and step == 2:
            kill_self()

    def in_a_while(self, seconds):
        if self.is_it:
            threading.Timer(seconds, kill_self).start()


def work(world, victim):
    """Runs iterations of all kinds until a rank is missing."""
    params = [np.zeros(size, np.float32) for size in SIZES]
    buffer = np.zeros(10, np.float32)

    def hook(bucket):
        bucket.buffer /= bucket.divisor
        victim.here("hook", step if bucket.index == 1 else 0)
        yield bucket.comm.all_reduce(bucket.buffer, async_op=True)
        # the other ranks are about to agree on the rebuilt buckets
        victim.here("rebuild", 2 if step == 0 and bucket.is_last else 0)

    for turn in range(1000):
        plain = dsc.BucketReducer(world, params, bucket_bytes=2000, first_bucket_bytes=100, buffers=[buffer])
        sparse = dsc.BucketReducer(world, params, sparse=[0], find_unused=True)
        hooked = dsc.BucketReducer(world, params, bucket_bytes=2000, first_bucket_bytes=100, hook=hook if turn % 2 == 0 else "powersgd(start_iteration=1)")
        if victim.point == "at any time" and turn == 0:
            victim.in_a_while(random.Random(os.getpid()).random() * 0.05)
        with dsc.Join([plain, hooked], params):
            steps = 3 if victim.point != "shadow" or world.rank != 0 else 2
            for step in range(steps):
                victim.here("buffers", step)
                plain.sync_buffers()
                victim.here("join", step)
                run(plain, gradients(world.rank, step), victim, step)
                victim.here("shadow", step)
                run(hooked, gradients(world.rank, step), victim, 0)
        for step in range(3):
            grads = gradients(world.rank, step)
            run(plain, grads, victim, 0)
            victim.here("clip", step)
            plain.clip(1.0)
            sparse.begin()
            victim.here("sparse", step)
            sparse.mark_sparse(0, [world.rank], np.ones((1, 30), np.float32))
            sparse.finish()
        for reducer in (plain, sparse, hooked):
            reducer.close()


def run(reducer, grads, victim, step):
    reducer.begin()
    for i in reversed(range(len(grads))):
        reducer.mark_ready(i, grads[i])
    victim.here("finish", step)
    reducer.finish()


def child(point):
    world = dsc.init_distributed(init_timeout=30, timeout=20)
    victim = Victim(world.rank, point)
    world.barrier()
    with telling():
        work(world, victim)


@pytest.mark.parametrize("point", [*POINTS, *["at any time"] * repetitions(1, least=1)])
@pytest.mark.parametrize("hosts", [1, 2])
def test_the_others_name_the_killed_rank(point, hosts):
    for name, found, text in others_of(VICTIM, __file__, RANKS, hosts, point):
        assert name in ("PeerDeadError", "RevokedError"), (name, text)
        assert f"rank {VICTIM}" in text or VICTIM in found, (name, found, text)


if __name__ == "__main__":
    child(sys.argv[1])
