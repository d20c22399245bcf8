"""Errors of sharded parameters, and the order in which units are gathered ahead."""

import gc
import os
import pathlib
import sys
import time

import numpy as np
import pytest
from conftest import ROOT

import libdsc as dsc
from reducer_ranks import everywhere

sys.path.insert(0, str(ROOT / "tests" / "support"))
import sharded_model as model  # noqa: E402
from repetitions import repetitions  # noqa: E402

SECONDS = 120
KINDS = 12  # closed objects: all stages, with and without parts, finished or not
AT_ONCE_S = 15  # long enough, even on a busy machine, for a call that waits for no rank


def start():
    return dsc.init_distributed(init_timeout=60, timeout=60)


def wrong_options(world, params):
    with pytest.raises(dsc.ConfigError, match="stage is 2 on rank 0 and 3 on rank 1"):
        dsc.Sharded(world, params, stage=2 + world.rank)
    with pytest.raises(dsc.ConfigError, match="units is 0 2 on rank 0 and 0 3 on rank 1"):
        dsc.Sharded(world, params, units=[0, 2 + world.rank])
    with pytest.raises(dsc.MismatchError, match=r"w1 \(index 2\) is f32"):
        dsc.Sharded(world, params[:2] + [np.zeros(9 + world.rank, np.float32)], model.NAMES[:3])
    with pytest.raises(dsc.ConfigError, match='average is "pre" on rank 0 and "post" on rank 1'):
        dsc.Sharded(world, params, average=("pre", "post")[world.rank])
    with pytest.raises(dsc.ConfigError, match='grad_dtype is None on rank 0 and "f32" on rank 1'):
        dsc.Sharded(world, params, grad_dtype=(None, "f32")[world.rank])
    with pytest.raises(dsc.InvalidArgError, match='average is "pytorch", expected "pre", "post" or "none"'):
        dsc.Sharded(world, params, average="pytorch")
    with pytest.raises(dsc.InvalidArgError, match='layout is 9, expected "unit", "megatron", "deepspeed" or "partitioned"'):
        dsc.Sharded(world, params, layout=9)
    with pytest.raises(dsc.InvalidArgError, match=r"shard_size is 3, expected 0 or a divisor of the number of ranks \(2\)"):
        dsc.Sharded(world, params, shard_size=3)
    with pytest.raises(dsc.InvalidArgError, match="max_live_bytes is 100, expected at least 4096"):
        dsc.Sharded(world, params, stage=3, units=model.UNITS, max_live_bytes=100)
    with pytest.raises(dsc.UnsupportedError, match=r"parameter 0: the type of the gradients is i32, expected a floating-point type"):
        dsc.Sharded(world, [np.zeros(4, np.int32)])


def wrong_calls(rank):
    world = start()
    params = model.initial()
    wrong_options(world, params)
    with dsc.Sharded(world, params, model.NAMES, stage=3, units=model.UNITS, max_live_bytes=8192) as sharded:
        with pytest.raises(dsc.StateError, match=r"unit 1 \(w1\), which is not ready; call unshard.. and wait"):
            sharded.param_view(2)
        with pytest.raises(dsc.StateError, match=r"unit 1 \(w1\) is sharded"):
            sharded.wait(1)
        sharded.unshard(0)
        with pytest.raises(dsc.StateError, match=r"unit 0 \(w0\) is already unsharded"):
            sharded.unshard(0)
        sharded.unshard(1)
        with pytest.raises(dsc.StateError, match=r"needs 4096 bytes, but other units use 8192 of at most 8192 .* unit 0 \(w0\), unit 1 \(w1\)"):
            sharded.unshard(2)
        sharded.reshard(1)
        sharded.unshard(2)
        sharded.wait(2)
        for unit in (0, 2):
            sharded.reshard(unit)
        with pytest.raises(dsc.StateError, match="no iteration is open"):
            sharded.mark_ready(0, params[0])
        with pytest.raises(dsc.StateError, match="there are no gradients of a finished iteration"):
            sharded.begin(accumulate=True)
        sharded.begin()
        with pytest.raises(ValueError, match="grad has 31 elements; parameter 0 has 403"):
            sharded.mark_ready(0, params[1])
        for i in range(1, 6):
            sharded.mark_ready(i, params[i])
        with pytest.raises(dsc.StateError, match=r"b2 \(index 5\) was already marked as ready"):
            sharded.mark_ready(5, params[5])
        with pytest.raises(dsc.StateError, match="w0 .index 0.; 2 of 3 units were reduced; the contents of the shards are undefined"):
            sharded.finish()
        sharded.begin()  # all ranks missed the same gradients, so the object still works
        for i in range(6):
            sharded.mark_unused(i)
        sharded.finish()
        with pytest.raises(dsc.StateError, match="expected step_done.. first, or accumulate True"):
            sharded.begin()
        sharded.step_done(changed=False)
        if rank == 0:
            sharded.begin()
            # If the other rank is already in finish(), mark_ready() raises this error.
            with pytest.raises(dsc.MismatchError, match=r"no gradient: w1 \(index 2\)"):
                for i in range(6):
                    sharded.mark_ready(i, params[i])
                sharded.finish()
        else:
            sharded.begin()
            for i in (0, 1, 3, 4, 5):
                sharded.mark_ready(i, params[i])
            with pytest.raises(dsc.StateError, match=r"rank 1: w1 \(index 2\); the sharded parameters are revoked"):
                sharded.finish()
        with pytest.raises(dsc.RevokedError, match="the sharded parameters were revoked"):
            sharded.unshard(0)
    world.all_reduce(np.ones(1))  # the communicator still works
    dsc.finalize()


def test_mistakes_are_named():
    dsc.spawn(wrong_calls, 2, timeout=SECONDS)


def steps_that_differ(world):
    """One rank says that it has changed the parameters, the other ranks say that they have not."""
    last = world.rank == world.size - 1
    for stage, says, next_call in ((1, last, "finish"), (2, not last, "unit"), (3, last, "unit"), (3, not last, "finish")):
        with dsc.Sharded(world, model.initial(), model.NAMES, stage=stage, units=model.UNITS) as sharded:
            for changed in (True, False, says):
                reduce_ones(sharded)
                sharded.step_done(changed=changed)
            world.barrier()
            began = time.monotonic()
            if world.size == 1:
                reduce_ones(sharded)
                continue
            with pytest.raises(dsc.DscError) as told:
                if next_call == "unit":
                    with sharded.unit(0):
                        pass
                reduce_ones(sharded)
            assert isinstance(told.value, (dsc.MismatchError, dsc.RevokedError)), told.value
            assert "step 3 changes nothing" in str(told.value) or "step 3 unchanged" in str(told.value), (stage, told.value)
            assert time.monotonic() - began < 20  # well below the time-out of 60 s
            world.barrier()


def reduce_ones(sharded):
    sharded.begin()
    for i, size in enumerate(model.SIZES):
        sharded.mark_ready(i, np.ones(size, np.float32))
    sharded.finish()


def copies_whose_steps_differ(rank):
    """In hybrid sharding each copy agrees separately."""
    world = start()
    with dsc.Sharded(world, model.initial(), model.NAMES, units=model.UNITS, shard_size=2) as sharded:
        reduce_ones(sharded)
        sharded.step_done(changed=rank < 2)
        with pytest.raises((dsc.MismatchError, dsc.RevokedError), match="step 1 unchanged"):
            reduce_ones(sharded)
    dsc.finalize()


def test_copies_learn_that_their_steps_differ():
    dsc.spawn(copies_whose_steps_differ, 4, timeout=SECONDS)


def wrong_arguments_can_be_put_right(world):
    """A collective call that fails on one rank changes nothing there, and the other ranks wait for the corrected
    call."""
    params, last = model.initial(), world.rank == world.size - 1
    wrong = (
        (lambda: dsc.Sharded(world, params, grad_dtype="f23"), "grad_dtype is 'f23'"),
        (lambda: dsc.Sharded(world, params, layout="units"), 'did you mean "unit"'),
        (lambda: dsc.Sharded(world, params, alone=[9]), r"alone\[0\] is 9; expected 0 to 5"),
        (lambda: dsc.Sharded(world, params, wide_padding="no"), "wide_padding is 'no'; expected True or False"),
        (lambda: dsc.Sharded(world, params, stagge=2), "unexpected keyword"),
    )
    for call, text in wrong if last else ():
        with pytest.raises((TypeError, ValueError), match=text):
            call()
    with dsc.Sharded(world, params, model.NAMES, units=model.UNITS) as sharded:
        reduce_ones(sharded)
        for number, text in ((0, "max_norm is 0, expected more than 0 .infinity is allowed."), (-1.0, "max_norm is -1"), ("1", "expected a number")):
            if last:
                with pytest.raises((TypeError, ValueError), match=text):
                    sharded.clip(number)
        if last:
            with pytest.raises(dsc.InvalidArgError, match="scale is 0, expected a finite number other than 0"):
                sharded.clip(1.0, scale=0)
        assert sharded.clip(1e9) > 1
        if world.size > 1:
            with pytest.raises(dsc.MismatchError, match=r"clip to 1, scale 1.*clip to 2, scale 1"):
                sharded.clip(1 + last)
        world.barrier()


def shards_are_written_in_place(world):
    with dsc.Sharded(world, model.initial(), units=model.UNITS) as sharded:
        for shard in sharded.shards:
            before = shard.params.copy()
            shard.grads[...] = 1
            shard.params -= 0.5 * shard.grads
            shard.grads *= 2
            assert (shard.params == before - 0.5).all() and (shard.grads == 2).all()
            with pytest.raises(AttributeError, match=r"params of a shard cannot be replaced, .*; expected shard.params\[...\] = x"):
                shard.params = before
            with pytest.raises(AttributeError, match="count of a shard cannot be replaced, .*; expected no assignment"):
                shard.count = 3
        sharded.step_done()
        expected = [param - np.float32(0.5) for param in model.initial()]
        for u, unit in enumerate(sharded.units):
            sharded.wait(u)
            model.same([sharded.param_view(i) for i in unit], [expected[i] for i in unit])


test_steps = everywhere(steps_that_differ)
test_put_right = everywhere(wrong_arguments_can_be_put_right)
test_in_place = everywhere(shards_are_written_in_place)


def missing_in_a_copy(rank):
    """Rank 3 leaves out a parameter. Its own copy notices that, and the other copy must not wait for it."""
    world = start()
    with dsc.Sharded(world, model.initial(), model.NAMES, units=model.UNITS, shard_size=2) as sharded:
        sharded.begin()
        world.barrier()
        begin = time.monotonic()
        with pytest.raises(dsc.DscError) as raised:
            for i in range(6):
                if rank != 3 or i != 2:
                    sharded.mark_ready(i, np.ones(model.SIZES[i], np.float32))
            sharded.finish()
        assert "w1 (index 2)" in str(raised.value) and time.monotonic() - begin < AT_ONCE_S, raised.value
        assert isinstance(raised.value, dsc.StateError if rank == 3 else dsc.MismatchError), raised.value
    world.all_reduce(np.ones(1))
    dsc.finalize()


def test_all_copies_learn_what_one_has_found():
    dsc.spawn(missing_in_a_copy, 4, timeout=SECONDS)


def late(rank, told):
    world = dsc.init_distributed(init_timeout=60, timeout=4)
    sharded = dsc.Sharded(world, model.initial(), model.NAMES, units=model.UNITS)
    if rank == 1:
        while not told.exists():
            time.sleep(0.01)
        return
    sharded.begin()
    begin = time.monotonic()
    with pytest.raises(dsc.TimeoutError, match=r"rank 1 .* did not arrive within (\d\d|[4-9])\.\d s"):
        for i in range(6):
            sharded.mark_unused(i)
        sharded.finish()
    assert 3.9 < time.monotonic() - begin < 4 + AT_ONCE_S
    told.touch()


def test_a_rank_that_does_not_come_is_named_in_time(tmp_path):
    dsc.spawn(late, 2, (tmp_path / "told",), timeout=SECONDS)


def other_order(rank):
    world = dsc.init_distributed(init_timeout=60, timeout=20)
    with dsc.Sharded(world, model.initial(), model.NAMES, stage=3, units=model.UNITS) as sharded:
        unit = rank + 1
        sharded.unshard(unit)
        with pytest.raises(dsc.MismatchError, match=r"unit 1 \(w1\), step 0.*unit 2 \(w2\), step 0"):
            sharded.wait(unit)
    dsc.finalize()


def test_ranks_that_unshard_different_units_are_told():
    dsc.spawn(other_order, 2, timeout=SECONDS)


def not_finite(rank, n, shard_size):
    world = start()
    world.nonfinite_check = "fail"
    with dsc.Sharded(world, model.initial(), model.NAMES, units=model.UNITS, shard_size=shard_size) as sharded:
        for bad in (False, True, False):
            sharded.begin()
            for i, size in enumerate(model.SIZES):
                gradient = np.ones(size, np.float32)
                if bad and rank == n - 1 and i == 2:
                    gradient[3, 3] = np.nan
                sharded.mark_ready(i, gradient)
            if bad:
                with pytest.raises(dsc.NonfiniteError, match=rf"unit 1 \(w1\) on rank {n - 1}"):
                    sharded.finish()
                with pytest.raises(dsc.StateError, match="there are no gradients of a finished iteration"):
                    sharded.begin(accumulate=True)
            else:
                sharded.finish()
                assert all((shard.grads[:1] == 1).all() for shard in sharded.shards)
                sharded.step_done(changed=False)
    dsc.finalize()


@pytest.mark.parametrize("n, shard_size", [(2, 0), (4, 2)])
def test_a_gradient_that_is_not_finite_fails_the_iteration_everywhere(n, shard_size):
    dsc.spawn(not_finite, n, args=(n, shard_size), timeout=SECONDS)


def prefetches(rank):
    """The second step gathers ahead in the order of the first step. The statistics count the gathers."""
    world = start()
    with dsc.Sharded(world, model.initial(), model.NAMES, stage=3, units=model.UNITS, prefetch=2) as sharded:
        gathers = lambda: sum(one.count for one in sharded.stats() if one.operation == "all_gather (parameters)")  # noqa: E731
        # The third step uses another order. It drops nothing and gathers what was not gathered ahead.
        for order, expected in (([0, 1, 2], 3 + 2), ([0, 1, 2], 1 + 2), ([2, 1, 0], 1 + 2)):
            before = gathers()
            for unit in order:
                with sharded.unit(unit):
                    pass
            sharded.step_done()
            assert sharded.memory.param_bytes == 3 * 4096  # one unit, and two units that are gathered ahead
            end = time.monotonic() + 20
            while gathers() - before < expected and time.monotonic() < end:
                time.sleep(0.001)
            assert gathers() - before == expected, (order, gathers() - before)
    dsc.finalize()


def test_units_are_gathered_in_the_order_of_the_step_before():
    dsc.spawn(prefetches, 2, timeout=SECONDS)


def closing_is_told_at_once(world):
    """Closing is reported immediately, even though arrays of shards still exist. The arrays stay readable."""
    for stage in (2, 3):
        sharded = dsc.Sharded(world, model.initial(), model.NAMES, stage=stage, units=model.UNITS)
        sharded.unshard(0)
        sharded.wait(0)
        kept = [shard.params for shard in sharded.shards] + [sharded.param_view(0)]
        before = [array.copy() for array in kept]
        leaver = world.size - 1
        world.barrier()
        if world.rank == leaver:
            sharded.close()
            sharded.close()
            with pytest.raises(dsc.BadHandleError, match="begin: the sharded parameters were closed"):
                sharded.begin()
        elif world.size > 1:
            began = time.monotonic()
            with pytest.raises(dsc.PeerLeftError, match=f"rank {leaver}"):
                sharded.begin()
                for i in range(6):
                    sharded.mark_unused(i)
                sharded.finish()
            assert time.monotonic() - began < 20  # well below the time-out of 60 s
        del sharded
        assert [array.tobytes() for array in kept] == [was.tobytes() for was in before]
        for array in kept:
            array[...] = 7
        world.barrier()


test_close = everywhere(closing_is_told_at_once)


def made_and_closed(rank, n):
    """The number of descriptors, the mappings and the memory do not grow, whatever was in progress when an object was
    closed."""
    world = start()
    seen = []
    for number in range(KINDS * repetitions(5, least=2)):
        rules = {"stage": number % 3 + 1, "units": model.UNITS, "shard_size": n // 2 if number % 2 else 0}
        sharded = dsc.Sharded(world, model.initial(), model.NAMES, **rules)
        model.train_sharded(world, sharded, "sgd", steps=2)
        if number % 4 == 0:
            sharded.begin()
            sharded.mark_unused(5)  # an iteration that is never finished
        world.barrier()
        sharded.close()
        del sharded
        gc.collect()
        world.barrier()
        maps = pathlib.Path("/proc/self/maps").read_text().count("\n")
        rss = int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096
        seen.append((len(os.listdir("/proc/self/fd")), maps, rss))
    dsc.finalize()
    return seen


def test_nothing_is_left_of_what_was_closed():
    for seen in dsc.spawn(made_and_closed, 2, args=(2,), timeout=SECONDS):
        (fds, maps, rss), (fds_later, maps_later, rss_later) = seen[KINDS - 1], seen[-1]
        assert fds_later <= fds and maps_later <= maps + 8 and rss_later <= rss + (2 << 20), (seen[KINDS - 1], seen[-1])
