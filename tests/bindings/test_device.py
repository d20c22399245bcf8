"""Arrays on a GPU: every operation, streams, works, and the errors for arrays that cannot be communicated.

Uses the fake driver and the fake NCCL. With DSC_CUDA_LIBRARY=libcuda.so.1 and without DSC_NCCL_LIBRARY it uses two
GPUs.
"""

import asyncio
import ctypes
import gc
import importlib.util
import io
import os
import re
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import libdsc as dsc
from conftest import ROOT
from device_arrays import BFLOAT, MANAGED, DLPack, Interface, Memory, Stream, check, driver, work_on
from libdsc import _buffers, _work

SECONDS = 120  # the time limit of a job


def ranks(body, *args, n=2, **options):
    """Runs body(world, *args) on n ranks with a GPU each and returns the results."""
    return dsc.spawn(_in_world, n, (body, args, options), timeout=SECONDS)


def _in_world(rank, body, args, options):
    work_on(rank)
    world = dsc.init_distributed(**{"backend": "device", "device": rank, "init_timeout": 60, "timeout": 60} | options)
    result = body(world, *args)
    dsc.finalize()
    misuses = getattr(driver(), "fake_gpu_misuses", lambda: 0)
    assert misuses() == 0
    return result


MAKERS = {
    "interface 2": lambda values: Interface(values, 2),
    "interface 3": lambda values: Interface(values, 3, strides=None, stream=1),
    "strides": lambda values: Interface(values, 3, strides=np.ascontiguousarray(values).strides),
    "dlpack": lambda values: DLPack(values, device=dsc.world().device),
    "managed": lambda values: DLPack(values, device=0, kind=MANAGED),
}


def values(rank, n=6, kind=np.float32):
    return np.arange(n, dtype=kind) + 10 * rank


def all_operations(world, kind, async_op):
    """Runs every operation once and returns each result with the expected one."""
    make, rank, peer = MAKERS[kind], world.rank, 1 - world.rank
    mine, theirs, empty = values(rank), values(peer), np.zeros(6, np.float32)
    both = np.concatenate([values(0), values(1)])
    expected, works = [], []

    def runs(function, *arguments, result, wants, **options):
        works.append(function(*arguments, async_op=async_op, **options))
        expected.append((function.__name__, result, wants))

    x, out = make(mine), make(empty)
    runs(world.all_reduce, x, out=out, result=out, wants=mine + theirs)
    x = make(mine)
    runs(world.all_reduce, x, "avg", result=x, wants=(mine + theirs) / 2)
    x = make(mine)
    runs(world.broadcast, x, 1, result=x, wants=values(1))
    x = make(mine)
    runs(world.reduce, x, 1, "max", result=x, wants=values(1) if rank else mine)
    x, out = make(mine), make(np.zeros(12, np.float32))
    runs(world.all_gather, out, x, result=out, wants=both)
    x, out = make(mine[: 2 + rank]), make(np.zeros(5, np.float32))
    runs(world.all_gather, out, x, counts=[2, 3], result=out, wants=[*values(0)[:2], *values(1)[:3]])
    x, out = make(both + rank), make(empty)
    runs(world.reduce_scatter, out, x, result=out, wants=2 * mine + 1)
    x, out = make(both + rank), make(np.zeros((4, 8)[rank], np.float32))
    runs(world.reduce_scatter, out, x, counts=[4, 8], result=out, wants=2 * (both[4:] if rank else both[:4]) + 1)
    x, out = make(mine), make(empty)
    wants = np.concatenate([values(r)[3 * rank : 3 * rank + 3] for r in (0, 1)])
    runs(world.all_to_all, out, x, result=out, wants=wants)
    sent, came = ([1, 2], [3, 1])[rank], ([1, 3], [2, 1])[rank]
    x, out = make(mine[: sum(sent)]), make(np.zeros(sum(came), np.float32))
    wants = ([0, 10, 11, 12], [1, 2, 13])[rank]
    runs(world.all_to_all, out, x, send_counts=sent, recv_counts=came, result=out, wants=wants)
    x, out = make(mine), None if rank else make(np.zeros(12, np.float32))
    runs(world.gather, out, x, result=x if rank else out, wants=mine if rank else both)
    x, out = None if rank else make(both), make(empty)
    runs(world.scatter, out, x, result=out, wants=mine)
    x = make(mine if rank else empty)
    runs(world.send if rank else world.recv, x, peer, result=x, wants=values(1))
    runs(world.barrier, stream=1, result=x, wants=values(1))
    for work, (name, result, wants) in zip(works, expected):
        if async_op:
            assert work.wait(30), name
        assert result.read().tolist() == list(wants), name
    return len(works)


@pytest.mark.parametrize("async_op", [False, True], ids=["blocking", "async"])
@pytest.mark.parametrize("kind", MAKERS)
def test_all_operations(kind, async_op):
    assert ranks(all_operations, kind, async_op) == [14, 14]


def other_types(world):
    half = DLPack(np.array([0x3F80, 0x4000], np.uint16), world.device, element=BFLOAT)  # the bfloat16 numbers 1 and 2
    world.all_reduce(half)
    named = Interface(np.array([0x3F80, 0x4000], np.uint16))
    world.all_reduce(named, dtype="bf16")
    spelled = DLPack(np.array([0x3F80, 0x4000], np.uint16), world.device, element=BFLOAT)
    spelled.__cuda_array_interface__ = {"shape": (2,), "typestr": "<V2", "data": (0, False), "version": 2}
    world.all_reduce(spelled)
    integers = Interface(values(world.rank, kind=np.int64))
    world.all_reduce(integers)
    assert integers.read().tolist() == (values(0) + values(1)).tolist()
    nothing = Interface(np.zeros(0, np.float32), data=(0, False))
    world.all_reduce(nothing)
    return [[hex(bits) for bits in x.read()] for x in (half, named, spelled)]


def test_types():
    assert ranks(other_types) == [[["0x4000", "0x4080"]] * 3] * 2


def host_memory_too(world):
    x = values(world.rank)
    world.all_reduce(x)
    world.all_reduce(x, stream=Stream().number)  # a stream has no effect for host memory
    assert world.all_reduce(x, async_op=True).wait(30)
    return x.tolist(), world.backend, world.device


def test_host_memory_in_a_world_with_devices():
    for rank, (x, backend, device) in enumerate(ranks(host_memory_too)):
        assert (x, backend, device) == (((values(0) + values(1)) * 4).tolist(), "device", rank)


# ---- streams -------------------------------------------------------------------------------------------------------


def traced(world):
    """The end of the first operation is not observed. The work of the second one observes its end."""
    x = Interface(values(world.rank))
    world.all_reduce(x)
    world.all_reduce(x, async_op=True).synchronize()
    world.all_reduce(np.ones(3))
    entries = [entry for entry in world.trace()["entries"] if entry["profiling_name"] == "dsc:all_reduce"]
    assert [entry["device"] for entry in entries] == [True, True, False]
    assert {entry["process_group"][1] for entry in entries[:2]} == {"world (devices)"}
    assert [row.count for row in world.summary().rows if row.operation == "all_reduce"] == [1]
    return [(entry["state"], entry["result"]) for entry in entries]


def test_a_trace_says_what_is_known():
    assert ranks(traced) == [[("launched", None), ("completed", "DSC_OK"), ("completed", "DSC_OK")]] * 2


def connect(world):
    """Makes the connections, because the first operation may wait for the other rank."""
    world.all_reduce(Interface(np.zeros(1)))
    exchange(world, Interface(np.zeros(1)), Interface(np.zeros(1)))


def exchange(world, x, out, **options):
    with world.batch(**options) as batch:
        world.send(x, 1 - world.rank)
        world.recv(out, 1 - world.rank)
    return batch.work


class Protocol:
    def __init__(self, stream):
        self.stream = stream

    def __cuda_stream__(self):
        return 0, self.stream.number


SPELLINGS = {
    "number": lambda stream: stream.number,
    "torch": lambda stream: types.SimpleNamespace(cuda_stream=stream.number),
    "cupy": lambda stream: types.SimpleNamespace(ptr=stream.number),
    "protocol": Protocol,
}


def follows_a_stream(world, spelling):
    connect(world)
    stream, gate = Stream(), threading.Event()
    given, x = SPELLINGS[spelling](stream), Interface(values(world.rank))
    stream.hold(gate)
    world.all_reduce(x, stream=given)
    world.barrier(stream=given)
    work = exchange(world, x, x2 := Interface(np.zeros(6, np.float32)), stream=given, async_op=True)
    was_held = not work.test() and x.read(Stream().number).tolist() == values(world.rank).tolist()
    assert work.wait(30) and not work.test()  # the operation's stream waits, not the host
    gate.set()
    stream.synchronize()
    total = (values(0) + values(1)).tolist()
    assert x.read().tolist() == x2.read().tolist() == total
    assert work.synchronize(30)
    return was_held


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_operations_follow_a_stream(spelling):
    assert ranks(follows_a_stream, spelling) == [True, True]


def waits_on_streams(world):
    connect(world)
    held, waiting, free, gate = Stream(), Stream(), Stream(), threading.Event()
    x = Interface(values(world.rank))
    held.hold(gate)
    work = world.all_reduce(x, stream=held.number, async_op=True)
    assert work.wait(30, stream=waiting.number)
    seen = []
    waiting_reads = threading.Thread(target=lambda: (work_on(world.device), seen.append(x.read(waiting.number))))
    waiting_reads.start()
    early = x.read(free.number).tolist(), work.synchronize(0.05), len(seen)
    gate.set()
    waiting_reads.join(30)
    assert work.synchronize(30) and work.test() and work.wait(stream=waiting.number)
    return early, seen[0].tolist()


def test_a_stream_waits_for_a_work():
    total = (values(0) + values(1)).tolist()
    for rank, found in enumerate(ranks(waits_on_streams)):
        assert found == ((values(rank).tolist(), False, 0), total)


class Tensor(DLPack):
    """Has the attributes of a torch tensor on a GPU, including bfloat16 and the current stream of the module."""


Tensor.__module__ = "torch"


def library_of(name, stream):
    """A module in place of torch or CuPy, with `stream` as its current stream."""
    module = types.ModuleType(name)
    if name == "torch":
        current = types.SimpleNamespace(cuda_stream=stream.number)
        module.Tensor, module.cuda = Tensor, types.SimpleNamespace(current_stream=lambda device: current)
    else:
        module.ndarray = type("ndarray", (Interface,), {"device": threading.Lock()})
        get = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=stream.number))
        module.cuda = get
    sys.modules[name] = module
    return module


def on_current_stream(world, name):
    connect(world)
    first, second, gate = Stream(), Stream(), threading.Event()
    module = library_of(name, first)
    make = {"torch": lambda v: Tensor(v, world.device), "cupy": getattr(module, "ndarray", None), "entry": None}[name]
    x = make(values(world.rank))
    first.hold(gate)
    world.all_reduce(x)
    work = world.all_reduce(x, async_op=True)
    library_of(name, second)
    if name == "cupy":
        sys.modules[name].ndarray = type(x)
    assert work.wait(30)  # waits on the stream that is current now
    was_held = not work.test()
    gate.set()
    asked = getattr(x, "asked", [-1])
    second.synchronize()
    return was_held, set(asked), x.read(second.number).tolist()


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_current_stream_of_the_library(name):
    total = (2 * (values(0) + values(1))).tolist()
    assert ranks(on_current_stream, name) == [(True, {-1}, total)] * 2


def on_stream_of_the_array(world):
    connect(world)
    stream, gate = Stream(), threading.Event()
    x = Interface(values(world.rank), stream=stream.number)
    stream.hold(gate)
    work = world.all_reduce(x, async_op=True)
    assert work.wait(30)
    was_held = not work.test()
    gate.set()
    result = x.read(stream.number).tolist()
    packed = DLPack(values(0), world.device)
    world.all_reduce(packed)
    return was_held, result, packed.asked


def test_stream_that_an_array_names():
    total = (values(0) + values(1)).tolist()
    assert ranks(on_stream_of_the_array) == [(True, total, [1])] * 2


def captures(world):
    connect(world)
    stream, x, y = Stream(), Interface(values(world.rank)), Interface(values(0))
    handle, graph, runnable = ctypes.c_void_p(stream.number), ctypes.c_void_p(), ctypes.c_void_p()
    check(driver().cuStreamBeginCapture_v2(handle, 1))  # 1: captures only calls of this thread
    world.all_reduce(x, stream=stream)
    work = world.all_reduce(y, stream=stream, async_op=True)
    assert work.wait(30, stream=stream)
    del work
    check(driver().cuStreamEndCapture(handle, ctypes.byref(graph)))
    unchanged = x.read().tolist() == values(world.rank).tolist()
    check(driver().cuGraphInstantiateWithFlags(ctypes.byref(runnable), graph, ctypes.c_uint64(0)))
    for _ in range(2):
        check(driver().cuGraphLaunch(runnable, handle))
    stream.synchronize()
    check(driver().cuGraphExecDestroy(runnable))
    check(driver().cuGraphDestroy(graph))
    return unchanged, x.read().tolist(), y.read().tolist()


def test_a_graph():
    once = values(0) + values(1)
    assert ranks(captures) == [(True, (2 * once).tolist(), (4 * values(0)).tolist())] * 2


# ---- works ---------------------------------------------------------------------------------------------------------


def drops_works(world):
    freed = []

    class Counted(Interface):
        def __del__(self):
            freed.append(self)
            super().__del__()

    connect(world)
    stream, gate = Stream(), threading.Event()
    stream.hold(gate)
    for _ in range(10):
        assert world.all_reduce(Counted(np.ones(100)), stream=stream.number, async_op=True).wait(30)
    gc.collect()
    while_running = len(freed)  # a stream's wait must not release the array
    gate.set()
    stream.synchronize()
    world.barrier()
    for _ in range(2000):
        _work.reap(100)
        if not _work._dropped:
            break
        threading.Event().wait(0.005)
    gc.collect()
    return while_running, len(freed)


def test_arrays_live_until_the_device_is_done():
    assert ranks(drops_works) == [(0, 10)] * 2


async def awaits(world):
    stream, gate = Stream(), threading.Event()
    arrays = [Interface(values(world.rank)) for _ in range(5)]
    stream.hold(gate)
    works = [world.all_reduce(x, stream=stream.number, async_op=True) for x in arrays]
    everything = asyncio.gather(*works)
    done, _ = await asyncio.wait([everything], timeout=0.1)
    gate.set()
    await everything
    assert all(work.test() for work in works)
    return len(done), [x.read(Stream().number).tolist() for x in arrays]


def in_a_loop(world):
    connect(world)
    return asyncio.run(asyncio.wait_for(awaits(world), SECONDS))


@pytest.mark.parametrize("progress_thread", [True, False], ids=["thread", "no_thread"])
def test_await(progress_thread):
    total = (values(0) + values(1)).tolist()
    assert ranks(in_a_loop, progress_thread=progress_thread) == [(0, [total] * 5)] * 2


def disagrees(world):
    connect(world)
    with pytest.raises(dsc.MismatchError):
        work = world.all_reduce(Interface(np.ones(3 + world.rank)), async_op=True)
        work.synchronize(30)
        world.barrier()
    world.close()
    return "told"


def in_world_that_ends(rank, body):
    work_on(rank)
    return body(dsc.init_distributed(backend="device", device=rank, init_timeout=60, timeout=30))


def test_ranks_that_disagree():
    assert dsc.spawn(in_world_that_ends, 2, (disagrees,), timeout=SECONDS) == ["told"] * 2


# ---- which device --------------------------------------------------------------------------------------------------


def bound_by_context(rank, backend):
    work_on(1 - rank)
    world = dsc.init_distributed(backend=backend, init_timeout=60)
    device = world.device
    x = Interface(values(rank))
    world.all_reduce(x)
    group = world.split(0)
    assert group.device == device
    group.all_reduce(x)
    dsc.finalize()
    return device, x.read().tolist()


@pytest.mark.parametrize("backend", ["auto", "nccl"])
def test_device_of_the_current_context(backend):
    total = (2 * (values(0) + values(1))).tolist()
    found = dsc.spawn(bound_by_context, 2, (backend,), timeout=SECONDS)
    assert found == [(1, total), (0, total)]


# ---- refusals ------------------------------------------------------------------------------------------------------


def refused(error, text, function, *arguments, **options):
    with pytest.raises(error, match=text):
        function(*arguments, **options)


def refuses(world):
    x, peer = Interface(values(0)), 1 - world.rank
    wide = Interface(np.zeros((2, 3), np.float32), strides=(24, 8))
    refused(ValueError, "^x is not contiguous", world.all_reduce, wide)
    refused(ValueError, "^x is not contiguous", world.all_reduce, DLPack(np.zeros((2, 3)), strides=(6, 2)))
    locked = Interface(np.zeros(12, np.float32))
    locked.__cuda_array_interface__["data"] = (locked.address, True)
    refused(ValueError, "^out is read-only", world.all_gather, locked, x)
    refused(ValueError, "^x has a mask", world.all_reduce, Interface(values(0), mask=x))
    refused(TypeError, "^x has element type", world.all_reduce, Interface(np.zeros(2, np.complex64)))
    plain = Interface(np.zeros(2, np.uint16))
    refused(TypeError, "^x has element type uint16; .* pass dtype=$", world.all_reduce, plain)
    refused(ValueError, "^x is on a device of DLPack's device type 10", world.all_reduce, DLPack(values(0), kind=10))
    said = rf"^x is on device {peer}; expected device {world.rank}, which"
    refused(ValueError, said, world.all_reduce, DLPack(values(0), device=peer))
    work_on(peer)
    elsewhere = Interface(values(0))
    check(driver().cuCtxPopCurrent_v2(None))
    refused(ValueError, rf"send is in memory of device {peer}", world.all_reduce, elsewhere)
    refused(ValueError, "recv is in host memory", world.all_reduce, x, out=np.zeros(6, np.float32))
    refused(ValueError, r"^x\[0\] is on a GPU, where a list", world.reduce_scatter, x, [x, x])
    refused(ValueError, r"^out\[0\] is on a GPU, where a list", world.all_gather, [x, x], x)
    refused(TypeError, "^stream is 'left'; expected an integer, or", world.all_reduce, x, stream="left")
    refused(ValueError, "^stream is -1", world.all_reduce, x, stream=-1)
    other = types.SimpleNamespace(__cuda_stream__=lambda: (7, 1))
    refused(ValueError, "^stream offers version 7", world.all_reduce, x, stream=other)
    with world.batch():
        refused(ValueError, r"^stream is given inside batch\(\)", world.all_reduce, x, stream=1)
    reducer = dsc.BucketReducer(world, [x], sync=False)
    reducer.begin()
    refused(ValueError, "^grad is in memory of the host; expected memory of a GPU", reducer.mark_ready, 0, values(0))
    refused(TypeError, "^stream is 'left'", reducer.mark_ready, 0, x, stream="left")
    reducer.mark_unused(0)
    reducer.finish()
    mixed = dsc.broadcast_coalesced, world, [x, values(0)]
    refused(dsc.UnsupportedError, "parameter 1: device is -1, expected . as for the first tensor", *mixed)
    world.all_reduce(x)
    return x.read().tolist()


def test_refusals_name_the_argument_and_end_nothing():
    assert ranks(refuses) == [(2 * values(0)).tolist()] * 2


def has_none(world):
    x = Interface(values(0))
    advice = r'expected host memory, or a world from init_distributed\(\) with backend="device" or device='
    said = rf"^x is on a GPU, but this communicator is not bound to a GPU; {advice}$"
    refused(ValueError, said, world.all_reduce, x)
    refused(ValueError, said, world.all_reduce, x, async_op=True)
    refused(ValueError, "^out is on a GPU", world.all_gather, Interface(np.zeros(12, np.float32)), values(0))
    refused(ValueError, "^x is on a GPU", world.all_to_all, values(0), x, send_counts=[3, 3], recv_counts=[3, 3])
    refused(dsc.UnsupportedError, "stream is not None", world.all_reduce, values(0), stream=1)
    refused(ValueError, r"^params\[1\] is on a GPU", dsc.BucketReducer, world, [values(0), x])
    reducer = dsc.BucketReducer(world, [values(0)])
    refused(dsc.UnsupportedError, "stream is not None", reducer.begin, stream=1)
    reducer.begin()
    refused(ValueError, "^grad is in memory of a GPU; expected memory of the host", reducer.mark_ready, 0, x)
    with world.batch():
        refused(ValueError, said, world.all_reduce, x)
    world.all_reduce(y := values(0))
    return world.device, y.tolist()


def test_a_communicator_without_a_device():
    assert ranks(has_none, backend="host", device=None) == [(None, (2 * values(0)).tolist())] * 2


def test_an_array_that_does_not_export():
    class Guarded:
        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("requires grad, use detach()")

    with pytest.raises(ValueError, match="^x does not export its memory: requires grad"):
        _buffers.describe(Guarded(), "x")


def test_eight_bits_by_dlpack():
    work_on(0)
    for element, code in ((10, 8), dsc.Dtype.F8E4M3), ((12, 8), dsc.Dtype.F8E5M2):
        assert _buffers.describe(DLPack(np.zeros(3, np.uint8), element=element), "x").dtype == code


def test_a_subclass_of_numpy_on_a_device():
    class Managed(np.ndarray):
        @property
        def __cuda_array_interface__(self):
            return {"shape": self.shape, "typestr": "<f4", "data": (self.ctypes.data, False), "version": 2}

    for _ in range(2):
        assert _buffers.locate(np.zeros(3, np.float32), "x")[1] == 3
    assert isinstance(_buffers.locate(np.zeros(3, np.float32).view(Managed), "x")[3], _buffers.DeviceMemory)


def test_memory_of_the_driver():
    """Tests the memory class of these tests."""
    work_on(0)
    memory = Memory(values(3))
    assert memory.read().tolist() == values(3).tolist()


# ---- the example ---------------------------------------------------------------------------------------------------


def output_of_example(n, *folders, each="", **settings):
    """Runs 13_device.py with these folders of the tests in its path and returns its output.

    Every rank first runs the shell line `each`.
    """
    path = os.pathsep.join([*(str(ROOT / "tests/bindings" / folder) for folder in folders), os.environ["PYTHONPATH"]])
    program = [sys.executable, str(ROOT / "examples/python/13_device.py")]
    shell = ["sh", "-c", f'{each}; exec "$@"', "sh"] if each else []
    command = [os.environ["DSCRUN"], "-n", str(n), "--timeout", "60", "--", *shell, *program]
    environment = os.environ | {"PYTHONPATH": path} | settings
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "misuse" not in done.stderr
    return done.stdout


def test_example_on_devices():
    printed = output_of_example(2, "stand_in", "")
    for rank in (0, 1):
        assert f"rank {rank}: weights found in device {rank}, by the device backend" in printed
    assert "falls back" not in printed


def test_example_where_each_rank_sees_its_own_device():
    printed = output_of_example(2, "stand_in", "", each="export CUDA_VISIBLE_DEVICES=$RANK")
    assert "falls back" not in printed
    assert printed.count("weights found in device 0, by the device backend") == 2


def why_on_host(n, printed):
    reasons = re.findall("falls back to the host engine: (.*)", printed)
    assert len(reasons) == 1 and printed.count("weights found in host memory, by the host backend") == n
    return reasons[0]


def test_example_without_a_device_for_every_rank():
    found = ctypes.c_int()
    check(driver().cuDeviceGetCount(ctypes.byref(found)))
    n = found.value + 1
    assert f"ranks 0 and {n - 1} are bound to " in why_on_host(n, output_of_example(n, "stand_in", ""))


def test_example_where_one_rank_has_no_arrays():
    if any(importlib.util.find_spec(name) for name in ("cupy", "torch")):
        pytest.skip("every rank has arrays here")
    there = ROOT / "tests/bindings/stand_in"
    printed = output_of_example(2, "", each=f"[ $RANK = 1 ] || export PYTHONPATH={there}:$PYTHONPATH")
    assert why_on_host(2, printed) == "another rank has neither CuPy nor torch that sees a GPU"
