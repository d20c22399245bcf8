"""Communication hooks, on one host and on two."""

import os

import time

import numpy as np
import pytest

import libdsc as dsc
from reducer_ranks import close, compare, everywhere, gradients, iterate, means, reducer_of, same


def hooks_of_functions(world):
    seen = []

    def hook(bucket):
        seen.append((bucket.index, bucket.params, bucket.is_last))
        for gradient in bucket.gradients():
            gradient /= bucket.divisor
        yield bucket.comm.all_reduce(bucket.buffer, async_op=True)
        seen.append(bucket.index)
        bucket.buffer *= 2
        yield bucket.comm.all_reduce(np.zeros(1, np.float32), async_op=True)

    with reducer_of(world, hook=hook, rebuild="never") as reducer:
        grads = gradients(world.rank, 0)
        iterate(reducer, grads)
        close(grads, [2 * m for m in means(world.size, 0)])
        buckets = reducer.buckets
        assert [s for s in seen if isinstance(s, tuple)] == [
            (b, bucket, b == len(buckets) - 1) for b, bucket in enumerate(buckets)
        ]
        assert sorted(s for s in seen if isinstance(s, int)) == list(range(len(buckets)))
        assert reducer.stats()["comm_hook"].endswith("hook")
        reducer.set_hook(None)
        grads = gradients(world.rank, 1)
        iterate(reducer, grads)
        compare(world, grads, means(world.size, 1))


def a_hook_that_raises_ends_the_reducer_everywhere(world):
    def hook(bucket):
        if world.rank == world.size - 1 and bucket.index == 1:
            raise ZeroDivisionError("of\nthe hook, " + "ä" * 1000)
        bucket.buffer /= bucket.divisor
        return bucket.comm.all_reduce(bucket.buffer, async_op=True)

    with reducer_of(world, hook=hook) as reducer:
        world.barrier()
        grads = gradients(world.rank, 0)
        expected = ZeroDivisionError if world.rank == world.size - 1 else dsc.DscError
        with pytest.raises(expected) as told:
            iterate(reducer, grads)
        if world.rank != world.size - 1:
            text = str(told.value)
            assert "hook failed on rank" in text and f"rank {world.size - 1}: " in text, text
            assert "in step 0 of bucket 1: ZeroDivisionError: of the hook, " + "ä" * 20 in text, text
        with pytest.raises((dsc.DscError, ZeroDivisionError)):
            reducer.begin()
    world.barrier()


def built_in_hooks(world):
    n = world.size
    for name, bound in {
        "allreduce": 1e-6,
        "fp16": 2e-3,
        "bf16": 2e-2,
        "fp8": 0.15,
        "fp8(exponent_bits=5, block=16)": 0.3,
        "int8": 0.03,
        "int4(block=8)": 0.4,
        "topk(ratio=1)": 1e-6,
        "bf16(topk(ratio=1))": 2e-2,
        "powersgd": 1e-6,
        "local_sgd(start_iteration=5)": 1e-6,
    }.items():
        with reducer_of(world, hook=name) as reducer:
            for step in range(3):
                grads = gradients(world.rank, step)
                iterate(reducer, grads)
                for got, expected in zip(grads, means(n, step)):
                    assert np.abs(got - expected).max() <= bound * max(1, np.abs(expected).max()), (name, step)
            copies = world.all_gather_object([g.tobytes() for g in grads])
            assert all(copy == copies[0] for copy in copies), name  # the results have the same bits on all ranks
    with pytest.raises(dsc.InvalidArgError, match='did you mean "powersgd"'):
        reducer_of(world, hook="powersdg")
    if n > 1:
        with pytest.raises(dsc.ConfigError, match="the hook is"):
            reducer_of(world, hook="fp16" if world.rank == 0 else "bf16")


def error_feedback_sums_up(world):
    """What a hook leaves out is sent later: with equal gradients the mean over many steps converges."""
    for name, bound in {
        "onebit": 0.3,
        "topk(ratio=0.2)": 0.3,
        "powersgd(start_iteration=0)": 0.3,
        "bf16(powersgd(start_iteration=0))": 0.3,
        "int4(error_feedback=1)": 0.02,  # a single step has an error of 0.1
    }.items():
        params = [np.zeros((8, 10), np.float32), np.zeros(6, np.float32)]
        with dsc.BucketReducer(world, params, hook=name) as reducer:
            total, steps = [np.zeros_like(p, np.float64) for p in params], 60
            own = [np.random.default_rng(world.rank).standard_normal(p.shape).astype(np.float32) for p in params]
            exact = world.all_gather_object(own)
            exact = [sum(np.float64(g[i]) for g in exact) / world.size for i in range(2)]
            for _ in range(steps):
                grads = [g.copy() for g in own]
                iterate(reducer, grads)
                total = [t + g for t, g in zip(total, grads)]
            for t, e in zip(total, exact):
                assert np.abs(t / steps - e).max() < bound * max(1, np.abs(e).max()), name


def powersgd_sends_gradients_that_were_zero(world):
    """A matrix of zeros gives no directions for the next step, so new random columns are drawn."""
    for spec in ("powersgd(start_iteration=0)", "powersgd(start_iteration=0, error_feedback=0)"):
        params = [np.zeros((8, 10), np.float32), np.zeros((9, 7), np.float32)]
        with dsc.BucketReducer(world, params, hook=spec) as reducer:
            for step in range(4):
                grads = [np.full(p.shape, 0 if (i, step) == (0, 1) else 3, np.float32) for i, p in enumerate(params)]
                wanted = [g.copy() for g in grads]
                iterate(reducer, grads)
                for got, expected in zip(grads, wanted):  # the matrices have rank one, so the approximation is exact
                    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def local_sgd_reduces_within_hosts(world):
    """From start_iteration on, gradients are reduced only within a host, or not at all."""
    hosts = world.all_gather_object(os.environ.get("DSC_HOST_ID"))
    here = [rank for rank, host in enumerate(hosts) if host == hosts[world.rank]]
    assert len(here) == world.local_size
    for within_host in (1, 0):
        of = here if within_host else [world.rank]
        with dsc.BucketReducer(world, [np.zeros(5, np.float32)], hook=f"local_sgd(start_iteration=1, within_host={within_host})") as reducer:
            for step in range(3):
                grads = [np.full(5, 2.0 ** world.rank, np.float32)]
                iterate(reducer, grads)
                ranks = of if step else range(world.size)
                np.testing.assert_allclose(grads[0], sum(2.0**r for r in ranks) / len(ranks), rtol=1e-6)


def states_of_hooks_go_on(world):
    params = [np.zeros((8, 10), np.float32), np.zeros(6, np.float32)]

    def step_of(reducer, step):
        random = np.random.default_rng(10 * step + world.rank)
        grads = [random.standard_normal(p.shape).astype(np.float32) for p in params]
        iterate(reducer, grads)
        return grads

    for name in ("onebit", "topk", "powersgd(start_iteration=1)", "int8(error_feedback=1)", "local_sgd(start_iteration=3)"):
        with dsc.BucketReducer(world, params, hook=name, rebuild="never") as reducer:
            for step in range(3):
                step_of(reducer, step)
            state = reducer.save_hook()
            expected = [step_of(reducer, step) for step in (3, 4)]
        with dsc.BucketReducer(world, params, hook=name, rebuild="never") as reducer:
            reducer.load_hook(state)
            for step, wanted in zip((3, 4), expected):
                same(step_of(reducer, step), wanted)
            with pytest.raises(dsc.InvalidArgError, match="checksum is wrong"):
                reducer.load_hook(state[:-1])
            for at in range(16, len(state), 7):
                with pytest.raises(dsc.InvalidArgError, match=f"state of hook .* is damaged: its checksum is wrong"):
                    reducer.load_hook(state[:at] + bytes([state[at] ^ 1]) + state[at + 1 :])
            with pytest.raises(dsc.InvalidArgError, match="has format 3, expected 2"):
                reducer.load_hook(state[:8] + b"\3" + state[9:])
            with pytest.raises(dsc.InvalidArgError, match="does not start with the mark of format 2: .* of an older version"):
                reducer.load_hook(state[16:-8])  # an older format without the header
    with dsc.BucketReducer(world, params, hook="onebit") as reducer:
        with pytest.raises(dsc.InvalidArgError, match="expected a state of hook onebit"):
            reducer.load_hook(state)


def states_go_on_in_rebuilt_buckets(world):
    params = [np.zeros((8, 10), np.float32) for _ in range(4)]

    def step_of(reducer, step):
        random = np.random.default_rng(10 * step + world.rank)
        grads = [random.standard_normal(p.shape).astype(np.float32) for p in params]
        reducer.begin()
        for i in (2, 0, 3, 1):  # the order in which buckets are rebuilt
            reducer.mark_ready(i, grads[i])
        reducer.finish()
        return grads

    for name in ("onebit", "powersgd(start_iteration=0)"):
        options = {"hook": name, "bucket_bytes": 700, "first_bucket_bytes": 700}
        with dsc.BucketReducer(world, params, **options) as reducer:
            first = reducer.buckets
            for step in range(3):
                step_of(reducer, step)
            assert reducer.buckets != first
            state = reducer.save_hook()
            expected = [step_of(reducer, step) for step in (3, 4)]
        with dsc.BucketReducer(world, params, **options) as reducer:
            step_of(reducer, 0)
            reducer.load_hook(state)
            for step, wanted in zip((3, 4), expected):
                same(step_of(reducer, step), wanted)


def hooks_that_have_waited_themselves(world):
    """A hook may yield a work that is already complete, or None. The generator goes on."""

    def hook(bucket):
        work = bucket.comm.all_reduce(bucket.buffer, async_op=True)
        work.wait()
        yield work
        yield None
        bucket.buffer /= bucket.divisor

    with reducer_of(world, hook=hook) as reducer:
        for step in range(2):
            grads = gradients(world.rank, step)
            iterate(reducer, grads)
            close(grads, means(world.size, step))


def hooks_forget_what_is_not_finite(world):
    params = [np.zeros((8, 10), np.float32), np.zeros(6, np.float32)]
    for name in ("powersgd(start_iteration=0)", "topk(ratio=0.1)", "onebit", "int8(error_feedback=1)", "fp8(error_feedback=1)"):
        with dsc.BucketReducer(world, params, hook=name) as reducer:
            for step in range(6):
                grads = [np.random.default_rng(step).standard_normal(p.shape).astype(np.float32) for p in params]
                if step == 2 and world.rank == 0:
                    for grad in grads:
                        grad[...] = np.nan
                iterate(reducer, grads)
                if step == 2:
                    assert not all(np.isfinite(g).all() for g in grads), name
                else:
                    assert all(np.isfinite(g).all() for g in grads), (name, step)


def hooks_that_close_their_reducer_fail_at_once(world):
    """All ranks name the rank whose hook closed the reducer, and no rank waits until the time-out."""
    last = world.size - 1

    def hook(bucket):
        if world.rank == last:
            reducer.close()
        bucket.buffer /= bucket.divisor
        return bucket.comm.all_reduce(bucket.buffer, async_op=True)

    with reducer_of(world, hook=hook) as reducer:
        begin = time.monotonic()
        kind = dsc.ReentrantError if world.rank == last else dsc.CallbackError
        with pytest.raises(kind, match="close: a hook called a function of its own reducer") as told:
            iterate(reducer, gradients(world.rank, 0))
        assert world.rank == last or told.value.ranks == (last,), str(told.value)
        assert time.monotonic() - begin < world.timeout / 2
    world.barrier()


def states_of_other_models_are_refused(world):
    small, large = [np.zeros((4, 5), np.float32)], [np.zeros((40, 50), np.float32)]
    for name in ("topk", "onebit", "powersgd(start_iteration=0)"):
        with dsc.BucketReducer(world, small, hook=name) as reducer:
            iterate(reducer, [np.ones((4, 5), np.float32)])
            state = reducer.save_hook()
        with dsc.BucketReducer(world, large, hook=name) as reducer:
            with pytest.raises(dsc.InvalidArgError, match="other parameters"):
                reducer.load_hook(state)
            iterate(reducer, [np.ones((40, 50), np.float32)])  # the refused state has changed nothing


def states_of_other_sizes_are_refused_that_are_as_long(world):
    """The number of elements is the same after padding, or with the parameters in another order."""
    of, others = [(20, 30), (50,)], ([(20, 30), (51,)], [(50,), (20, 30)])
    for name in ("fp8(error_feedback=1)", "int8(error_feedback=1)", "int4(error_feedback=1)", "onebit", "topk", "powersgd(start_iteration=0)"):
        with dsc.BucketReducer(world, [np.zeros(shape, np.float32) for shape in of], hook=name, rebuild="never") as reducer:
            iterate(reducer, [np.ones(shape, np.float32) for shape in of])
            state = reducer.save_hook()
            reducer.load_hook(state)
        for other in others:
            with dsc.BucketReducer(world, [np.zeros(shape, np.float32) for shape in other], hook=name, rebuild="never") as reducer:
                with pytest.raises(dsc.InvalidArgError, match="belongs to other parameters or other buckets: here bucket 0 has"):
                    reducer.load_hook(state)
                iterate(reducer, [np.ones(shape, np.float32) for shape in other])


def hooks_do_not_call_their_reducer(world):
    seen = []

    def hook(bucket):
        for call in (reducer.finish, reducer.begin, lambda: reducer.mark_unused(0), reducer.close):
            with pytest.raises(dsc.ReentrantError):
                call()
            seen.append(call)
        bucket.buffer /= bucket.divisor
        return bucket.comm.all_reduce(bucket.buffer, async_op=True)

    with reducer_of(world, hook=hook) as reducer:
        grads = gradients(world.rank, 0)
        iterate(reducer, grads)
        close(grads, means(world.size, 0))
        assert seen


def failed_reducers_tell_why(world):
    def hook(bucket):
        raise ValueError("of the hook")

    with reducer_of(world, hook=hook) as reducer:
        world.barrier()
        with pytest.raises((ValueError, dsc.DscError)):
            iterate(reducer, gradients(world.rank, 0))
        with pytest.raises(dsc.DscError):  # an error of the library, not the hook's exception again
            reducer.finish()
        assert "hook" in reducer.stats()["error"]
    world.barrier()


test_hooks_of_functions = everywhere(hooks_of_functions)
test_hook_that_raises = everywhere(a_hook_that_raises_ends_the_reducer_everywhere)
test_built_in_hooks = everywhere(built_in_hooks)
test_error_feedback = everywhere(error_feedback_sums_up)
test_powersgd_of_zeros = everywhere(powersgd_sends_gradients_that_were_zero)
test_local_sgd = everywhere(local_sgd_reduces_within_hosts)
test_hook_states = everywhere(states_of_hooks_go_on)
test_hook_states_rebuilt = everywhere(states_go_on_in_rebuilt_buckets)
test_hooks_that_have_waited = everywhere(hooks_that_have_waited_themselves)
test_nonfinite = everywhere(hooks_forget_what_is_not_finite)
test_hooks_that_close_their_reducer = everywhere(hooks_that_close_their_reducer_fail_at_once)
test_states_of_others = everywhere(states_of_other_models_are_refused)
test_states_of_other_sizes = everywhere(states_of_other_sizes_are_refused_that_are_as_long)
test_reentrant = everywhere(hooks_do_not_call_their_reducer)
test_failed_reducers = everywhere(failed_reducers_tell_why)
