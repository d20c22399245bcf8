"""Ranks with different numbers of batches, on one host and on two."""

import threading

import numpy as np
import pytest

import libdsc as dsc
from reducer_ranks import SECONDS, SIZES, close, compare, everywhere, gradients, iterate, means, on_rank, reducer_of


def ranks_with_fewer_batches(world):
    """Rank r has r + 1 batches. One of the two reducers has unused parameters and buffers, the other one has a hook."""
    n, params = world.size, [np.full(size, world.rank, np.float32) for size in SIZES]
    buffer = np.zeros(2, np.float32)
    with reducer_of(world, find_unused=True, buffers=[buffer]) as first, reducer_of(world, hook="bf16") as second:
        with dsc.Join([first, second], params) as join:
            for step in range(world.rank + 1):
                buffer[...] = world.rank
                first.sync_buffers()
                assert (buffer == step).all(), buffer  # the value of the lowest rank that still has batches
                grads = gradients(world.rank, step)
                first.begin()
                for i in (0, 2, 4):
                    first.mark_ready(i, grads[i])
                first.finish()
                active = range(step, n)
                expected = [sum(np.float32(1 / n) * gradients(r, step)[i] for r in active) for i in range(len(SIZES))]
                close([grads[i] for i in (0, 2, 4)], [expected[i] for i in (0, 2, 4)])
                assert [i for i, _ in first.unused()] == [1, 3]
                grads = gradients(world.rank, step)
                iterate(second, grads)
                close(grads, expected, 3e-2)
        assert join.last_rank == n - 1 and all((p == n - 1).all() for p in params)
        grads = gradients(world.rank, 7)
        iterate(second, grads)  # all ranks reduce again, without a join
        close(grads, means(n, 7), 3e-2)


def joins_divide_by_who_is_there(world):
    n = world.size
    with reducer_of(world) as reducer:
        with dsc.Join(reducer, divide_by_initial_world_size=False):
            for step in range(world.rank + 1):
                grads = gradients(world.rank, step)
                iterate(reducer, grads)
                there = range(step, n)
                expected = [
                    sum(np.float32(1 / len(there)) * gradients(r, step)[i] for r in there) for i in range(len(SIZES))
                ]
                close(grads, expected)


def joins_that_end_all_ranks_early(world):
    n = world.size
    with reducer_of(world) as reducer:
        join = dsc.Join(reducer, throw_on_early_termination=True)
        steps = 0
        try:
            with join:
                for step in range(2 + (world.rank > 0)):
                    iterate(reducer, gradients(world.rank, step))
                    steps += 1
        except dsc.StateError as error:
            assert n > 1 and "rank 0 has no more batches" in str(error)
        else:
            assert n == 1
        assert steps == 2 + (n == 1 and world.rank > 0)
        grads = gradients(world.rank, 9)
        iterate(reducer, grads)  # the communicator still works
        compare(world, grads, means(n, 9))
        with dsc.Join(reducer) as again:
            with pytest.raises(dsc.StateError, match="belongs to a join"):
                dsc.Join(reducer)
            iterate(reducer, gradients(world.rank, 1))
        assert again.last_rank == n - 1


def clips_under_a_join(world):
    with reducer_of(world) as reducer:
        with dsc.Join(reducer):
            for step in range(world.rank + 1):
                grads = gradients(world.rank, step)
                iterate(reducer, grads)
                whole = np.concatenate(grads).astype(np.float64)
                assert reducer.clip(0.5) == pytest.approx(np.sqrt((whole**2).sum()), rel=1e-6)
                assert np.sqrt((np.concatenate(grads).astype(np.float64) ** 2).sum()) == pytest.approx(0.5, rel=1e-4)


def refusals_under_a_join(world):
    n = world.size
    with reducer_of(world) as reducer, reducer_of(world, average="post") as post:
        with pytest.raises(dsc.UnsupportedError, match="average post"):
            dsc.Join(post, divide_by_initial_world_size=False)
        with dsc.Join(reducer):
            for step in range(world.rank + 1):
                with pytest.raises(dsc.StateError, match="belongs to a join"):
                    reducer.set_hook("bf16")
                with pytest.raises(dsc.StateError, match="no buffers"):
                    reducer.sync_buffers()
                iterate(reducer, gradients(world.rank, step))
        grads = gradients(world.rank, 9)
        iterate(reducer, grads)
        compare(world, grads, means(n, 9))
    if n > 1:
        turned = world.split(0, -world.rank, name="turned")
        with reducer_of(turned) as reducer:
            with pytest.raises(dsc.InvalidArgError, match="as its rank"):
                join_over(world, reducer)


def a_reducer_that_is_not_ready_on_one_rank(world):
    """All ranks get the error, and no rank waits for the others."""
    with reducer_of(world) as reducer:
        grads = gradients(world.rank, 0)
        if world.rank == world.size - 1:
            reducer.begin()
        with pytest.raises(dsc.StateError, match=f"rank {world.size - 1}: .*(inside an iteration|not finished|begin)"):
            dsc.Join(reducer)
        if world.rank != world.size - 1:
            reducer.begin()
        for i in reversed(range(len(grads))):
            reducer.mark_ready(i, grads[i])
        reducer.finish()
        compare(world, grads, means(world.size, 0))
        with dsc.Join(reducer):
            iterate(reducer, gradients(world.rank, 1))


def join_over(world, reducer):
    """Makes a join over another communicator than the reducer's."""
    reducer._world, own = world, reducer._world
    try:
        return dsc.Join(reducer)
    finally:
        reducer._world = own


def joins_outlive_gradients_that_are_not_finite(world):
    n = world.size
    world.nonfinite_check = "fail"
    with reducer_of(world) as reducer:
        with dsc.Join(reducer):
            for step in range(world.rank + 1):
                grads = gradients(world.rank, step)
                if step == n - 1:  # only the last rank still has a batch
                    grads[1][0] = np.nan
                    with pytest.raises(dsc.NonfiniteError):
                        iterate(reducer, grads)
                else:
                    iterate(reducer, grads)
        grads = gradients(world.rank, 9)
        iterate(reducer, grads)
        close(grads, means(n, 9))


def closing_a_reducer_ends_a_begin_that_waits(world):
    if world.size == 1:
        return  # with one rank begin() does not wait
    with reducer_of(world) as reducer:
        join = dsc.Join(reducer)
        if world.rank == 0:
            timer = threading.Timer(0.3, reducer.close)
            timer.start()
            with pytest.raises(dsc.DscError):
                reducer.begin()
            timer.join()
            world.barrier()
        else:
            world.barrier()
            with pytest.raises(dsc.DscError, match="rank 0"):
                join.finish()


def rank_0_without_batches_keeps_the_order_of_buckets(world):
    """Rank 0 proposes the order of the rebuilt buckets although it has no batches: the gradients that are ready first
    are reduced first."""
    grads = [np.ones(1000, np.float32) for _ in range(6)]
    with dsc.BucketReducer(world, grads, bucket_bytes=6000, first_bucket_bytes=6000) as reducer:
        with dsc.Join(reducer):
            for _ in range(0 if world.rank == 0 else 3):
                iterate(reducer, grads)
        alone = world.size == 1
        assert [sorted(bucket) for bucket in reducer.buckets] == [[4, 5], [2, 3], [0, 1]], reducer.buckets
        assert reducer.rebuilds == (0 if alone else 1)


test_join = everywhere(ranks_with_fewer_batches)
test_join_order = everywhere(rank_0_without_batches_keeps_the_order_of_buckets)
test_join_divisor = everywhere(joins_divide_by_who_is_there)
test_join_close = everywhere(closing_a_reducer_ends_a_begin_that_waits)
test_join_early_end = everywhere(joins_that_end_all_ranks_early)
test_join_clip = everywhere(clips_under_a_join)
test_join_refusals = everywhere(refusals_under_a_join)
test_join_not_ready = everywhere(a_reducer_that_is_not_ready_on_one_rank)


@pytest.mark.parametrize("n", [1, 3])
def test_join_nonfinite(n):  # between hosts this check does not exist
    for found in dsc.spawn(on_rank, n, args=(n, 0, __name__, joins_outlive_gradients_that_are_not_finite.__name__), timeout=SECONDS):
        assert found is None
