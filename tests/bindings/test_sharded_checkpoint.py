"""Checkpoints of shards: loading with another number of ranks or another layout, and the copies that checkpoints
consist of."""

import math
import os
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import pytest
from conftest import ROOT

import libdsc as dsc
from reducer_ranks import everywhere

sys.path.insert(0, str(ROOT / "tests" / "support"))
import sharded_model as model  # noqa: E402
from repetitions import repetitions  # noqa: E402

SECONDS = 120


def start():
    return dsc.init_distributed(init_timeout=60, timeout=60)


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
    """Returns the state of all elements by parameter, collected from the shards of all ranks."""
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
        with pytest.raises(FileNotFoundError, match="contains no file named shard-"):
            sharded.load(pathlib.Path(folder) / "none")
        with pytest.raises(ValueError, match="has arrays of .* elements; expected"):
            sharded.save(folder, {"first": [np.zeros(3, np.float32)]})
        with pytest.raises(ValueError, match="name 'params'"):
            sharded.save(folder, {"params": []})
        sharded.save(folder)
        world.barrier()
        sharded.load(folder)
        names = [name if name != "w1" else "v1" for name in model.NAMES]
        with dsc.Sharded(world, model.initial(), names) as other, pytest.raises(ValueError, match="the name 'w1'; expected 'v1'"):
            other.load(folder)
        world.barrier()
        path = pathlib.Path(folder) / "shard-00001-of-00002.safetensors"
        if rank == 0:
            path.write_bytes(b"\x10\0\0\0\0\0\0\0" + b"{}" * 8)
        world.barrier()
        with pytest.raises(ValueError, match="is not a shard of libdsc"):
            sharded.load(folder)
        world.barrier()
        if rank == 0:
            os.remove(path)
        world.barrier()
        with pytest.raises(ValueError, match="has 1 of 2 shards; missing: shard-00001-of-00002.safetensors"):
            sharded.load(folder)
        sharded.save(folder)
        world.barrier()
        before = path.read_bytes()
        world.barrier()
        sharded.save(folder)
        world.barrier()
        if rank == 0:
            path.write_bytes(before)  # as if rank 1 had died in the second save
        world.barrier()
        with pytest.raises(ValueError, match="come from different saves"):
            sharded.load(folder)
    dsc.finalize()


def state_of_several_types(world):
    """The state of each bucket is loaded in the type that was saved.

    If a rank refuses to save, all ranks get the error.
    """
    params = [np.ones(40, np.float32), np.ones(24, np.float16), np.ones(16, np.float64)]
    with tempfile.TemporaryDirectory() as own:
        folder = world.broadcast_object(own)
        with dsc.Sharded(world, params, units=[0, 1, 2]) as sharded:
            state = {"first": [np.full_like(shard.params, 2 + b) for b, shard in enumerate(sharded.shards)]}
            if world.size > 1:
                wrong = state if world.rank == 0 else {"first": []}
                with pytest.raises((ValueError, dsc.InvalidArgError), match=r"arrays of \[\] elements"):
                    sharded.save(folder, wrong)
                assert not os.listdir(folder)
            sharded.save(folder, state)
            world.barrier()
            loaded = sharded.load(folder)["first"]
            assert [one.dtype for one in loaded] == [one.dtype for one in state["first"]]
            for b, (one, saved) in enumerate(zip(loaded, state["first"])):
                held = sum(part.count for part in sharded.ranges if part.bucket == b)
                assert (one[:held] == saved[:held]).all(), (b, one)
        world.barrier()


def read_wrongly_on_one_rank(world):
    """All ranks get the error, and no rank has loaded anything."""
    with tempfile.TemporaryDirectory() as own:
        folder = world.broadcast_object(own)
        with dsc.Sharded(world, model.initial(), model.NAMES, units=model.UNITS) as sharded:
            sharded.save(folder, {"first": [np.full(shard.count, 7, np.float32) for shard in sharded.shards]})
            world.barrier()
        zeros = [np.zeros(size, np.float32) for size in model.SIZES]
        with dsc.Sharded(world, zeros, model.NAMES, units=model.UNITS) as sharded:
            last = world.size - 1
            if world.rank == last:
                with pytest.raises(FileNotFoundError, match="contains no file named shard-"):
                    sharded.load(pathlib.Path(folder) / "none")
                broken = shutil.copytree(folder, pathlib.Path(own) / "broken")
                path = broken / f"shard-00000-of-{world.size:05}.safetensors"
                path.write_bytes(path.read_bytes()[:-100])
                with pytest.raises(ValueError, match="shard-00000-of-.* bytes"):
                    sharded.load(broken)
            else:
                for why in ("FileNotFoundError: .*contains no file named shard-", "ValueError: .*shard-00000-of-.* bytes"):
                    with pytest.raises(dsc.InvalidArgError, match=f"load: rank {last} cannot read the checkpoint.*: {why}") as told:
                        sharded.load(folder)
                    assert told.value.rank == last
            assert not any(shard.params.any() for shard in sharded.shards)
            state = sharded.load(folder)
            model.same(model.full_params(sharded), model.initial())
            first = np.concatenate(state["first"])
            assert np.isin(first, (0, 7)).all() and first.any()  # padding is 0
        world.barrier()


test_read_wrongly_on_one_rank = everywhere(read_wrongly_on_one_rank)
test_types_of_state = everywhere(state_of_several_types)


def test_checkpoints_that_do_not_fit_are_named(tmp_path):
    dsc.spawn(read_wrongly, 2, args=(str(tmp_path),), timeout=SECONDS)


def test_copies_cover_every_element_once():
    rng = np.random.default_rng(5)
    for _ in range(repetitions(60, least=10)):
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
    """Fills buckets with a different number in each element, and -1 in the padding."""
    buckets, at = [np.full(bucket.size, -1) for bucket in plan.buckets], 0
    for b, begin, numel in zip(plan.places, plan.starts, numels):
        buckets[b][begin : begin + numel] = np.arange(at, at + numel)
        at += numel
    return buckets
