"""The ring of blocks with arrays on a GPU, in the order of its streams. Uses the drivers of test_device.py."""

import sys
import threading
import time
import types

import numpy as np
import pytest

import libdsc as dsc
from device_arrays import BFLOAT, DLPack, Interface, Stream, View, copy_on
from test_device import ranks


def block_of(rank, shape, kind=np.float32):
    return (np.arange(np.prod(shape)).reshape(shape) % 50 + 100 * rank).astype(kind)


def passes(world):
    """Runs forward and backward with equal, unequal and empty blocks on a stream, without waiting on the host."""
    stream, n, rank = Stream(), world.size, world.rank
    with dsc.Ring(world, 8 * 3 * 4, 8 * 3 * 8) as ring:
        for parts in (None, [3, 5], [0, 8], [0, 0]):
            shapes = [(part, 3) for part in parts or [4] * n]
            own = Interface(block_of(rank, shapes[rank]))
            came = [Interface(np.zeros(shape, np.float32)) for shape in shapes]
            for source, block in ring(own, parts, stream=stream):
                assert block.shape == shapes[source] and block.device == world.device
                copy_on(came[source], block, stream)
            sums = Interface(np.full(shapes[rank], np.nan))
            added = [Interface(np.full(shape, 10.0**rank)) for shape in shapes]
            for source, _, grad in ring.backward(own, sums, parts, stream=stream):
                assert grad.dtype == np.float64
                copy_on(grad, added[source], stream)
            assert ring.synchronize()
            for source in range(n):
                assert np.array_equal(came[source].read(stream.number), block_of(source, shapes[source]))
            assert (sums.read(stream.number) == 11).all()
    return True


def test_passes():
    assert ranks(passes) == [True] * 2


def same_bits(world):
    """Sums of random numbers have the same bits as on the host, in every floating-point type."""
    stream, random = Stream(), np.random.default_rng(world.rank)
    with dsc.Ring(world, 8 * 999, 8 * 999) as ring:
        for kind, name in ((np.float32, None), (np.float64, None), (np.float16, None), (np.uint16, "bf16")):
            found = []
            added = [random.standard_normal(999) for _ in range(world.size)]
            added = [(x.astype(np.float32).view(np.uint32) >> 16 if name else x).astype(kind) for x in added]
            for make in (np.array, Interface):
                block, sums, more = make(added[0]), make(np.zeros(999, kind)), [make(x) for x in added]
                options = {"dtype": name, "grad_dtype": name, "stream": None if make is np.array else stream}
                for source, _, grad in ring.backward(block, sums, **options):
                    if make is np.array:
                        grad[:] = more[source]
                    else:
                        copy_on(grad, more[source], stream)
                found.append(sums.copy() if make is np.array else sums.read(stream.number))
            assert found[0].any() and found[0].tobytes() == found[1].tobytes(), kind
    return True


def test_sums_have_the_bits_of_the_host():
    assert ranks(same_bits) == [True] * 2


def later_passes(world):
    """The host does not wait for a device.

    A pass on another stream waits for what still uses the blocks of the earlier pass.
    """
    first, second, gate = Stream(), Stream(), threading.Event()
    arrays = [Interface(block_of(world.rank + 10 * turn, (1000,))) for turn in range(2)]
    came = [Interface(np.zeros(1000, np.float32)) for _ in range(2)]
    with dsc.Ring(world, 4000) as ring:
        for _ in ring(arrays[0], stream=first):
            pass  # connects the ranks before the measured passes
        assert ring.synchronize(30)
        for array, to, stream in zip(arrays, came, (first, second)):
            for source, block in ring(array, stream=stream):
                if source == world.rank:
                    continue
                if stream is first:
                    first.hold(gate)
                copy_on(to, block, stream)
        was_held = not ring.synchronize(0.01)
        world.barrier()
        gate.set()
        assert ring.synchronize(30)
        found = [to.read(stream.number) for to, stream in zip(came, (first, second))]
    peer = 1 - world.rank
    return was_held, [np.array_equal(found[turn], block_of(peer + 10 * turn, (1000,))) for turn in range(2)]


def test_passes_follow_each_other():
    assert ranks(later_passes) == [(True, [True, True])] * 2


def leaves_early(world):
    """A pass that was left early is still ordered before the next pass.

    Closing the ring waits for operations that its passes have started.
    """
    first, second = Stream(), Stream()
    own, other = Interface(block_of(world.rank, (1000,))), Interface(block_of(world.rank + 10, (1000,)))
    came = Interface(np.zeros(1000, np.float32))
    with dsc.Ring(world, 4000) as ring:
        next(ring(own, stream=first))
        for source, block in ring(other, stream=second):
            if source != world.rank:
                copy_on(came, block, second)
    del block
    return np.array_equal(came.read(second.number), block_of(1 - world.rank + 10, (1000,)))


def test_a_pass_that_is_left():
    assert ranks(leaves_early) == [True] * 2


def is_held(world):
    """A ring whose stream is blocked is closed within twice the time-out, and its memory is not released."""
    stream, gate, came = Stream(), threading.Event(), Interface(np.zeros(1000, np.float32))
    own = Interface(block_of(world.rank, (1000,)))
    ring = dsc.Ring(world, 4000)
    assert [source for source, _ in ring(own, stream=stream)] == [world.rank, 1 - world.rank]
    assert ring.synchronize(30)
    for source, block in ring(own, stream=stream):
        if source != world.rank:
            stream.hold(gate)
            copy_on(came, block, stream)
    dsc.read_log("warn")
    start = time.monotonic()
    del block
    ring.close()
    took = time.monotonic() - start
    kept = [text for _, text in iter(lambda: dsc.read_log("warn"), None) if "bytes of a ring are kept" in text]
    gate.set()
    right = np.array_equal(came.read(stream.number), block_of(1 - world.rank, (1000,)))
    world.barrier()
    return len(kept), 2 < took < 30, right


def test_a_stream_that_is_held():
    assert ranks(is_held, timeout=3) == [(1, True, True)] * 2


class Tensor(DLPack):
    """Has those attributes of a torch tensor that a ring uses."""

    device = "cuda"

    def __init__(self, values, device):
        super().__init__(values, device, element=BFLOAT)
        self.dtype = "bfloat16"

    def new_empty(self, shape):
        return ("empty", shape)


Tensor.__module__ = "torch"


class OverMemory:
    def __init__(self, array, device):
        self.array, self.device, self.dtype = array, device, array.dtype

    def view(self, dtype):
        self.dtype = dtype
        return self


def tensors(world):
    torch = types.ModuleType("torch")
    torch.Tensor, torch.as_tensor = Tensor, lambda array, device: OverMemory(array, device)
    torch.cuda = types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(cuda_stream=0))
    sys.modules["torch"] = torch
    whole = [np.full((world.rank, 2), 7, np.uint16), np.full((1, 2), world.rank, np.uint16)]
    found = []
    with dsc.Ring(world, 8) as ring:
        for values, parts in zip(whole, ([0, 1], None)):
            for source, block in ring(Tensor(values, world.device), parts):
                if isinstance(block, tuple):
                    found.append((source, *block))
                else:
                    assert block.array.dtype == np.int16
                    found.append((source, block.dtype, block.device, View(block.array).read().tolist()))
    return sorted(found, key=str)


def test_tensors():
    made = [("bfloat16", "cuda", [[value, value]]) for value in (0, 1, 7)]
    wanted = [(0, "empty", (0, 2)), (0, *made[0]), (1, *made[1]), (1, *made[2])]
    assert ranks(tensors) == [sorted(wanted, key=str)] * 2


def refusals(world):
    here, there = np.zeros(4, np.float32), Interface(np.zeros(4, np.float32))
    with dsc.Ring(world, 16, 16) as ring:
        with pytest.raises(ValueError, match="block is on a GPU and grad is on the host; expected both in the same kind of memory"):
            ring.backward(there, here)
        with pytest.raises(ValueError, match="block is on the host and grad is on a GPU"):
            ring.backward(here, there)
        with pytest.raises(dsc.UnsupportedError, match="grad_dtype is i32, expected a floating-point type"):
            ring.backward(there, Interface(np.zeros(4, np.int32)))
        assert [source for source, _ in ring(there)] == [world.rank, 1 - world.rank]
        assert [source for source, _ in ring(here)] == [world.rank, 1 - world.rank]
    with pytest.raises(dsc.BadHandleError):
        ring.synchronize()
    return True


def test_refusals():
    assert ranks(refusals) == [True] * 2
