"""A rank is killed in the middle of a ring pass. The other ranks get its number, on one host and on two."""

import sys

import numpy as np
import pytest
from killed_rank import expect_named, kill_self, others_of, telling

import libdsc as dsc

RANKS, VICTIM, TURNS = 4, 1, 3


def go_around(world, ring, has_gradients, killing_at):
    """Runs one pass in which this rank is killed after a step.

    A rank that needs nothing more from the killed rank completes the pass and gets the error from the barrier.
    """
    block = np.full(50_000, world.rank, np.float32)
    grad = np.zeros_like(block)
    steps = ring.backward(block, grad) if has_gradients else ring(block)
    for step, (source, shown, *place) in enumerate(steps):
        assert (shown == source).all(), "another block"
        if place:
            place[0][:] = 1
        if step == killing_at:
            kill_self()
    world.barrier()
    assert not has_gradients or (grad == RANKS).all()


def child(has_gradients, killing_at):
    world = dsc.init_distributed(init_timeout=30, timeout=20)
    ring = dsc.Ring(world, 200_000, 200_000)
    for turn in range(TURNS):
        at = killing_at if (world.rank, turn) == (VICTIM, TURNS - 1) else None
        with telling(turn):
            go_around(world, ring, has_gradients, at)


@pytest.mark.parametrize("has_gradients", [0, 1])
@pytest.mark.parametrize("hosts, killing_at", [(1, 0), (1, 2), (2, 1)])
def test_a_killed_rank_is_named(hosts, has_gradients, killing_at):
    for turn, name, _, text in others_of(VICTIM, __file__, RANKS, hosts, has_gradients, killing_at):
        assert turn == TURNS - 1, (turn, text)
        expect_named(VICTIM, name, text)


if __name__ == "__main__":
    child(*map(int, sys.argv[1:]))
