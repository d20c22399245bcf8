"""Groups of "dsc" with tensors that torch treats as GPU tensors, in memory of the fake CUDA driver.

torch itself never accesses the memory. Each function that begins with test_ runs ranks: torch_device.py NAME.
"""

import contextlib
import ctypes
import os
import sys
import threading
import time
import types
from unittest import mock

import numpy as np
import pytest


class Loaded(ctypes.CDLL):
    def __init__(self, name, *arguments, **options):
        if name and "libnccl" in str(name):
            raise OSError("torch loads its own NCCL by path, and the fake one is loaded already")
        super().__init__(name, *arguments, **options)


with mock.patch("ctypes.CDLL", Loaded):
    import torch

import torch.distributed as dist
import torch_ranks as ranks
from device_arrays import Memory, Stream, check, driver, work_on

import libdsc.torch


class OnDevice(torch.Tensor):
    """A contiguous tensor on cuda:N without torch's memory. Only views and copies of it can be made."""

    @staticmethod
    def __new__(cls, memory, shape, dtype, number, offset=0):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=f"cuda:{number}")

    def __init__(self, memory, shape, dtype, number, offset=0):
        self.memory, self.offset = memory, offset

    @classmethod
    def of(cls, values, number):
        array = torch.as_tensor(values).numpy()
        return cls(Memory(array), array.shape, torch.as_tensor(values).dtype, number)

    def part(self, shape, start=0):
        """Returns a view that begins at element `start`."""
        return OnDevice(self.memory, shape, self.dtype, self.device.index, self.offset + start * self.element_size())

    def data_ptr(self):
        return self.memory.address + self.offset

    @property
    def __cuda_array_interface__(self):
        return {"shape": tuple(self.shape), "typestr": self.memory.dtype.str, "data": (self.data_ptr(), False), "version": 2}

    def __dlpack_device__(self):
        return 2, self.device.index

    def copy_(self, source):  # torch's copy_ asks for the GPU before it dispatches
        return copy(self, source)

    def read(self, stream=None):
        return self.memory.read(stream).tolist()

    @classmethod
    def __torch_dispatch__(cls, function, kinds, arguments=(), options=None):
        return DISPATCHED[str(function.overloadpacket).rpartition(".")[2]](*arguments)


def split(x, counts, dim=0):
    starts = np.cumsum([0, *counts])
    return [x.part((count,), int(start)) for count, start in zip(counts, starts)]


def new_empty(x, shape):
    return OnDevice(Memory(np.zeros(shape, x.memory.dtype)), tuple(shape), x.dtype, x.device.index)


def copy(to, source):
    stream, size_bytes = torch.cuda.current_stream().cuda_stream, to.numel() * to.element_size()
    check(driver().cuMemcpyAsync(*(ctypes.c_uint64(x.data_ptr()) for x in (to, source)), ctypes.c_size_t(size_bytes), ctypes.c_void_p(stream)))
    return to


def cat(parts, dim=0):
    whole = new_empty(parts[0], (sum(part.numel() for part in parts),))
    for to, part in zip(split(whole, [part.numel() for part in parts]), parts):
        copy(to, part)
    return whole


DISPATCHED = {
    "detach": lambda x: x.part(x.shape),
    "view": lambda x, shape: x.part((x.numel(),) if list(shape) == [-1] else shape),
    "split_with_sizes": split,
    "new_empty": new_empty,
    "cat": cat,
}


class Current(types.SimpleNamespace):
    """A stream as torch represents it."""

    def wait_event(self, event):
        check(driver().cuStreamWaitEvent(ctypes.c_void_p(self.cuda_stream), event.handle, 0))

    def synchronize(self):
        check(driver().cuStreamSynchronize(ctypes.c_void_p(self.cuda_stream)))


class Event:
    def __init__(self):
        self.handle = ctypes.c_void_p()
        check(driver().cuEventCreate(ctypes.byref(self.handle), 2))

    def record(self):
        check(driver().cuEventRecord(self.handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)))


@contextlib.contextmanager
def on_stream(stream):
    """Sets the current stream for a block. A stream is given by its number or as an object."""
    current = Current(cuda_stream=getattr(stream, "number", stream))
    with mock.patch("torch.cuda.current_stream", lambda device=None: current):
        yield


@contextlib.contextmanager
def one_gpu_each(rank, stream=0):
    """Gives this rank a GPU that no other rank uses."""
    work_on(rank)
    capability = mock.patch("torch.cuda.get_device_capability", lambda device=None: (9, 0))
    with on_stream(stream), capability, mock.patch("torch.cuda.Event", Event):
        yield lambda values: OnDevice.of(values, rank)
    assert driver().fake_gpu_misuses() == 0


def values(rank, count=6, kind=np.float32):
    return np.arange(count, dtype=kind) + 10 * rank


def operations(rank, is_async):
    """Runs every operation once and returns each result with the expected one."""
    with one_gpu_each(rank) as on_gpu:
        zeros, mine, both = [0.0] * 6, values(rank), [*values(0), *values(1)]
        found = {}

        def run(name, operation, *arguments, out):
            work = operation(*arguments, async_op=is_async)
            found[name] = out, work

        x = on_gpu(mine)
        run("all_reduce", dist.all_reduce, x, out=[x])
        x = on_gpu(mine)
        run("average", dist.all_reduce, x, dist.ReduceOp.AVG, out=[x])
        x = on_gpu(values(rank, kind="i8"))
        run("integers", dist.all_reduce, x, dist.ReduceOp.MAX, out=[x])
        x = on_gpu(mine)
        run("broadcast", dist.broadcast, x, 1, out=[x])
        x = on_gpu(mine)
        run("reduce", dist.reduce, x, 0, out=[x] if rank == 0 else [])
        out = on_gpu([0.0] * 12)
        run("all_gather_single", dist.all_gather_into_tensor, out, on_gpu(mine), out=[out])
        outs = [on_gpu(zeros), on_gpu(zeros)]
        run("all_gather", dist.all_gather, outs, on_gpu(mine), out=outs)
        outs = [on_gpu(zeros), on_gpu(zeros)] if rank == 1 else None
        run("gather", dist.gather, on_gpu(mine), outs, 1, out=outs or [])
        out = on_gpu(zeros)
        run("scatter", dist.scatter, out, [on_gpu(values(0)), on_gpu(values(1))] if rank == 0 else None, 0, out=[out])
        out = on_gpu([0.0] * (2 + 2 * rank))
        run("reduce_scatter_list", dist.reduce_scatter, out, [on_gpu(mine[:2]), on_gpu(mine[2:])], out=[out])
        outs = [on_gpu([0.0] * count) for count in ([1, 2], [3, 1])[rank]]
        xs = [on_gpu(mine[:count]) for count in ([1, 3], [2, 1])[rank]]
        run("all_to_all_list", dist.all_to_all, outs, xs, out=outs)
        out = on_gpu([0.0] * 3)
        run("reduce_scatter", dist.reduce_scatter_tensor, out, on_gpu(mine), out=[out])
        out = on_gpu(zeros)
        run("all_to_all", dist.all_to_all_single, out, on_gpu(mine), out=[out])
        for _, work in found.values():
            assert (work is not None) == is_async or work is None
            if work is not None:
                work.wait()
        sent, got = on_gpu(mine), on_gpu(zeros)
        batch = [dist.P2POp(dist.isend, sent, 1 - rank), dist.P2POp(dist.irecv, got, 1 - rank)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        sums = [2 * k + 10 for k in range(6)]
        assert got.read() == list(values(1 - rank))
        result = {name: [each.read() for each in out] for name, (out, _) in found.items()}
        assert result == {
            "all_reduce": [sums],
            "average": [[total / 2 for total in sums]],
            "integers": [[10 + k for k in range(6)]],
            "broadcast": [list(values(1))],
            "reduce": [sums] if rank == 0 else [],
            "all_gather_single": [both],
            "all_gather": [list(values(0)), list(values(1))],
            "gather": [list(values(0)), list(values(1))] if rank == 1 else [],
            "scatter": [list(values(rank))],
            "reduce_scatter": [sums[3 * rank : 3 * rank + 3]],
            "reduce_scatter_list": [sums[2:] if rank else sums[:2]],
            "all_to_all_list": [[[0.0], [10.0, 11.0]], [[0.0, 1.0, 2.0], [10.0]]][rank],
            "all_to_all": [[*values(0)[3 * rank : 3 * rank + 3], *values(1)[3 * rank : 3 * rank + 3]]],
        }, result
        group = libdsc.torch.communicator(device=f"cuda:{rank}")
        return group.backend, group.device, len(result)


def test_operations():
    assert ranks.run(2, operations, False) == [("device", 0, 13), ("device", 1, 13)]


def test_asynchronous_operations():
    assert ranks.run(2, operations, True) == [("device", 0, 13), ("device", 1, 13)]


def works(rank):
    """wait() makes the stream wait, not the program. is_completed() returns true when the GPU is done."""
    work_on(rank)
    stream, held = Stream(), threading.Event()
    with one_gpu_each(rank, stream) as on_gpu:
        x = on_gpu(values(rank))
        dist.all_reduce(x)  # creates the communicator
        stream.synchronize()
        stream.hold(held)
        work = dist.all_reduce(x, async_op=True)
        before = work.is_completed()
        work.wait()
        after = work.is_completed()
        held.set()
        end = time.monotonic() + 30
        while not work.is_completed() and time.monotonic() < end:
            time.sleep(0.001)
        assert work.is_success() and work.exception() is None
        return before, after, work.is_completed(), x.read(stream.number)


def test_works():
    sums = [2.0 * (2 * k + 10) for k in range(6)]
    assert ranks.run(2, works) == [(False, False, True, sums)] * 2


def waits(rank, is_list):
    """Every stream under which wait() is called waits. This includes a second stream, and a gather into a list."""
    work_on(rank)
    first, second, held = Stream(), Stream(), threading.Event()
    with one_gpu_each(rank, first) as on_gpu:
        x, outs = on_gpu(values(rank)), [on_gpu([0.0] * 6) for _ in range(2)]
        dist.all_reduce(on_gpu(values(rank)))  # creates the communicator
        first.synchronize()
        first.hold(held)
        work = dist.all_gather(outs, x, async_op=True) if is_list else dist.all_reduce(x, async_op=True)
        work.wait()
        with on_stream(second):
            work.wait()
        threading.Timer(0.3, held.set).start()
        seen = outs[1].read(second.number) if is_list else x.read(second.number)
        first.synchronize()
        return seen


def test_every_stream_waits():
    assert ranks.run(2, waits, False) == [[2.0 * k + 10 for k in range(6)]] * 2
    assert ranks.run(2, waits, True) == [list(values(1))] * 2


def met(rank):
    """barrier() also waits for the work on the streams of all ranks."""
    work_on(rank)
    stream, held = Stream(), threading.Event()
    with one_gpu_each(rank, stream) as on_gpu, mock.patch("torch.empty", lambda *_, device: on_gpu([0.0])):
        dist.all_reduce(on_gpu(values(rank)))
        stream.synchronize()
        if rank == 0:
            stream.hold(held)
            threading.Timer(0.5, held.set).start()
        start = time.monotonic()
        dist.barrier(device_ids=[rank])
        return time.monotonic() - start > 0.4


def test_barrier():
    assert (found := ranks.run(2, met)) == [True, True], found


def both_kinds(rank):
    """Tensors on the host and on the GPU in one group, and in a group made from it."""
    with one_gpu_each(rank) as on_gpu:
        x, y = torch.tensor(values(rank)), on_gpu(values(rank))
        pair = dist.new_group([0, 1])
        for group in (None, pair):
            dist.all_reduce(x, group=group)
            dist.all_reduce(y, group=group)
        assert x.tolist() == y.read()
        return y.read()


def test_host_and_gpu_in_one_group():
    assert ranks.run(2, both_kinds) == [[2.0 * (2 * k + 10) for k in range(6)]] * 2


def killed(rank):
    with one_gpu_each(rank) as on_gpu:
        x = on_gpu(values(rank))
        dist.all_reduce(x)
        if rank == 1:
            os._exit(3)
        work = dist.all_reduce(x, async_op=True)
        start = time.monotonic()
        while not work.is_completed() and time.monotonic() < start + 30:
            time.sleep(0.001)
        error = work.exception()
        return type(error).__name__, error.ranks, time.monotonic() - start < 20


def test_a_killed_rank():
    assert ranks.run(2, killed, lost=[1])[0] == ("Error", (1,), True)


def wrong(rank):
    with one_gpu_each(rank) as on_gpu:
        x = on_gpu(values(rank))
        with pytest.raises(NotImplementedError, match="any source on a GPU"):
            dist.recv(x)
        with pytest.raises(ValueError, match="on device|is on a GPU|expected host memory"):
            libdsc.torch.communicator().all_reduce(x)
        dist.all_reduce(x)
        return x.read()[0]


def test_wrong_use():
    assert ranks.run(2, wrong) == [10.0, 10.0]


if __name__ == "__main__":
    globals()[sys.argv[1]]()
