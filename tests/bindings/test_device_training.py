"""Training on a GPU: the record of start-up, arrays of unknown size, reducers and pipelines.

Uses the drivers of test_device.py.
"""

import ctypes
import gc
import os
import threading

import numpy as np
import pytest

import libdsc as dsc
from device_arrays import BFLOAT, DLPack, Interface, Stream, View, work_on
from test_device import SECONDS, ranks, values


def receives(world):
    def empty(shape, dtype):
        assert world.rank == 0 and dtype == "float32"
        return Interface(np.zeros(shape, dtype), 2)

    y = world.broadcast_array(Interface(values(1), 2) if world.rank == 1 else None, 1, empty=empty)
    return y.read().tolist()


def test_receivers_allocate_on_their_device():
    assert ranks(receives) == [values(1).tolist()] * 2


def backend_records(rank):
    work_on(rank)
    dsc.read_log("info")
    dsc.init_distributed(device=rank, init_timeout=60, timeout=60)
    said = list(iter(lambda: dsc.read_log("info"), None))
    dsc.finalize()
    return [text for _, text in said if "backend" in text]


def test_the_log_says_which_backend_was_chosen():
    assert dsc.spawn(backend_records, 2, timeout=SECONDS) == [["distributed backend: device (asked for: auto)"], []]


def reduces(world):
    stream, half, ones = Stream(), np.uint16, Interface(np.ones(5, np.float32))
    params = [Interface(values(world.rank, 5)), DLPack(values(world.rank, 7).reshape(1, 7), device=world.device)]
    with dsc.BucketReducer(world, params, names=["w", "b"]) as reducer:
        assert [p.read().ravel().tolist() for p in params] == [values(0, 5).tolist(), values(0, 7).tolist()]
        view = reducer.grad_view(1)
        assert (view.shape, view.dtype, view.device) == ((1, 7), np.float32, world.device)
        grad = Interface(np.zeros(5, np.float32))
        for step in range(3):
            go = threading.Event()
            stream.hold(go)
            reducer.begin(stream=stream)
            grad.write(values(world.rank, 5) + step)  # writes on the default stream, which is not held
            reducer.accumulate(0, ones, stream=stream)
            reducer.mark_ready(0, grad, stream=stream)
            View(view).write(values(world.rank, 7).reshape(1, 7))
            reducer.mark_ready(1, stream=stream)
            reducer.finish(stream=stream)  # does not wait for the stream
            go.set()
            assert reducer.synchronize(30)
            stream.synchronize()
            assert grad.read().tolist() == (values(0, 5) + step + 6).tolist()
            assert View(reducer.grad_view(1)).read().tolist() == [(values(0, 7) + 5).tolist()]
    bits = DLPack(np.array([0x3F80, 0x4000], half), world.device, element=BFLOAT)  # the numbers 1 and 2
    reducer = dsc.BucketReducer(world, [bits], average="none")
    reducer.begin()
    reducer.mark_ready(0, bits)
    reducer.finish()
    reducer.close()
    dsc.broadcast_coalesced(world, params, root=1)
    return bits.read().tolist(), reducer.buckets if reducer._handle else None


def clips(world):
    grad = Interface(np.zeros(2, np.float32))
    with dsc.BucketReducer(world, [grad], sync=False) as reducer:
        reducer.set_hook("int8")
        reducer.begin()
        grad.write(np.array([3, -4], np.float32) * (world.rank + 0.5))
        reducer.mark_ready(0, grad)
        reducer.finish()
        return reducer.clip(2.0), grad.read().tolist()


def test_hooks_and_clipping():
    first, second = ranks(clips)
    assert first == second and first[0] == pytest.approx(5, rel=0.02) and first[1] == pytest.approx([1.2, -1.6], rel=0.02)


def keeps_buckets(world):
    """A hook keeps its array. The memory is freed after the reducer is gone and the array is deleted."""
    lib, kept = dsc._library.lib, []

    def is_there(address):
        start = ctypes.c_void_p()
        code = lib.dsc_mem_retain(address, ctypes.byref(start))
        return code == 0 and lib.dsc_mem_free(start.value) == 0

    def hook(bucket):
        kept.append(bucket.buffer)
        return bucket.comm.all_reduce(bucket.buffer, "avg", async_op=True, stream=bucket.stream)

    grad = Interface(values(world.rank, 5))
    reducer = dsc.BucketReducer(world, [grad], hook=hook, sync=False)
    reducer.begin()
    reducer.mark_ready(0, grad)
    reducer.finish()
    reducer.synchronize(30)
    reducer.close()
    del reducer
    gc.collect()
    shown, address = View(kept[0]).read()[:5].tolist(), kept[0].__cuda_array_interface__["data"][0]
    before = is_there(address)
    kept.clear()
    gc.collect()
    return shown, before, is_there(address)


def test_a_hook_keeps_its_array():
    assert ranks(keeps_buckets) == [(((values(0, 5) + values(1, 5)) / 2).tolist(), True, False)] * 2


def has_groups(world):
    settings = {"nccl_net_name": "Socket", "nccl_min_ctas": 1, "nccl_max_ctas": 4, "stream_priority": -1}
    sums = []
    for group in world.split(0, **settings), world.create_group([1, 0], **settings):
        x = Interface(values(group.rank, 6))
        group.all_reduce(x, async_op=True).synchronize()
        sums.append(x.read().tolist())
    with pytest.raises(ValueError, match="nccl_min_ctas"):
        world.split(0, nccl_min_ctas=5, nccl_max_ctas=4)
    with pytest.raises(ValueError, match="nccl_max_ctas is -1; expected 0 to"):
        world.split(0, nccl_max_ctas=-1)
    with pytest.raises(TypeError, match="nccl_net_name is 7; expected a string"):
        world.create_group([0, 1], nccl_net_name=7)
    return sums


def test_groups_with_settings_of_nccl():
    assert ranks(has_groups) == [[(values(0, 6) + values(1, 6)).tolist()] * 2] * 2


def test_a_reducer():
    assert ranks(reduces) == [([0x4000, 0x4080], None)] * 2


def pipes(world):
    """Two stages: the first one doubles, the second one adds up. The gradients must be twos."""
    stream, first = Stream(), world.rank == 0
    schedule = dsc.PipeSchedule("1f1b", stages=2, stage=world.rank, micro_batches=3)
    seen = []

    def forward(instruction, inputs, outputs):
        if first:
            View(outputs[0]).write(np.full(4, 2.0 * instruction.micro_batch, np.float32), stream.number)
            return None
        return float(View(inputs[0]).read(stream.number).sum())

    def backward(instruction, inputs, outputs, output_grads, input_grads):
        if first:
            seen.append(View(output_grads[0]).read(stream.number).tolist())
        else:
            View(input_grads[0]).write(np.full(4, 2 + instruction.micro_batch, np.float32), stream.number)

    ends = {"outputs" if first else "inputs": [(4, "float32")]}
    for _ in range(2):
        nothing = dict.fromkeys(("load_micro_batch", "reduce_tied_grads", "reduce_grads", "optimizer_step"), lambda instruction: None)
        loss = world.pipe_run(schedule, forward=forward, backward=backward, stream=stream, **ends, **nothing)
    return loss, seen


def test_a_pipeline():
    grads = [[2.0 + m] * 4 for m in range(3)] * 2
    assert ranks(pipes) == [(8.0, grads), (8.0, [])]


def ties(world):
    """Two keys are on both stages, one key is only on the second stage.

    The sums run on a stream, and the host does not wait.
    """
    stream, stages = Stream(), {"embed": [0, 1], "norm": [1, 0], "alone": [1]}
    weights = {
        "norm": Interface(values(world.rank, 5)),
        "embed": [Interface(values(world.rank, 7)), DLPack(values(world.rank, 3), device=world.device)],
    }
    if world.rank == 1:
        weights["alone"] = Interface(values(1, 2))
    with dsc.TiedLayers(world, stages, weights) as tied:
        assert weights["norm"].read().tolist() == values(0, 5).tolist()
        assert weights["embed"][1].read().tolist() == values(0, 3).tolist()
        go = threading.Event()
        grads = {key: [Interface(np.zeros(n, np.float32)) for n in ns] for key, ns in (("embed", (7, 3)), ("norm", (5,)))}
        if world.rank == 1:
            grads["alone"] = Interface(values(1, 2))
        stream.hold(go)
        for grad in (*grads["embed"], *grads["norm"]):
            grad.write(values(world.rank, grad.shape[0]))  # writes on the default stream, which is not held
        tied.reduce(grads, stream=stream)  # does not wait for the stream
        go.set()
        stream.synchronize()
        for grad in (*grads["embed"], *grads["norm"]):
            assert grad.read().tolist() == (values(0, grad.shape[0]) + values(1, grad.shape[0])).tolist()
        with pytest.raises(ValueError, match="grads has {.*expected {.*}, like weights"):
            tied.reduce({**grads, "embed": values(0, 3)})
        world.barrier()
    with dsc.TiedLayers(world, {"host": [0, 1]}, {"host": values(world.rank, 2)}) as tied:
        with pytest.raises(dsc.UnsupportedError, match="stream is not None.*the gradients are in host memory"):
            tied.reduce({"host": values(0, 2)}, stream=stream)
        tied.reduce({"host": values(0, 2)})
    return world.rank != 1 or grads["alone"].read().tolist() == values(1, 2).tolist()


def test_tied_layers():
    assert ranks(ties) == [True, True]


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def adopts(world):
    """Adopts a communicator that the program made with NCCL itself."""
    nccl = ctypes.CDLL(os.environ.get("DSC_NCCL_LIBRARY") or "libnccl.so.2")
    number = np.zeros(128, np.uint8)
    if world.rank == 0:
        assert nccl.ncclGetUniqueId(ctypes.c_void_p(number.ctypes.data)) == 0
    world.broadcast(number)
    own, unique = ctypes.c_void_p(), UniqueId.from_buffer(number)
    assert nccl.ncclCommInitRankConfig(ctypes.byref(own), world.size, unique, 1 - world.rank, None) == 0
    group = world.adopt_nccl(own.value, name="adopted")
    x = Interface(values(world.rank))
    group.all_reduce(x)
    with pytest.raises(ValueError, match="^nccl_comm is 0; expected"):
        world.adopt_nccl(0)
    found = group.name, group.rank, x.read().tolist()
    group.finalize()
    assert nccl.ncclCommDestroy(own) == 0
    return found


def test_a_communicator_of_nccl():
    sums = (values(0) + values(1)).tolist()
    assert ranks(adopts) == [("adopted", 1, sums), ("adopted", 0, sums)]


def shares(world):
    """Named arrays on a GPU are received into arrays that empty() creates there.

    Both ranks get the error for a wrong array.
    """
    batch = {"a": Interface(values(0, 6).reshape(2, 3)), "none": Interface(np.zeros((0, 2), np.float32))}
    made = []

    def empty(shape, dtype):
        made.append(Interface(np.zeros(shape, dtype)))
        return made[-1]

    got = world.broadcast_data(["a", "none"], batch if world.rank == 0 else None, "float32", empty=empty)
    wrong = {"a": Interface(np.zeros(2, np.int64))}
    with pytest.raises(dsc.InvalidArgError, match=r"rank 0: key 'a' is i64 \[2\], expected elements of f32"):
        world.broadcast_data(["a"], wrong, "float32")
    is_made = [x is y for x, y in zip(made, got.values())]
    return got["a"].read().tolist(), got["none"].shape, is_made


def test_named_arrays():
    elements = values(0, 6).reshape(2, 3).tolist()
    assert ranks(shares) == [(elements, (0, 2), []), (elements, (0, 2), [True, True])]


class Scalable(Interface):
    def __imul__(self, factor):
        self.write(self.read() * np.float32(factor))
        return self


def finishes(world):
    norms = [Scalable(values(world.rank, 4)), Scalable(values(world.rank, 3))]
    total = dsc.finalize_grads(norms, tensor=world, sequence_parallel=norms, data=world, num_tokens=2)
    return total, [norm.read().tolist() for norm in norms]


def test_the_end_of_a_step():
    sums = [((values(0, n) + values(1, n)) / 4).tolist() for n in (4, 3)]
    assert ranks(finishes) == [(4, sums)] * 2
