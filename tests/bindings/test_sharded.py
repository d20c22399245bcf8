"""Sharded data parallelism: bits of training, memory, several micro-batches, recorded vectors, clipping."""

import json
import math
import os
import pathlib
import signal
import sys

import numpy as np
import pytest
from conftest import ROOT

import libdsc as dsc

sys.path.insert(0, str(ROOT / "tests" / "support"))
import sharded_model as model  # noqa: E402

SECONDS = 120


def start():
    return dsc.init_distributed(init_timeout=60, timeout=60)


# ---- training ------------------------------------------------------------------------------------------------------


def compare(rank, cases):
    world = start()
    for optimizer, shard_size, options in cases:
        model.compare(world, optimizer, shard_size, **options)
    dsc.finalize()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_training_has_the_bits_of_replicas(n):
    cases = [(optimizer, 0, {"stage": stage}) for optimizer in model.OPTIMIZERS for stage in (1, 2, 3)]
    cases += [("adam", 0, {"stage": 3, "layout": layout}) for layout in ("deepspeed", "partitioned")]
    cases += [("sgd", 0, {"stage": 3, "prefetch": prefetch, "max_live_bytes": 3 * 4096}) for prefetch in (0, 1, 5)]
    dsc.spawn(compare, n, args=(cases,), timeout=SECONDS)


def test_hybrid_shards_have_the_bits_of_sums_of_sums():
    dsc.spawn(compare, 4, args=([("adam", 2, {"stage": stage}) for stage in (1, 2, 3)],), timeout=SECONDS)


def without_progress_thread(rank):
    """Without a progress thread only the waiting calls drive the operations."""
    world = dsc.init_distributed(init_timeout=60, timeout=60, progress_thread=False)
    for stage in (1, 3):
        model.compare(world, "adam", stage=stage)
    dsc.finalize()


def test_no_thread_of_the_library_is_needed():
    dsc.spawn(without_progress_thread, 2, timeout=SECONDS)


def megatron(rank):
    """The buckets are planned, so a layer may be in two of them. Parameters are gathered bucket by bucket."""
    world = start()
    expected = model.replicated(world, "adam")
    with dsc.Sharded(world, model.initial(), model.NAMES, layout="megatron", bucket_elements=500, alone=[2]) as sharded:
        assert len(sharded.units) > 2 and [2] in sharded.units
        rule = model.Adam([shard.count for shard in sharded.shards])
        for step in range(model.STEPS):
            grads = model.all_gradients(model.full_params(sharded), *model.batch(rank, step))
            sharded.begin()
            for i in reversed(range(6)):
                sharded.grad_view(i)[...] = grads[i]
                sharded.mark_ready(i)
            sharded.finish()
            for i, shard in enumerate(sharded.shards):
                rule.step(step + 1, i, shard.params, shard.grads)
            sharded.step_done()
        model.same(model.full_params(sharded), expected)
    dsc.finalize()


def test_buckets_of_megatron_train_alike():
    dsc.spawn(megatron, 3, timeout=SECONDS)


def micro_batches(rank, stage, locally):
    """Adds the gradients of three passes, in the shards or before the reduction.

    They are whole numbers, so both sums are exact.
    """
    world = start()
    params = [np.zeros(size, np.float32) for size in model.SIZES]
    with dsc.Sharded(world, params, stage=stage, average="none", units=model.UNITS) as sharded:
        for step in range(2):
            for micro in range(3):
                if micro == 0 or not locally:
                    sharded.begin(accumulate=micro > 0)
                for i, size in enumerate(model.SIZES):
                    gradient = np.full(size, rank + 10 * micro + 100 * i + step, np.float32)
                    if locally and micro < 2:
                        sharded.accumulate(i, gradient)
                    else:
                        sharded.mark_ready(i, gradient)
                if micro == 2 or not locally:
                    sharded.finish()
            for one in sharded.ranges:
                got = sharded.shards[one.bucket].grads[one.shard_start : one.shard_start + one.count]
                each = sum(r + 10 * m + 100 * one.param + step for r in range(world.size) for m in range(3))
                assert (got == each).all(), (got, each)
            sharded.step_done(changed=False)
    dsc.finalize()


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("locally", [False, True])
def test_gradients_of_micro_batches_are_added(stage, locally):
    dsc.spawn(micro_batches, 3, args=(stage, locally), timeout=SECONDS)


# ---- types -----------------------------------------------------------------------------------------------------------


def bfloat16(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def widen(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def wide_gradients(rank, n):
    world = start()
    values = [bfloat16(np.arange(10) / 8), bfloat16(np.ones(7))]
    with dsc.Sharded(world, values, grad_dtype="f32", average="none", dtype="bf16", stage=3, units=[0, 1]) as sharded:
        assert [shard.grads.dtype for shard in sharded.shards] == [np.float32] * 2
        assert sharded.grad_view(0).dtype == np.float32
        sharded.begin()
        sharded.accumulate(0, bfloat16(np.full(10, 256.0)))  # 257 is not a bfloat16, so the sum must be computed in f32
        sharded.mark_ready(0, np.full(10, 1.0, np.float32))
        sharded.mark_ready(1, bfloat16(np.full(7, 0.5)))
        sharded.finish()
        for one in sharded.ranges:
            got = sharded.shards[one.bucket].grads[one.shard_start : one.shard_start + one.count]
            assert (got == (257.0 * n if one.param == 0 else 0.5 * n)).all()
        with sharded.unit(0) as (view,):
            assert (widen(view.view(np.uint16)) == np.arange(10) / 8).all()
    dsc.finalize()


def test_gradients_of_f32_over_parameters_of_bfloat16():
    dsc.spawn(wide_gradients, 2, args=(2,), timeout=SECONDS)


# ---- recorded vectors of DeepSpeed and Megatron ----------------------------------------------------------------------


def rows(name, **wanted):
    lines = (ROOT / "tests" / "vectors" / f"{name}.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [row for row in found if "_meta" not in row and all(row.get(key) == value for key, value in wanted.items())]


def partition(rank, n):
    world, done = start(), 0
    for row in rows("ds_reduce_scatter_coalesced", n=n):
        params = [np.zeros(numel, np.float32) for numel in row["numels"]]
        with dsc.Sharded(world, params, layout="partitioned", average="post", sync=False) as sharded:
            sharded.begin()
            for i, x in enumerate(row["x"][rank]):
                sharded.mark_ready(i, np.array(x, np.float32))
            sharded.finish()
            parts = {one.param: sharded.shards[one.bucket].grads[: one.count] for one in sharded.ranges}
            for i, expected in enumerate(row["out"][rank]):
                got = parts.get(i, np.zeros(0, np.float32))
                assert got.tobytes() == np.array(expected, np.float32).tobytes(), (row, i, got)
                done += 1
    dsc.finalize()
    return done


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_parts_are_those_of_deepspeed(n):
    tensors = sum(len(row["numels"]) for row in rows("ds_reduce_scatter_coalesced", n=n))
    assert tensors > 0 and dsc.spawn(partition, n, args=(n,), timeout=SECONDS) == [tensors] * n


def sum_halves(rank, n):
    world = start()
    for row in rows("mg_rs_fp32acc", n=n):
        x, y = bfloat16(row["x"][rank]), bfloat16(row["y"][rank])
        rules = {"layout": "unit", "alignment": 1, "average": "none", "dtype": "bf16", "sync": False}
        with dsc.Sharded(world, [np.zeros_like(x)], **rules) as sharded:
            sharded.begin()
            sharded.mark_ready(0, x)
            sharded.finish()
            (shard,) = sharded.shards
            assert shard.grads.view(np.uint16).tobytes() == y.tobytes()
    dsc.finalize()


@pytest.mark.parametrize("n", [2, 4, 8])
def test_bfloat16_is_summed_in_f32_and_rounded_once(n):
    assert rows("mg_rs_fp32acc", n=n)
    dsc.spawn(sum_halves, n, args=(n,), timeout=SECONDS)


def test_buckets_are_those_of_megatron():
    layouts = rows("mg_shard_layout")
    assert len(layouts) == 110
    for row in layouts:
        numels, dp = row["numels"], row["dp"]
        alone = [] if row["shared_embedding"] is None else [0 if row["shared_embedding"] == "first" else len(numels) - 1]
        rules = {"layout": "megatron", "bucket_elements": row["bucket_size"] or 0, "wide_padding": row["pad_high_busbw"]}
        plan = dsc.plan_shards(numels, ["bf16"] * len(numels), dp, alone=alone, **rules)
        ends = np.cumsum([bucket.size for bucket in plan.buckets])
        begins = [0, *ends[:-1]]
        params = [[begins[b] + at, begins[b] + at + numel, b] for b, at, numel in zip(plan.places, plan.starts, numels)]
        assert params == row["params"], row["tag"]
        assert [[begin, end] for begin, end in zip(begins, ends)] == row["buckets"], row["tag"]
        assert [bucket.used for bucket in plan.buckets] == row["numel_unpadded"], row["tag"]


# ---- clipping ---------------------------------------------------------------------------------------------------------


def clip(rank, n, stage, shard_size):
    world = start()
    rng = np.random.default_rng(9)
    grads = [rng.standard_normal(size).astype(np.float32) for size in model.SIZES]
    with dsc.Sharded(world, model.initial(), model.NAMES, stage=stage, shard_size=shard_size, units=model.UNITS) as sharded:
        with pytest.raises(dsc.StateError, match="call finish first"):
            sharded.clip(1.0)
        for limit, scale, bad in ((math.inf, 1, False), (0.5, 1, False), (0.5, 0.25, True), (1e9, 0.25, False), (0.5, -0.5, False)):
            sharded.begin()
            for i in range(6):
                mine = grads[i].copy()
                if bad and rank == n - 1 and i == 3:
                    mine[1] = np.inf
                sharded.mark_ready(i, mine)
            sharded.finish()
            before = [shard.grads.copy() for shard in sharded.shards]
            norm = sharded.clip(limit, scale=scale)
            expected = math.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in grads))
            assert (not math.isfinite(norm)) if bad else math.isclose(norm, abs(scale) * expected, rel_tol=1e-6), norm
            factor = 1.0 if bad else scale * min(1.0, limit / (norm + 1e-6))
            for shard, was in zip(sharded.shards, before):
                assert shard.grads.tobytes() == (was * np.float32(factor)).tobytes(), (limit, scale, bad)
            assert len(set(dsc.all_gather_object(world, repr(norm)))) == 1
            sharded.step_done(changed=False)
    dsc.finalize()


@pytest.mark.parametrize("n, stage, shard_size", [(1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 3, 2)])
def test_gradients_are_clipped_by_the_norm_of_all(n, stage, shard_size):
    dsc.spawn(clip, n, args=(n, stage, shard_size), timeout=SECONDS)


# ---- memory -----------------------------------------------------------------------------------------------------------

LAYERS, WIDTH = 16, 1 << 18  # a layer has 1 MiB


def held_bytes():
    """Returns the memory of this process. Pages that several processes share are counted once."""
    lines = pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10


def measure(rank, n, stage):
    world = start()
    params = [np.zeros(0, np.float32)] * 0
    before = held_bytes()
    world.barrier()
    params = [np.ones(WIDTH, np.float32) for _ in range(LAYERS)]
    rules = {"stage": stage, "units": list(range(LAYERS)), "max_live_bytes": 2 * 4 * WIDTH}
    with dsc.Sharded(world, params, **rules) as sharded:
        del params
        gradient = np.ones(WIDTH, np.float32)
        world.barrier()
        highest = 0
        for _ in range(3):
            for u in range(LAYERS):
                with sharded.unit(u) as (w,):
                    assert w[0] == w[-1]
                    highest = max(highest, held_bytes())
            sharded.begin()
            for u in reversed(range(LAYERS)):
                with sharded.unit(u):
                    pass
                sharded.mark_ready(u, gradient)
                highest = max(highest, held_bytes())
            sharded.finish()
            for shard in sharded.shards:
                shard.params[:] -= shard.grads
            sharded.step_done()
            for u in range(LAYERS):
                sharded.unshard(u), sharded.wait(u), sharded.reshard(u)
        world.barrier()
        memory, held = sharded.memory, held_bytes()
    dsc.finalize()
    return memory, held - before, highest - before


@pytest.mark.parametrize("n", [1, 2, 4])
def test_stage_3_holds_its_part_and_the_stated_working_set(n):
    """Checked by the library's own numbers and by those of the system."""
    model_bytes, unit, page = LAYERS * 4 * WIDTH, 4 * WIDTH, 4096
    slack = 6 << 20  # arrays and code of Python, and stages of the groups; less than stage 2 would need
    for memory, held, highest in dsc.spawn(measure, n, args=(n, 3), timeout=SECONDS):
        assert memory.param_shard_bytes <= model_bytes // n + page and memory.grad_shard_bytes <= model_bytes // n + page
        assert memory.peak_param_bytes <= 2 * unit and memory.peak_grad_bytes <= 2 * unit
        assert memory.param_bytes <= 2 * unit and memory.grad_bytes <= 2 * unit
        assert held <= 2 * model_bytes // n + 4 * unit + unit + slack, (held, n)
        assert highest <= 2 * model_bytes // n + 4 * unit + unit + slack, (highest, n)


@pytest.mark.parametrize("stage, params, grads", [(1, LAYERS, LAYERS), (2, LAYERS, 2)])
def test_earlier_stages_hold_what_they_say(stage, params, grads):
    for memory, _, _ in dsc.spawn(measure, 2, args=(2, stage), timeout=SECONDS):
        assert memory.peak_param_bytes == params * 4 * WIDTH and memory.param_shard_bytes == 0
        assert memory.peak_grad_bytes == grads * 4 * WIDTH
        assert memory.grad_bytes == grads * 4 * WIDTH


def give_back(rank):
    """Units that do not fit into the pool get pages, which reshard() unmaps.

    Reading an array over them ends the process.
    """
    world = start()
    params = [np.ones(WIDTH, np.float32) for _ in range(LAYERS)]
    with dsc.Sharded(world, params, stage=3, units=list(range(LAYERS)), prefetch=0) as sharded:
        del params
        views = []
        for wanted, bound in ((LAYERS, "more"), (0, "less")):
            before = held_bytes()
            for u in range(LAYERS):
                if wanted:
                    sharded.unshard(u), sharded.wait(u)
                    views.append(sharded.param_view(u))
                    assert views[u].all()
                else:
                    sharded.reshard(u)
            change = held_bytes() - before
            expected = (LAYERS - 1) * 4 * WIDTH
            assert change > 0.9 * expected if wanted else change < -0.9 * expected, (bound, change)
            assert sharded.memory.param_bytes == (LAYERS if wanted else 1) * 4 * WIDTH
        if os.fork() == 0:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os._exit(int(views[-1][0]))
        assert os.waitstatus_to_exitcode(os.wait()[1]) == -signal.SIGSEGV
        sharded.begin()
        view = sharded.grad_view(3)
        for u in range(LAYERS):
            view[:] += 0 if u != 3 else 5
            sharded.mark_ready(u, None if u == 3 else np.ones(WIDTH, np.float32))
        sharded.finish()
        assert not view.any() and (sharded.shards[3].grads == 5).all() and (sharded.shards[4].grads == 1).all()
        world.barrier()
    dsc.finalize()


def test_pages_beyond_the_pool_are_given_back():
    dsc.spawn(give_back, 2, timeout=SECONDS)


def padding(rank, stage):
    """The memory of a unit in the pool changes. What was there before must not become part of a sum."""
    world = start()
    sizes = [1000, 5, 900]
    with dsc.Sharded(world, [np.zeros(size, np.float32) for size in sizes], stage=stage, units=[0, 1, 2]) as sharded:
        for order in ([2, 1, 0], [0, 1, 2], [2, 0, 1], [1, 0, 2], [2, 1, 0]):
            sharded.begin()
            for i in order:
                sharded.mark_ready(i, np.full(sizes[i], 7, np.float32))
            sharded.finish()
            for shard in sharded.shards:
                owned = sum(one.count for one in sharded.ranges if one.bucket == shard.bucket)
                assert (shard.grads[:owned] == 7).all() and not shard.grads[owned:].any(), (order, shard)
            sharded.step_done(changed=False)
    dsc.finalize()


@pytest.mark.parametrize("stage", [1, 2])
def test_padding_stays_zero(stage):
    dsc.spawn(padding, 2, args=(stage,), timeout=SECONDS)
