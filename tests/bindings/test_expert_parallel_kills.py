"""A rank is killed in an exchange of tokens.

The other ranks name it, and operations that completed before it died are intact.
"""

import sys
import threading

import numpy as np
import pytest
from killed_rank import expect_named, kill_self, others_of, telling

import libdsc as dsc

RANKS, VICTIM, LAYERS = 3, 1, 4
TOKENS, HIDDEN, CAPACITY = 400, 200, 400  # so large that data is sent in several pieces


def tokens_of(rank, layer):
    return np.random.default_rng((rank, layer)).standard_normal((TOKENS, HIDDEN)).astype(np.float32)


def run(world, plan, layer, killing_at):
    """Runs one layer. The victim dies before its dispatch, in one of many dispatches, or in its combine."""
    tokens, rows = tokens_of(world.rank, layer), np.empty((plan.rows, HIDDEN), np.float32)
    dies = world.rank == VICTIM
    if killing_at == "before" and dies:
        kill_self()
    if killing_at == "dispatch":
        if dies:
            threading.Timer(0.05, kill_self).start()
        while True:
            plan.dispatch(tokens, rows)
    plan.dispatch(tokens, rows)
    if killing_at == "combine" and dies:
        plan.combine(rows, out=tokens, async_op=True)
        kill_self()
    work = plan.combine(rows, out=tokens, async_op=True)
    work.wait()
    assert np.array_equal(tokens, 2 * tokens_of(world.rank, layer)), "what came is not whole"


def child(killing_at):
    world = dsc.init_distributed(init_timeout=30, timeout=20)
    rank = world.rank
    ids = np.random.default_rng(rank).permuted(np.tile(np.arange(RANKS, dtype=np.int32), (TOKENS, 1)), axis=1)[:, :2]
    plan = world.moe_plan(np.ascontiguousarray(ids), RANKS, capacity=CAPACITY, padded=True)
    layer = -1
    with telling(lambda: layer):
        for layer in range(LAYERS):
            run(world, plan, layer, killing_at if layer == LAYERS - 1 else None)
        plan.dispatch(tokens_of(rank, layer))  # this rank's combine may have been completed before the victim died


@pytest.mark.parametrize("killing_at", ["before", "dispatch", "combine"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_killed_rank_is_named(hosts, killing_at):
    for layer, name, _, text in others_of(VICTIM, __file__, RANKS, hosts, killing_at):
        assert layer == LAYERS - 1, (layer, text)
        expect_named(VICTIM, name, text)
        assert "moe_dispatch" in text or "moe_combine" in text or "all_to_all" in text, text


if __name__ == "__main__":
    child(sys.argv[1])
