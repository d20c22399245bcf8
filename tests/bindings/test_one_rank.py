"""A world of one rank: every function can be called, and nothing is communicated."""

import asyncio
import gc
import select
import subprocess
import sys
import threading

import numpy as np
import pytest

import libdsc as dsc


def test_world(world):
    assert dsc.is_initialized() and dsc.world() is world
    assert (world.rank, world.size, world.local_rank, world.local_size) == (0, 1, 0, 1)
    assert (world.name, world.backend) == ("world", "host")
    assert repr(world) == "<libdsc.Communicator 'world', rank 0 of 1>"
    assert (world.global_rank(0), world.group_rank(0)) == (0, 0)
    assert (world.id, world.world_size, world.source) == (0, 1, "options")
    assert (world.master_addr, world.master_port, world.progress_thread) == ("127.0.0.1", 29500, True)
    assert world.start_report and "direct_bytes=" in world.tuning
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    assert world.environ() == {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"} | address
    assert world.error() is None


def test_launch_report(monkeypatch):
    """The report joins no world, so it works at any time."""
    monkeypatch.setenv("RANK", "3")
    report = dsc.launch_report()
    assert report["error"]["text"] == "RANK is set, but WORLD_SIZE is not" and report["start"] is None
    monkeypatch.setenv("WORLD_SIZE", "4")
    report = dsc.launch_report()
    assert report["error"] is None
    assert (report["start"]["source"], report["start"]["rank"], report["start"]["world_size"]) == ("environment", 3, 4)


def test_init_again(world):
    assert dsc.init_distributed() is world
    with pytest.raises(dsc.StateError, match="job_id"):
        dsc.init_distributed(rank=0, world_size=1, job_id="another")


WHILE_ANOTHER_THREAD_STARTS = """
import socket, subprocess, sys, threading, libdsc as dsc
with socket.socket() as place:
    place.bind(("127.0.0.1", 0))
    address = "tcp://127.0.0.1:%d" % place.getsockname()[1]
START = f"import libdsc as dsc; dsc.init_distributed(init_method={address!r}, world_size=2, init_timeout=40, rank="
dsc.read_log("debug")
starting = threading.Thread(target=lambda: exec(START + "0)"))
starting.start()
while not (dsc.read_log("debug") or (0, ""))[1].startswith("start-up: "):
    assert starting.is_alive()
later = threading.Timer(0.3, lambda: subprocess.run([sys.executable, "-c", START + "1); dsc.finalize()"]))
later.start()
print(dsc.init_distributed(require_existing=True).size)
dsc.finalize()
"""


def test_require_existing_waits_for_a_start_that_is_under_way():
    said = subprocess.run([sys.executable, "-c", WHILE_ANOTHER_THREAD_STARTS], capture_output=True, text=True, timeout=60)
    assert said.stdout == "2\n", said


def test_require_existing_looks_at_nothing_else(world, monkeypatch):
    monkeypatch.setenv("RANK", "first")
    monkeypatch.setenv("DSC_TUNING", "nonsense")
    assert dsc.init_distributed(require_existing=True) is world
    assert dsc.init_distributed(require_existing=True, timeout=-1, backend="nonsense", job_id="another") is world
    script = "import libdsc as dsc\ntry: dsc.init_distributed(require_existing=True)\nexcept dsc.StateError as e: print(e)"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout
    assert said == "init_distributed: no world exists, and require_existing is set\n"


def test_operations(world):
    x, out = np.arange(4.0), np.empty(4)
    world.all_reduce(x)
    world.all_reduce(x, op="avg", out=out)
    assert (x == np.arange(4)).all() and (out == x).all()
    world.broadcast(x)
    world.barrier()
    for gathered in (np.empty(4), np.empty((1, 4)), [np.empty(4)]):
        world.all_gather(gathered, x)
        assert (np.asarray(gathered).reshape(-1) == x).all()
    for source in (x, [x]):
        out[:] = 0
        world.reduce_scatter(out, source)
        assert (out == x).all()


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda w, x: w.all_reduce(x, out=np.empty(3)), "out has 3 elements; expected 4"),
        (lambda w, x: w.all_reduce(x, out=np.empty((2, 2))), r"out has shape \(2, 2\); expected \(4,\), like x"),
        (lambda w, x: w.reduce(x, out=np.empty((4, 1))), r"out has shape \(4, 1\); expected \(4,\), like x"),
        (lambda w, x: w.all_reduce(x, out=np.empty(4, "f4")), "out has element type f32; expected f64"),
        (lambda w, x: w.all_gather(np.empty(8), x), "out has 8 elements; expected 4"),
        (lambda w, x: w.all_gather([x, x], x), "out has 2 arrays; expected 1, one per rank"),
        (lambda w, x: w.all_gather([np.empty(3)], x), r"out\[0\] has 3 elements; expected 4"),
        (lambda w, x: w.reduce_scatter(np.empty(3), x), "x has 4 elements; expected 3"),
        (lambda w, x: w.all_reduce(x, op="mean"), 'op is "mean"; expected one of "sum", "prod"'),
        (lambda w, x: w.set_timeout(0), "timeout is 0; expected a number of seconds above 0"),
        (lambda w, x: w.broadcast(x, root=1), ""),
        (lambda w, x: w.send(x, 0), ""),
    ],
)
def test_wrong_arguments_are_value_errors(world, call, text):
    with pytest.raises(ValueError, match=text):
        call(world, np.zeros(4))


def test_errors_say_where(world):
    with pytest.raises(dsc.InvalidArgError, match="root") as caught:
        world.broadcast(np.zeros(4), root=5)
    assert caught.value.code == dsc.Result.ERR_INVALID_ARG
    assert (caught.value.op, caught.value.group, caught.value.rank) == ("broadcast", "world", None)
    with pytest.raises(dsc.UnsupportedError):
        world.all_reduce(np.zeros(4, np.int32), op="avg")


def test_work(world):
    x = np.ones(4)
    work = world.all_reduce(x, async_op=True)
    assert isinstance(work, dsc.Work) and "all_reduce" in repr(work)
    assert work.wait() is True and work.wait(0.1) is True and work.synchronize() is True
    assert work.test() is True and work.error() is None
    with pytest.raises(ValueError, match="completed"):
        work.fileno()


def test_work_in_a_poll_loop(world):
    work = world.barrier(async_op=True)
    readable, _, _ = select.select([work], [], [], 5)
    assert readable == [work] and work.test()


def test_await(world):
    async def main():
        x = np.ones(4)
        first, second = world.all_reduce(x, async_op=True), world.barrier(async_op=True)
        await asyncio.wait_for(asyncio.gather(first._wait_async(), first._wait_async(), second._wait_async()), 5)
        await second
        await world.all_reduce(x, async_op=True)

    asyncio.run(main())


def test_work_gathers_into_a_list(world):
    x, out = np.ones(4), [np.zeros(4)]
    world.all_gather(out, x, async_op=True).wait()
    assert (out[0] == 1).all()


def test_several_threads_wait_for_one_work(world):
    work = world.barrier(async_op=True)
    results = []
    threads = [threading.Thread(target=lambda: results.append(work.wait())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert results == [True] * 4


def test_groups(world):
    group = world.split(0, name="mine")
    assert (group.name, group.size) == ("mine", 1)
    assert world.split(None) is None
    with world.create_group([0], timeout=5) as listed:
        x = np.ones(3)
        listed.all_reduce(x)
    with pytest.raises(dsc.BadHandleError):
        listed.all_reduce(x)
    assert "closed" in repr(listed)
    listed.close()
    group.close()


def test_closed_objects_say_so_in_words_of_python(world):
    group = world.split(0)
    group.close()
    for call, name in (
        (lambda: group.backend, "backend"), (group.stats, "stats"), (group.trace, "trace"), (lambda: group.set_timeout(3), "set_timeout")
    ):
        with pytest.raises(dsc.BadHandleError, match="the object was closed, or its world was finalized") as caught:
            call()
        assert "dsc_" not in str(caught.value) and "NULL" not in str(caught.value)
    with pytest.raises(ValueError, match="^create_group: ranks has 2 entries, expected 1$"):
        world.create_group([0, 1])
    with pytest.raises(TypeError, match=r"use numpy.array\(\[x\]\)"):
        world.all_reduce(3.0)
    group = world.split(0)
    group.abort()
    with pytest.raises(dsc.RevokedError, match=r"^all_reduce: collective 1 \(all_reduce\)"):
        group.all_reduce(np.zeros(3))


def test_abort(world):
    group = world.split(0)
    group.abort()
    with pytest.raises(dsc.RevokedError) as caught:
        group.all_reduce(np.zeros(3))
    assert caught.value.group == group.name
    assert isinstance(group.error(), dsc.RevokedError)
    group.close()
    world.all_reduce(np.zeros(3))


def test_leaving_a_block_by_an_exception_aborts(world):
    with pytest.raises(KeyError):
        with world.split(0) as group:
            raise KeyError
    assert "closed" in repr(group)


def test_stats(world):
    group = world.split(0)
    x = np.zeros(100, np.float32)
    for _ in range(3):
        group.all_reduce(x)
    group.barrier()
    found = {record.op: record for record in group.stats()}
    assert found["all_reduce"].count == 3 and found["all_reduce"].bytes == 1200
    assert found["all_reduce"].bytes_class == 512 and found["barrier"].bytes == 0
    group.close()


def test_empty(world):
    x = world.empty((2, 3), "float64")
    assert x.shape == (2, 3) and x.dtype == np.float64 and (x == 0).all()
    assert x.ctypes.data % 4096 == 0 and x.flags.writeable
    assert world.empty(5, np.int32).shape == (5,)
    assert world.empty(5, "bf16").dtype == np.uint16
    assert world.empty((), "float32").shape == ()
    assert world.empty((0, 3)).shape == (0, 3)


def test_empty_lives_as_long_as_a_view(world):
    x = world.empty(1000, "int64")
    view = x[10:20].reshape(2, 5)
    del x
    gc.collect()
    view += 1  # crashes the process if the memory was freed
    world.all_reduce(view)
    assert (view == 1).all()


def test_reducer(world):
    params = [np.ones((2, 3)), np.zeros(4), np.zeros(2, np.float32)]
    with dsc.BucketReducer(world, params, names=["w", "b", "s"]) as reducer:
        assert sorted(index for bucket in reducer.buckets for index in bucket) == [0, 1, 2]
        grads = [np.full((2, 3), 2.0), np.full(4, 3.0)]
        reducer.begin()
        reducer.accumulate(1, np.ones(4))
        reducer.mark_ready(1, grads[1])
        reducer.mark_ready(0, grads[0])
        reducer.grad_view(2)[:] = 5
        reducer.mark_ready(2)
        reducer.finish()
        assert (grads[0] == 2).all() and (grads[1] == 4).all() and (reducer.grad_view(2) == 5).all()
        assert reducer.grad_view(0).shape == (2, 3) and reducer.grad_view(2).dtype == np.float32
        assert reducer.stats() is not None
    with pytest.raises(dsc.BadHandleError):
        reducer.begin()


def test_reducer_takes_its_buckets(world):
    params = [np.zeros(3), np.zeros(3), np.zeros(3)]
    with dsc.BucketReducer(world, params, buckets=[[2], [0, 1]]) as reducer:
        assert reducer.buckets == [[2], [0, 1]]
    with pytest.raises(dsc.InvalidArgError):
        dsc.BucketReducer(world, params, buckets=[[2], [0]])


def test_reducer_refusals(world):
    with dsc.BucketReducer(world, [np.zeros(3)], names=["weight"]) as reducer:
        reducer.begin()
        with pytest.raises(ValueError, match="grad has 4 elements of f64; parameter 0 has 3 of f64"):
            reducer.mark_ready(0, np.zeros(4))
        with pytest.raises(IndexError, match="there is no parameter 1; the number of parameters is 1"):
            reducer.mark_ready(1, np.zeros(3))
        with pytest.raises(ValueError, match="grad is not contiguous"):
            reducer.mark_ready(0, np.zeros(6)[::2])
        with pytest.raises(dsc.StateError, match="weight") as caught:
            reducer.finish()
        assert caught.value.op == "bucket_reducer_finish"
    with pytest.raises(ValueError, match="names has 2 entries; expected 1"):
        dsc.BucketReducer(world, [np.zeros(3)], names=["a", "b"])
    with pytest.raises(ValueError, match='average is "median"; expected one of "pre", "post", "none", "pytorch"'):
        dsc.BucketReducer(world, [np.zeros(3)], average="median")
    with pytest.raises(ValueError, match=r"params\[1\] is not contiguous"):
        dsc.BucketReducer(world, [np.zeros(3), np.zeros(6)[::2]])


def test_gradients_have_the_shape_of_their_parameter_or_none(world):
    with dsc.BucketReducer(world, [np.zeros((2, 8)), np.zeros(())], sync=False) as reducer:
        reducer.begin()
        for call in (reducer.mark_ready, reducer.accumulate):
            with pytest.raises(ValueError, match=r"grad has shape \(8, 2\); parameter 0 has \(2, 8\)"):
                call(0, np.zeros((8, 2)))
        reducer.accumulate(0, np.ones(16))  # a flat array
        reducer.accumulate(0, np.ones((2, 8)))
        reducer.mark_ready(0)
        reducer.mark_ready(1, np.ones(1))
        reducer.finish()
        assert (reducer.grad_view(0) == 2).all()


def test_a_view_outlives_its_reducer(world):
    reducer = dsc.BucketReducer(world, [np.zeros(1000)])
    view = reducer.grad_view(0)
    reducer.close()
    reducer.close()
    gc.collect()
    view[:] = 1  # crashes the process if the memory was freed


def test_parameters(world):
    arrays = [np.zeros((2, 3)), np.zeros(4, np.float32)]
    dsc.verify_params(world, arrays)
    dsc.broadcast_coalesced(world, arrays, root=0, buffer_bytes=16)
    dsc.verify_params(world, [])


def test_log_callback(world):
    records, arrived = [], threading.Event()

    def receive(level, message):
        records.append((level, message))
        arrived.set()

    dsc.set_log(receive, level="debug")
    dsc.init_distributed()  # returns the existing world and logs that
    world.split(0).close()
    assert arrived.wait(5)
    dsc.set_log(None)
    assert all(level in ("error", "warn", "info", "debug") and message for level, message in records)
    count = len(records)
    world.split(0).close()
    assert len(records) == count


def test_log_polled(world):
    while dsc.read_log("debug"):
        pass
    dsc.init_distributed()
    world.split(0).close()
    level, message = dsc.read_log("debug")
    assert level in ("error", "warn", "info", "debug") and message
    dsc.read_log("off")


def test_torch_tensors_are_used_in_place(world):
    torch = pytest.importorskip("torch", minversion="2.14")
    x = torch.arange(4, dtype=torch.float32)
    out = torch.empty(4)
    world.all_reduce(x, out=out)
    assert torch.equal(x, out)
