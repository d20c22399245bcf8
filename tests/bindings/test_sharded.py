"""Sharded data parallelism: bits of training, memory, several micro-batches, clipping, checkpoints, and what goes wrong."""

import json
import math
import os
import pathlib
import signal
import sys
import time

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


def megatron(rank):
    """Its buckets are planned, so a layer may be in two of them: parameters are gathered bucket by bucket."""
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
    """Gradients of three passes are added, in the shards or before anything is reduced; whole numbers, so both are exact."""
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
        sharded.accumulate(0, bfloat16(np.full(10, 256.0)))  # 257 is no bfloat16: the sum is made in f32
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


# ---- vectors of DeepSpeed and Megatron --------------------------------------------------------------------------------


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
            sharded.clip_grad_norm(1.0)
        for limit, bad in ((math.inf, False), (0.5, False), (0.5, True), (1e9, False)):
            sharded.begin()
            for i in range(6):
                mine = grads[i].copy()
                if bad and rank == n - 1 and i == 3:
                    mine[1] = np.inf
                sharded.mark_ready(i, mine)
            sharded.finish()
            before = [shard.grads.copy() for shard in sharded.shards]
            norm = sharded.clip_grad_norm(limit)
            expected = math.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in grads))
            assert (not math.isfinite(norm)) if bad else math.isclose(norm, expected, rel_tol=1e-6), norm
            scale = 1.0 if bad else min(1.0, limit / (norm + 1e-6))
            for shard, was in zip(sharded.shards, before):
                assert shard.grads.tobytes() == (was * np.float32(scale)).tobytes(), (limit, bad)
            assert len(set(dsc.all_gather_object(world, repr(norm)))) == 1
            sharded.step_done(changed=False)
    dsc.finalize()


@pytest.mark.parametrize("n, stage, shard_size", [(1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 3, 2)])
def test_gradients_are_clipped_by_the_norm_of_all(n, stage, shard_size):
    dsc.spawn(clip, n, args=(n, stage, shard_size), timeout=SECONDS)


# ---- memory -----------------------------------------------------------------------------------------------------------

LAYERS, WIDTH = 16, 1 << 18  # of 1 MiB each


def held_bytes():
    """Memory of this process, where pages that several share are counted once."""
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
    """By the library's own count, and by that of the system."""
    model_bytes, unit, page = LAYERS * 4 * WIDTH, 4 * WIDTH, 4096
    slack = 6 << 20  # arrays and code of Python, stages of the groups; less than stage 2 would take
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
    """Units beyond the pool take pages, which are gone after reshard(); an array over them ends a process that reads it."""
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
    """Units change their places in the pool, and what was there before must not be summed."""
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


# ---- checkpoints ------------------------------------------------------------------------------------------------------


def first_half(rank, folder, options):
    world = start()
    with dsc.Sharded(world, model.initial(), model.NAMES, **options) as sharded:
        rule = model.train_sharded(world, sharded, "adam", steps=5)
        sharded.save(folder, rule.state)
        params = model.full_params(sharded)
        state = {name: gathered(world, sharded, arrays) for name, arrays in rule.state.items()}
    dsc.finalize()
    return params, state


def gathered(world, sharded, arrays):
    """State of all elements by parameter, from the shards of all ranks."""
    full = [np.full(math.prod(size), np.nan, np.float32) for size in model.SIZES]
    mine = [(one.param, one.param_start, arrays[one.bucket][one.shard_start : one.shard_start + one.count]) for one in sharded.ranges]
    for of_rank in dsc.all_gather_object(world, mine):
        for param, begin, part in of_rank:
            full[param][begin : begin + part.size] = part
    return full


def second_half(rank, folder, options):
    world = start()
    empty = [np.zeros(size, np.float32) for size in model.SIZES]
    with dsc.Sharded(world, empty, model.NAMES, sync=False, **options) as sharded:
        state = sharded.load(folder)
        params = model.full_params(sharded)
        state = {name: gathered(world, sharded, arrays) for name, arrays in state.items()}
    dsc.finalize()
    return params, state


@pytest.mark.parametrize(
    "n, saved, m, loaded",
    [
        (4, {"stage": 3, "units": model.UNITS}, 2, {"stage": 3, "units": model.UNITS}),
        (2, {"stage": 1, "units": model.UNITS}, 3, {"stage": 2, "layout": "deepspeed"}),
        (3, {"stage": 2, "layout": "partitioned", "units": model.UNITS}, 4, {"stage": 3, "units": [0, 3], "shard_size": 2}),
        (4, {"stage": 3, "units": model.UNITS, "shard_size": 2}, 1, {"stage": 2, "layout": "deepspeed", "bucket_elements": 300}),
    ],
)
def test_a_checkpoint_is_read_by_another_number_of_ranks(tmp_path, n, saved, m, loaded):
    before = dsc.spawn(first_half, n, args=(str(tmp_path), saved), timeout=SECONDS)[0]
    after = dsc.spawn(second_half, m, args=(str(tmp_path), loaded), timeout=SECONDS)
    for params, state in after:
        model.same(params, before[0])
        assert sorted(state) == ["first", "second"]
        for name in state:
            model.same(state[name], before[1][name])
    assert len(list(tmp_path.iterdir())) == saved.get("shard_size", n)


def read_wrongly(rank, folder):
    world = start()
    with dsc.Sharded(world, model.initial(), model.NAMES) as sharded:
        with pytest.raises(FileNotFoundError, match="has no file shard-"):
            sharded.load(pathlib.Path(folder) / "none")
        with pytest.raises(ValueError, match="has arrays of .* elements; expected"):
            sharded.save(folder, {"first": [np.zeros(3, np.float32)]})
        with pytest.raises(ValueError, match="name 'params'"):
            sharded.save(folder, {"params": []})
        sharded.save(folder)
        world.barrier()
        sharded.load(folder)
        names = [name if name != "w1" else "v1" for name in model.NAMES]
        with dsc.Sharded(world, model.initial(), names) as other, pytest.raises(ValueError, match="names 'w1'; expected 'v1'"):
            other.load(folder)
        world.barrier()
        path = pathlib.Path(folder) / "shard-00001-of-00002.safetensors"
        if rank == 0:
            path.write_bytes(b"\x10\0\0\0\0\0\0\0" + b"{}" * 8)
        world.barrier()
        with pytest.raises(ValueError, match="is no shard of libdsc"):
            sharded.load(folder)
        world.barrier()
        if rank == 0:
            os.remove(path)
        world.barrier()
        with pytest.raises(ValueError, match="has 1 shards; expected 2"):
            sharded.load(folder)
    dsc.finalize()


def test_checkpoints_that_do_not_fit_are_named(tmp_path):
    dsc.spawn(read_wrongly, 2, args=(str(tmp_path),), timeout=SECONDS)


def test_copies_cover_every_element_once():
    rng = np.random.default_rng(5)
    for _ in range(60):
        numels = [int(numel) for numel in rng.integers(0, 60, rng.integers(1, 9))]
        types = [str(rng.choice(["f32", "bf16"])) for _ in numels]
        pick = lambda: {"layout": str(rng.choice(["unit", "megatron", "deepspeed", "partitioned"])),  # noqa: E731
                        "bucket_elements": int(rng.integers(0, 80)), "alignment": int(rng.integers(1, 9))}  # fmt: skip
        old, new, n, m = pick(), pick(), int(rng.integers(1, 6)), int(rng.integers(1, 6))
        source, target = dsc.plan_shards(numels, types, n, **old), dsc.plan_shards(numels, types, m, **new)
        want, got = [fill(plan, numels) for plan in (source, target)], [np.full(b.size, -1) for b in target.buckets]
        for r in range(m):
            for copy in dsc.shard_copies(numels, types, n, old, m, new, r):
                begin = copy.from_shard * source.buckets[copy.from_bucket].size // n + copy.from_start
                end = r * target.buckets[copy.to_bucket].size // m + copy.to_start
                place = got[copy.to_bucket][end : end + copy.count]
                assert (place == -1).all() and copy.count > 0
                place[:] = want[0][copy.from_bucket][begin : begin + copy.count]
        for expected, found in zip(want[1], got):
            assert (found == expected).all(), (numels, old, new)


def fill(plan, numels):
    """Buckets in which every element has a number of its own, and padding -1."""
    buckets, at = [np.full(bucket.size, -1) for bucket in plan.buckets], 0
    for b, begin, numel in zip(plan.places, plan.starts, numels):
        buckets[b][begin : begin + numel] = np.arange(at, at + numel)
        at += numel
    return buckets


# ---- what goes wrong --------------------------------------------------------------------------------------------------


def wrong_calls(rank):
    world = start()
    params = model.initial()
    with pytest.raises(dsc.ConfigError, match="stage is 2 on rank 0 and 3 on rank 1"):
        dsc.Sharded(world, params, stage=2 + rank)
    with pytest.raises(dsc.ConfigError, match="unit_starts is 0 2 on rank 0 and 0 3 on rank 1"):
        dsc.Sharded(world, params, units=[0, 2 + rank])
    with pytest.raises(dsc.MismatchError, match=r"w1 \(index 2\) is f32"):
        dsc.Sharded(world, params[:2] + [np.zeros(9 + rank, np.float32)], model.NAMES[:3])
    with pytest.raises(dsc.InvalidArgError, match="shard_size is 3, expected 0 or a divisor of the 2 ranks"):
        dsc.Sharded(world, params, shard_size=3)
    with pytest.raises(dsc.InvalidArgError, match="max_live_bytes is 100, expected at least the 4096"):
        dsc.Sharded(world, params, stage=3, units=model.UNITS, max_live_bytes=100)
    with pytest.raises(dsc.UnsupportedError, match=r"parameter 0: gradients of i32, expected a floating-point type"):
        dsc.Sharded(world, [np.zeros(4, np.int32)])
    with dsc.Sharded(world, params, model.NAMES, stage=3, units=model.UNITS, max_live_bytes=8192) as sharded:
        with pytest.raises(dsc.StateError, match=r"unit 1 \(w1\), which is not there: call unshard and wait"):
            sharded.param_view(2)
        with pytest.raises(dsc.StateError, match=r"unit 1 \(w1\) is not unsharded"):
            sharded.wait(1)
        sharded.unshard(0)
        with pytest.raises(dsc.StateError, match=r"unit 0 \(w0\) is unsharded already"):
            sharded.unshard(0)
        sharded.unshard(1)
        with pytest.raises(dsc.StateError, match=r"needs 4096 bytes, but 8192 of at most 8192 .* unit 0 \(w0\), unit 1 \(w1\)"):
            sharded.unshard(2)
        sharded.reshard(1)
        sharded.unshard(2)
        sharded.wait(2)
        for unit in (0, 2):
            sharded.reshard(unit)
        with pytest.raises(dsc.StateError, match="no iteration runs"):
            sharded.mark_ready(0, params[0])
        with pytest.raises(dsc.StateError, match="no finished iteration has left gradients"):
            sharded.begin(accumulate=True)
        sharded.begin()
        with pytest.raises(ValueError, match="grad has 31 elements; parameter 0 has 403"):
            sharded.mark_ready(0, params[1])
        for i in range(1, 6):
            sharded.mark_ready(i, params[i])
        with pytest.raises(dsc.StateError, match=r"b2 \(index 5\) has been marked as ready twice"):
            sharded.mark_ready(5, params[5])
        with pytest.raises(dsc.StateError, match="w0 .index 0.; 2 of 3 units were reduced; the shards hold nothing of use"):
            sharded.finish()
        sharded.begin()  # all ranks missed the same, so it goes on
        for i in range(6):
            sharded.mark_unused(i)
        sharded.finish()
        with pytest.raises(dsc.StateError, match="expected step_done, or accumulate 1"):
            sharded.begin()
        sharded.step_done(changed=False)
        if rank == 0:
            sharded.begin()
            for i in range(6):
                sharded.mark_ready(i, params[i])
            with pytest.raises(dsc.MismatchError, match=r"no gradient: w1 \(index 2\)"):
                sharded.finish()
        else:
            sharded.begin()
            for i in (0, 1, 3, 4, 5):
                sharded.mark_ready(i, params[i])
            with pytest.raises(dsc.StateError, match=r"rank 1: w1 \(index 2\); the sharded parameters are revoked"):
                sharded.finish()
        with pytest.raises(dsc.RevokedError, match="the sharded parameters were revoked"):
            sharded.unshard(0)
    world.all_reduce(np.ones(1))  # the communicator goes on
    dsc.finalize()


def test_mistakes_are_named():
    dsc.spawn(wrong_calls, 2, timeout=SECONDS)


def missing_in_a_copy(rank):
    """Rank 3 leaves out a parameter; its own copy finds that, and the other one must not wait for it."""
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
        assert "w1 (index 2)" in str(raised.value) and time.monotonic() - begin < 15, raised.value
        assert isinstance(raised.value, dsc.StateError if rank == 3 else dsc.MismatchError), raised.value
    world.all_reduce(np.ones(1))
    dsc.finalize()


def test_all_copies_learn_what_one_has_found():
    dsc.spawn(missing_in_a_copy, 4, timeout=SECONDS)


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
                with pytest.raises(dsc.StateError, match="no finished iteration has left gradients"):
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
    """The second step gathers ahead what the first one has used next; statistics count the gathers."""
    world = start()
    with dsc.Sharded(world, model.initial(), model.NAMES, stage=3, units=model.UNITS, prefetch=2) as sharded:
        gathers = lambda: sum(one.count for one in sharded.stats() if one.operation == "all_gather (parameters)")  # noqa: E731
        # The third step takes another course: it drops nothing, and gathers what was not ahead.
        for order, expected in (([0, 1, 2], 3 + 2), ([0, 1, 2], 1 + 2), ([2, 1, 0], 1 + 2)):
            before = gathers()
            for unit in order:
                with sharded.unit(unit):
                    pass
            sharded.step_done()
            assert sharded.memory.param_bytes == 3 * 4096  # one unit, and two that are gathered ahead
            end = time.monotonic() + 20
            while gathers() - before < expected and time.monotonic() < end:
                time.sleep(0.001)
            assert gathers() - before == expected, (order, gathers() - before)
    dsc.finalize()


def test_units_are_gathered_in_the_order_of_the_step_before():
    dsc.spawn(prefetches, 2, timeout=SECONDS)
