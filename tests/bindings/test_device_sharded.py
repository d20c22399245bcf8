"""Sharded parameters on a GPU: streams, views, checkpoints and errors. Uses the drivers of test_device.py."""

import threading

import numpy as np
import pytest
from device_arrays import BFLOAT, DLPack, Interface, Stream, View, copy_on
from test_device import ranks

import libdsc as dsc

SHAPES = [(3, 5), (7,), (1000,), (2, 2)]
UNITS = [0, 2, 3]
STEPS = 3


def initial(rank):
    return [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 17 + 100 * rank for shape in SHAPES]


def gradient(rank, step, i):
    """Returns whole numbers, whose sums are exact."""
    return (np.arange(np.prod(SHAPES[i]), dtype=np.float32).reshape(SHAPES[i]) + 3 * i + 5 * rank) % 7 - step


def host_step(rank, step, sharded):
    sharded.begin()
    for i in reversed(range(len(SHAPES))):
        sharded.mark_ready(i, gradient(rank, step, i))
    sharded.finish()
    norm = sharded.clip(10)
    for shard in sharded.shards:
        shard.params[:] -= shard.grads
    sharded.step_done()
    return norm


def device_step(rank, step, sharded, stream):
    """The gradients are written on a stream that is held until all calls have returned. Only clip() waits."""
    go = threading.Event()
    grads = [Interface(np.full(shape, np.nan, np.float32)) for shape in SHAPES]
    stream.hold(go)
    sharded.begin(stream=stream)
    for i in reversed(range(len(SHAPES))):
        grads[i].write(gradient(rank, step, i))  # this write uses the default stream
        sharded.mark_ready(i, grads[i], stream=stream)
    sharded.finish(stream=stream)
    go.set()
    norm = sharded.clip(10, stream=stream)
    stream.synchronize()
    for shard in sharded.shards:
        params, grads = View(shard.params), View(shard.grads)
        params.write(params.read() - grads.read())
    sharded.step_done(stream=stream)
    return norm


def full(sharded, stream):
    found = []
    for unit in range(len(sharded.units)):
        with sharded.unit(unit, stream=stream) as arrays:
            stream.synchronize()
            assert all(array.device == 0 or array.device == sharded._world.device for array in arrays)
            found += [View(array).read() for array in arrays]
    return found


def trains(world, stage):
    stream = Stream()
    on_host = dsc.Sharded(world, initial(world.rank), stage=stage, units=UNITS)
    on_device = dsc.Sharded(world, [Interface(x) for x in initial(world.rank)], stage=stage, units=UNITS)
    with on_host, on_device:
        for step in range(STEPS):
            norms = host_step(world.rank, step, on_host), device_step(world.rank, step, on_device, stream)
            assert abs(norms[0] - norms[1]) <= 1e-12 * norms[0]
            expected = []
            for unit in range(len(UNITS)):
                with on_host.unit(unit) as arrays:
                    expected += [array.copy() for array in arrays]
            for got, wanted in zip(full(on_device, stream), expected):
                assert got.shape == wanted.shape and got.tobytes() == wanted.tobytes()
        held = on_device.memory
        assert (held.param_shard_bytes > 0) == (stage == 3)
        assert held.grad_shard_bytes == on_host.memory.grad_shard_bytes
    return "same bits"


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_training_has_the_bits_of_host_memory(stage):
    assert ranks(trains, stage) == ["same bits"] * 2


class Held:
    """A stream that waits for another stream until the end of a `with` statement."""

    def __init__(self):
        self.stream, self.other, self._go = Stream(), Stream(), threading.Event()

    def __enter__(self):
        self.stream.hold(self._go)
        return self

    def __exit__(self, *_):
        self._go.set()
        self.stream.synchronize()
        self.other.synchronize()


def numbers(value, n=64):
    return Interface(np.full(n, value, np.float32))


def gradients_in_order(world):
    """Gradients, shards and zeroing are delayed on a stream. All calls must still see them in order."""
    late, grads, kept = numbers(3), [numbers(np.nan), numbers(5)], numbers(0, 32)
    with dsc.Sharded(world, [numbers(1), numbers(2)], stage=1, units=[0, 1], average="none") as sharded:
        shard, view = sharded.shards[0].grads, sharded.grad_view(0)
        with Held() as held:
            sharded.begin(stream=held.other)
            copy_on(grads[0], late, held.stream)
            sharded.mark_ready(0, grads[0], stream=held.stream)
            sharded.mark_ready(1, grads[1], stream=held.other)
            sharded.finish(stream=held.other)
        assert View(shard).read().tolist() == [6.0] * 32
        with Held() as held:
            copy_on(kept, shard, held.stream)
            sharded.begin(accumulate=True, stream=held.stream)
            for i in (1, 0):
                sharded.mark_ready(i, grads[1], stream=held.other)
            sharded.finish(stream=held.other)
        assert (kept.read().tolist(), View(shard).read().tolist()) == ([6.0] * 32, [16.0] * 32)
        sharded.step_done(changed=False)
        with Held() as held:
            sharded.begin(stream=held.other)
            copy_on(view, late, held.stream)
            sharded.mark_ready(0, stream=held.stream)
            sharded.mark_ready(1, grads[1], stream=held.other)
            sharded.finish(stream=held.stream)
            copy_on(kept, shard, held.stream)
            sharded.step_done(changed=False, stream=held.stream)
            sharded.begin(stream=held.other)
            copy_on(view, grads[1], held.other)
            sharded.mark_ready(0, stream=held.other)
            sharded.mark_ready(1, grads[1], stream=held.other)
            sharded.finish(stream=held.other)
        assert (kept.read().tolist(), View(shard).read().tolist()) == ([6.0] * 32, [10.0] * 32)
    return "in order"


def norms_in_order(world):
    """Gradients are replaced late on a stream. Scaling must read the new values."""
    n = 1 << 20
    with dsc.Sharded(world, [numbers(1, n)], average="none") as sharded:
        shard, new, kept, stream = sharded.shards[0].grads, numbers(2, n // 2), numbers(0, n // 2), Stream()
        sharded.begin()
        sharded.mark_ready(0, numbers(0, n))
        sharded.finish()
        go = threading.Event()
        stream.hold(go)
        copy_on(shard, new, stream)
        threading.Timer(0.2, go.set).start()
        norm = sharded.clip(1.0, stream=stream)
        copy_on(kept, shard, stream)
        stream.synchronize()
        assert norm == 2048.0
        assert kept.read().tolist() == [np.float32(np.float32(2) * np.float32(1 / (norm + 1e-6)))] * (n // 2)
    return "in order"


def parameters_in_order(world, stage):
    """Shards are written late, and parameters are read late from memory that another unit uses next."""
    new, kept = numbers(7, 32), numbers(0)
    with dsc.Sharded(world, [numbers(1), numbers(2)], stage=stage, units=[0, 1], prefetch=0) as sharded:
        sharded.begin()
        sharded.mark_unused(0)
        sharded.mark_unused(1)
        sharded.finish()
        with Held() as held:
            copy_on(sharded.shards[0].params, new, held.stream)
            sharded.step_done(stream=held.stream)
            sharded.unshard(0)
            sharded.wait(0, stream=held.other)
            copy_on(kept, sharded.param_view(0), held.other)
        assert kept.read().tolist() == [7.0] * 64
        with Held() as held:
            copy_on(kept, sharded.param_view(0), held.stream)
            sharded.reshard(0, stream=held.stream)
            sharded.unshard(1)
            sharded.wait(1, stream=held.other)
        assert (kept.read().tolist(), View(sharded.param_view(1)).read().tolist()) == ([7.0] * 64, [2.0] * 64)
    return "in order"


@pytest.mark.parametrize("body", [gradients_in_order, norms_in_order])
def test_work_on_gradients_is_in_the_order_of_streams(body):
    assert ranks(body) == ["in order"] * 2


@pytest.mark.parametrize("stage", [2, 3])
def test_work_on_parameters_is_in_the_order_of_streams(stage):
    assert ranks(parameters_in_order, stage) == ["in order"] * 2


def checkpoints(world, folder):
    """Saves from the GPU, including optimizer arrays on it.

    Other layouts load that on the GPU and on the host. Then the other way round.
    """
    params = initial(0)
    with dsc.Sharded(world, [Interface(x) for x in params], stage=2, units=UNITS) as sharded:
        moments = [Interface(View(shard.params).read() * 2) for shard in sharded.shards]
        sharded.save(folder / "device", {"moment": moments})
    zeros = [np.zeros(shape, np.float32) for shape in SHAPES]
    world.barrier()
    with dsc.Sharded(world, zeros, stage=1) as sharded:
        state = sharded.load(folder / "device")
        assert [x.tobytes() for x in state["moment"]] == [(shard.params * 2).tobytes() for shard in sharded.shards]
        with sharded.unit(0) as arrays:
            assert [x.tolist() for x in arrays] == [x.tolist() for x in params]
        sharded.save(folder / "host", {"moment": state["moment"]})
    world.barrier()
    stream = Stream()
    with dsc.Sharded(world, [Interface(x) for x in zeros], stage=3, units=UNITS) as sharded:
        state = sharded.load(folder / "host")
        assert [x.tolist() for x in full(sharded, stream)] == [x.tolist() for x in params]
        assert [x.tolist() for x in state["moment"]] == [(View(s.params).read() * 2).tolist() for s in sharded.shards]
    return "read"


def test_checkpoints_of_both_kinds_of_memory(tmp_path):
    assert ranks(checkpoints, tmp_path) == ["read"] * 2


def of_bfloat(world):
    """Parameters of 16 bits, with gradients of 16 or 32 bits."""
    params = np.array([0x3F80, 0x4000, 0x4040], np.uint16)  # the numbers 1, 2, 3
    with dsc.Sharded(world, [DLPack(params, world.device, element=BFLOAT)], stage=3, grad_dtype="f32") as sharded:
        with sharded.unit(0) as (array,):
            assert View(array).read().tolist() == params.tolist()
        for grad in (DLPack(params, world.device, element=BFLOAT), Interface(np.array([1, 2, 3], np.float32))):
            sharded.begin()
            sharded.mark_ready(0, grad)
            sharded.finish()
            parts = View(sharded.shards[0].grads).read()
            sharded.step_done(changed=False)
            start, expected = sharded.shards[0].start, [1.0, 2.0, 3.0] + [0.0] * 29
            assert parts.tolist() == expected[start : start + len(parts)]
    return "converted"


def test_bfloat_parameters_with_gradients_of_f32():
    assert ranks(of_bfloat) == ["converted"] * 2


def mistakes(world):
    params = [Interface(x) for x in initial(0)]
    with pytest.raises(dsc.DscError, match=r"parameter 1: device is -1, expected"):
        dsc.Sharded(world, [params[0], initial(0)[1]])
    with dsc.Sharded(world, params, units=UNITS) as sharded:
        sharded.begin()
        with pytest.raises(ValueError, match="grad is in memory of the host; expected memory of a GPU"):
            sharded.mark_ready(0, initial(0)[0])
        with pytest.raises(dsc.UnsupportedError, match="in stages 2 and 3, full gradients in device memory have no lasting address"):
            sharded.grad_view(0)
        for i in range(len(SHAPES)):
            sharded.mark_unused(i)
        sharded.finish()
        sharded.step_done(changed=False)
        world.nonfinite_check = "fail"
        with pytest.raises(dsc.UnsupportedError, match="not checked for NaNs"):
            sharded.begin()
        world.nonfinite_check = "off"
        sharded.begin()
    with dsc.Sharded(world, initial(0)) as sharded:
        sharded.begin()
        with pytest.raises(ValueError, match="grad is in memory of a GPU; expected memory of the host"):
            sharded.mark_ready(0, params[0])
        with pytest.raises(dsc.UnsupportedError, match="expected None: the parameters are in host memory"):
            sharded.mark_ready(0, initial(0)[0], stream=Stream())
    return "told"


def test_mistakes_are_told():
    assert ranks(mistakes) == ["told"] * 2
