"""A rank is killed between the chunks of a gather.

The other ranks name it, and every chunk is either complete or an error.
"""

import sys

import numpy as np
import pytest
from killed_rank import expect_named, kill_self, others_of, telling

import libdsc as dsc

RANKS, VICTIM, CHUNKS, TURNS = 3, 1, 8, 4
SHAPE = (64, 300)  # the shape of a part; chunks divide its first dimension


def content(rank, turn):
    return np.random.default_rng((rank, turn)).standard_normal(SHAPE).astype(np.float32)


def whole(turn):
    return np.concatenate([content(rank, turn) for rank in range(RANKS)])


def rows_of(chunk):
    """Returns the rows of the whole tensor in a chunk: a range of every rank's part."""
    part = dsc.split_range(SHAPE[0], CHUNKS, chunk)
    return [rank * SHAPE[0] + row for rank in range(RANKS) for row in part]


def gather(world, turn, killing_at):
    """Starts all chunks and then waits for them in order.

    Returns how many completed, and the failure of the first that did not.
    """
    x, out = content(world.rank, turn), np.full((RANKS * SHAPE[0], SHAPE[1]), np.nan, np.float32)
    works = []
    for chunk in range(CHUNKS):
        if chunk == killing_at:
            kill_self()
        works.append(world.tensor_map(x, "gather_reduce", 0, out=out, chunk=(chunk, CHUNKS), async_op=True))
    came, failure = 0, None
    for chunk, work in enumerate(works):
        try:
            work.wait()
        except dsc.DscError as error:
            failure = failure or error
            continue
        assert failure is None, "a chunk came after one that failed"
        assert np.array_equal(out[rows_of(chunk)], whole(turn)[rows_of(chunk)]), "a chunk that came is not whole"
        came += 1
    return came, failure


def child(killing_at):
    world = dsc.init_distributed(init_timeout=30, timeout=20)
    world.barrier()
    for turn in range(TURNS):
        came, failure = gather(world, turn, killing_at if (world.rank, turn) == (VICTIM, TURNS - 1) else None)
        with telling(turn, came):
            if failure is not None:
                raise failure


@pytest.mark.parametrize("killing_at", [0, 3, CHUNKS - 1])
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_killed_rank_is_named_and_chunks_are_whole(hosts, killing_at):
    for turn, came, name, _, text in others_of(VICTIM, __file__, RANKS, hosts, killing_at):
        assert turn == TURNS - 1 and came <= killing_at, (turn, came, text)
        expect_named(VICTIM, name, text)


if __name__ == "__main__":
    child(int(sys.argv[1]))
