"""Several ranks, each a process made by spawn()."""

import contextlib
import gc
import io
import json
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import libdsc as dsc

SECONDS = 60  # the time limit of a job


def ranks(n, body, *args):
    """Runs body(world, *args) on n ranks and returns the results."""
    return dsc.spawn(_in_world, n, (body, *args), timeout=SECONDS)


def _in_world(rank, body, *args):
    world = dsc.init_distributed(init_timeout=30, timeout=30)
    assert world.rank == rank
    result = body(world, *args)
    dsc.finalize()
    return result


def finalizes_beside_a_call(world):
    """Only one thread at a time may be in a call on a communicator. This includes finalize()."""
    pair, told = world.split(0), "nothing"
    if world.rank == 0:
        waiting = threading.Thread(target=world.barrier)
        waiting.start()
        time.sleep(0.5)  # time for the thread to enter its call, which ends only after the other rank has joined
        try:
            dsc.finalize()
        except dsc.BusyError:
            told = "busy"
        pair.barrier()
        waiting.join()
    else:
        pair.barrier()
        world.barrier()
    return told, dsc.is_initialized()  # finalize() works afterwards


def test_finalize_beside_a_call_is_refused():
    assert ranks(2, finalizes_beside_a_call) == [("busy", True), ("nothing", True)]


def reduces(world):
    x = np.full(1000, world.rank, np.float32)
    world.all_reduce(x)
    least, most, mean = (np.full(3, float(world.rank)) for _ in range(3))
    world.all_reduce(least, op="min")
    world.all_reduce(most, op="max")
    world.all_reduce(mean, op="avg")
    return x[0], x[-1], least[0], most[2], mean[1]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_all_reduce(n):
    total = n * (n - 1) / 2
    assert ranks(n, reduces) == [(total, total, 0, n - 1, total / n)] * n


def passes_on(world):
    """Returns the environment that a child process gets and what the child does with it."""
    code = "import json, libdsc as dsc; print(json.dumps(dsc.launch_report()['start']))"
    command = [sys.executable, "-c", code]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DSC_JOB", "DSC_LAUNCHER"))}
    start = json.loads(subprocess.run(command, env=clean | world.environ(), capture_output=True, check=True).stdout)
    group = world.split(world.rank % 2)
    return start, (group.environ()["RANK"], group.environ()["WORLD_SIZE"], group.environ()["LOCAL_RANK"])


def test_environment_for_others():
    for rank, (start, group) in enumerate(ranks(3, passes_on)):
        assert (start["source"], start["rank"], start["world_size"]) == ("environment", rank, 3)
        assert (start["local_rank"], start["local_world_size"]) == (rank, 3)
        assert start["master_addr"] == "127.0.0.1" and start["master_port_from"] == "MASTER_PORT"
        assert group == (str(rank // 2), str(2 - rank % 2), str(rank))


def moves(world):
    n, rank = world.size, world.rank
    x = np.array([rank, 10 * rank], np.int64)
    flat, listed = np.empty(2 * n, np.int64), [np.empty(2, np.int64) for _ in range(n)]
    world.all_gather(flat, x)
    world.all_gather(listed, x)
    assert (flat == np.concatenate(listed)).all()
    in_place = np.zeros((n, 2), np.int64)
    in_place[rank] = x
    world.all_gather(in_place, in_place[rank])
    assert (in_place.reshape(-1) == flat).all()
    part, again = np.empty(2, np.int64), np.empty(2, np.int64)
    world.reduce_scatter(part, flat)
    world.reduce_scatter(again, listed)
    assert (part == again).all()
    four = np.array([4 if rank == 0 else 0])
    world.broadcast(four, root=0)
    world.barrier()
    return flat.tolist(), part.tolist(), four[0]


def test_gather_scatter_broadcast():
    flat = [0, 0, 1, 10, 2, 20]
    assert ranks(3, moves) == [(flat, [3 * r, 30 * r], 4) for r in range(3)]


def bf16(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def reduces_bf16(world):
    x = bf16([1.5, -2.0])
    world.all_reduce(x, dtype="bf16")
    return x.tolist()


def test_bf16_in_an_array_of_uint16():
    assert ranks(2, reduces_bf16) == [bf16([3.0, -4.0]).tolist()] * 2


def exchanges(world):
    peer = 1 - world.rank
    theirs = np.zeros(5)
    received = world.irecv(theirs, peer)
    sent = world.isend(np.full(5, float(world.rank)), peer)  # only the work still refers to that array
    gc.collect()
    assert received.wait(20) and sent.wait(20)
    if world.rank == 0:
        world.send(np.arange(3), peer)
    else:
        last = np.zeros(3, int)
        world.recv(last, peer)
        assert last.tolist() == [0, 1, 2]
    return theirs.tolist()


def test_send_and_receive():
    assert ranks(2, exchanges) == [[1.0] * 5, [0.0] * 5]


def drops_works(world):
    out = np.zeros(1000)
    for _ in range(50):
        world.all_reduce(np.ones(100_000), async_op=True)  # the program keeps neither the array nor the work
    world.all_gather([out[:500], out[500:]], np.full(500, world.rank + 1.0), async_op=True)
    gc.collect()
    world.barrier()
    for _ in range(1000):
        late = np.array([float(out[-1] == 0)])
        # lets the library release completed works; all ranks agree on the result
        world.all_reduce(late, op="max", async_op=True).wait()
        if late[0] == 0:
            break
    return out[0], out[-1]


def test_dropped_works_finish_by_themselves():
    assert ranks(2, drops_works) == [(1.0, 2.0)] * 2


def waits_with_a_time_out(world):
    x = np.zeros(3)
    if world.rank == 0:
        work = world.irecv(x, 1)
        started = time.monotonic()
        assert work.wait(0.2) is False and 0.15 < time.monotonic() - started < 15
        assert work.test() is False and work.error() is None
        world.barrier()
        assert work.wait(20) is True
    else:
        world.barrier()
        world.send(np.ones(3), 0)
    return x[0]


def test_a_wait_that_times_out_ends_nothing():
    assert ranks(2, waits_with_a_time_out) == [1.0, 0.0]


async def gathers(world):
    import asyncio

    x, y = np.full(3, world.rank + 1.0), np.full(3, 2.0)
    first, second = world.all_reduce(x, async_op=True), world.all_reduce(y, op="prod", async_op=True)

    async def both():
        await second
        await first

    await asyncio.wait_for(both(), 20)
    return x[0], y[0]


def awaits(world):
    import asyncio

    return asyncio.run(gathers(world))


def test_await():
    assert ranks(3, awaits) == [(6.0, 8.0)] * 3


def makes_groups(world):
    halves = world.split(world.rank % 2, key=-world.rank)
    outer = world.create_group([3, 0], name="outer")
    total = np.array([world.rank])
    halves.all_reduce(total)
    names = None
    if outer is not None:
        names = (outer.name, outer.rank, outer.global_rank(0), outer.group_rank(1))
        outer.barrier()
    assert world.split(None if world.rank else 0) is None or world.rank == 0
    return halves.rank, total[0], names


def test_groups():
    assert ranks(4, makes_groups) == [
        (1, 2, ("outer", 1, 3, None)),
        (1, 4, None),
        (0, 2, None),
        (0, 4, ("outer", 0, 3, None)),
    ]


def uses_shared_memory(world):
    x = world.empty((4, 256), "float32")
    x[:] = world.rank + 1
    half = world.split(0)
    half.all_reduce(x)
    world.all_reduce(x[1])
    return float(x[0, 0]), float(x[1, 255])


def test_shared_memory():
    assert ranks(2, uses_shared_memory) == [(3.0, 6.0)] * 2


def trains(world, average):
    rng = np.random.default_rng(world.rank)
    params = [rng.standard_normal((20, 30)), rng.standard_normal(30), rng.standard_normal(7)]
    reducer = dsc.BucketReducer(world, params, bucket_bytes=1024, first_bucket_bytes=256, average=average)
    results = []
    for step in range(3):
        grads = [np.full(p.shape, (world.rank + 1.0) * (step + 1)) for p in params]
        reducer.begin()
        reducer.mark_ready(2, grads[2])
        if world.rank == 0:
            reducer.mark_unused(1)
        else:
            reducer.mark_ready(1, grads[1])
        reducer.grad_view(0)[:] = grads[0]
        reducer.mark_ready(0)
        reducer.finish()
        results.append((float(reducer.grad_view(0)[3, 3]), float(reducer.grad_view(1)[0]), float(grads[2][6])))
    sums = [float(p.sum()) for p in params]
    buckets = reducer.buckets
    reducer.close()
    return results, sums, buckets


@pytest.mark.parametrize("average, scale", [("pre", 0.5), ("post", 0.5), ("none", 1)])
def test_reducer(average, scale):
    first, second = ranks(2, trains, average)
    assert first == second
    assert first[0] == [(3.0 * s * scale, 2.0 * s * scale, 3.0 * s * scale) for s in (1, 2, 3)]
    assert len(first[2]) > 1


def disagrees(world):
    with pytest.raises(dsc.MismatchError) as caught:
        dsc.verify_params(world, [np.zeros(3 + world.rank)], names=["weight"])
    assert "weight" in str(caught.value)
    world.barrier()
    arrays = [np.full(5, world.rank), np.full((2, 2), float(world.rank))]
    dsc.broadcast_coalesced(world, arrays, root=1, buffer_bytes=8)
    sums = [np.full(5, world.rank), np.full((2, 2), float(world.rank)), np.ones(3)]
    dsc.all_reduce_coalesced(world, sums)
    dsc.all_reduce_coalesced(world, sums[2:], op=dsc.premul(0.25))
    return arrays[0][4], arrays[1][1, 1], sums[0][4], sums[1][1, 1], sums[2][2]


def test_parameters():
    assert ranks(2, disagrees) == [(1, 1.0, 1, 1.0, 1.0)] * 2


def differs(world):
    x = np.full(4 + world.rank, 7.0)
    with pytest.raises(dsc.MismatchError) as caught:
        world.all_reduce(x)
    assert (x == 7).all()
    assert caught.value.op == "all_reduce" and caught.value.group == "world"
    assert isinstance(world.error(), dsc.MismatchError)
    with pytest.raises(dsc.RevokedError):
        world.barrier()
    return caught.value.rank


def differs_in_a_list(world):
    with pytest.raises(dsc.MismatchError) as caught:
        dsc.all_reduce_coalesced(world, [np.ones(3), np.ones(4 + world.rank)])
    assert "rank 0: all_reduce(sum, f64, 7, 2 tensors, [0]: 3, [1]: 4); rank 1: " in str(caught.value), caught.value
    assert "[0]: 3, [1]: 5)" in str(caught.value) and caught.value.index is None


def _differs(rank):
    world = dsc.init_distributed()
    differs_in_a_list(world.split(0))
    return differs(world)


def test_mismatch():
    found = dsc.spawn(_differs, 2, timeout=SECONDS)
    assert all(rank in (0, 1) for rank in found)


def _times_out(rank, told):
    world = dsc.init_distributed()
    world.set_timeout(0.5)
    if rank == 1:
        while not told.exists():
            time.sleep(0.01)
        return None
    started = time.monotonic()
    with pytest.raises(TimeoutError) as caught:
        world.barrier()
    assert 0.4 < time.monotonic() - started < 15
    told.touch()
    return type(caught.value).__name__, caught.value.rank, caught.value.ranks


def test_time_out_names_the_missing_rank(tmp_path):
    assert dsc.spawn(_times_out, 2, (tmp_path / "told",), timeout=SECONDS)[0] == ("TimeoutError", 1, (1,))


def waits_in_a_circle(world, call):
    x, n = np.zeros(200_000), world.size
    world.set_timeout(0.5)
    with pytest.raises(dsc.TimeoutError) as caught:
        world.recv(x, (world.rank + 1) % n) if call == "recv" else world.send(x, (world.rank + 1) % n)
    return caught.value.message.partition("s: ")[2], caught.value.ranks


@pytest.mark.parametrize("n, call, verb", [(2, "recv", "receives from"), (2, "send", "sends to"), (3, "recv", "receives from")])
def test_ranks_that_wait_for_each_other_are_all_named(n, call, verb):
    for text, blamed in ranks(n, waits_in_a_circle, call):
        assert blamed == tuple(range(n)), (text, blamed)
        assert all(f"rank {r} {verb} rank {(r + 1) % n}" in text for r in range(n)), text


def comes_too_late(world):
    world.set_timeout(0.5)
    if world.rank == 1:
        while world.error() is None:
            time.sleep(0.01)
    with pytest.raises(dsc.TimeoutError) as caught:
        world.barrier()
    return caught.value.message


def test_a_rank_that_comes_too_late_is_told_so():
    first, late = ranks(2, comes_too_late)
    assert "rank 1 (pid " in first and "arrived late" not in first
    assert late.endswith("this is rank 1, which arrived late")


def sends_what_nobody_receives(world):
    """Rank 0 waits for a message, the other ranks wait in a broadcast that times out first."""
    world.timeout = 0.5
    with pytest.raises(dsc.TimeoutError) as caught:
        if world.rank == 0:
            world.timeout = 30
            world.send(np.ones(4), 1)
        world.broadcast(np.ones(4))
    return caught.value.message, caught.value.ranks


def test_an_error_names_the_operation_that_failed_first():
    texts = ranks(3, sends_what_nobody_receives)
    assert [blamed for _, blamed in texts] == [(0,)] * 3
    assert "on rank 0 of 3: collective 1 (broadcast) failed: rank 0 (pid " in texts[0][0] and "arrived late" not in texts[0][0]
    for text, _ in texts[1:]:
        assert text.startswith("broadcast: collective 1 (broadcast) of group") and "failed" not in text, text
        assert text.endswith("last send number 1 to rank 1"), text


def calls_differ(world):
    """First the two ends of a message differ, then two operations. Each is the first operation of its group."""
    texts = []
    for mine in (
        lambda group: group.send(np.ones(3), 1) if world.rank == 0 else group.recv(np.ones(2), 0),
        lambda group: group.all_reduce(np.ones(2)) if world.rank == 0 else group.broadcast(np.ones(2)),
    ):
        with pytest.raises(dsc.MismatchError) as caught:
            mine(world.split(0))
        texts.append(caught.value.message)
    return texts


def test_no_end_of_a_mismatch_came_first():
    for texts in ranks(2, calls_differ):
        assert not any("failed" in text for text in texts), texts
        assert "the two ends of a message differ" in texts[0] and "ranks called different operations" in texts[1]


def forks(world):
    child = os.fork()
    if child == 0:
        try:
            world.barrier()
        except dsc.ForkedError:
            os._exit(7)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    world.barrier()
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_is_refused():
    assert ranks(2, forks) == [7, 7]


def test_ranks_as_threads_of_one_process():
    results = {}

    def body(rank):
        world = dsc.init_distributed(rank=rank, world_size=3, rank_per_thread=True, job_id=f"threads-{os.getpid()}")
        assert dsc.world() is world
        total = np.array([rank + 1])
        world.all_reduce(total)
        results[rank] = (world.rank, int(total[0]))
        dsc.finalize()

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert results == {rank: (rank, 6) for rank in range(3)}


def finalizes_alone(rank, done):
    """Rank 1 runs but never joins."""
    world = dsc.init_distributed(timeout=30)
    world.barrier()
    if rank == 1:
        while not done.exists():
            time.sleep(0.01)
        return None
    world.set_timeout(0.2)
    with pytest.raises(dsc.TimeoutError) as caught:
        dsc.finalize()
    done.touch()
    return caught.value.rank, caught.value.ranks, str(caught.value).startswith("finalize: collective ")


def test_an_error_of_finalize_has_the_ranks_at_fault(tmp_path):
    assert dsc.spawn(finalizes_alone, 2, (tmp_path / "done",), timeout=SECONDS)[0] == (1, (1,), True)


def prints_summary(world):
    text = io.StringIO()
    world.barrier()
    world.log_summary(file=text)
    return text.getvalue()


def test_the_summary_is_printed_once():
    first, second = ranks(2, prints_summary)
    assert "barrier" in first and first.count("rank 0 of 2") == 1 and second == ""


def monitors(world, told):
    """Returns how long the barrier says that it waited, for each way to set the time-out. Rank 0 never joins."""
    world.set_timeout(2)
    groups = [world.split(0), world.split(0, timeout=0.3), world]
    groups[0].monitored_barrier()
    said = []
    for group in groups if world.rank == 1 else ():
        with pytest.raises(TimeoutError) as caught:
            group.monitored_barrier()
        said.append(float(re.search(r"did not arrive within (.*?) s", str(caught.value))[1]))
    while world.rank == 0 and not told.exists():
        time.sleep(0.01)
    told.touch()
    return said


def in_own_world(rank, told):
    world = dsc.init_distributed(timeout=20)
    said = monitors(world, told)
    with contextlib.suppress(dsc.DscError):  # the world has failed
        dsc.finalize()
    return said


def test_monitored_barrier_waits_as_long_as_its_communicator(tmp_path):
    none, (inherited, own, of_the_world) = dsc.spawn(in_own_world, 2, (tmp_path / "told",), timeout=SECONDS)
    assert none == [] and inherited >= 2 and 0.3 <= own < 2 and of_the_world >= 2, (inherited, own, of_the_world)


def test_a_world_has_the_time_out_that_it_was_given(world):
    assert world.timeout == 300
    group, hurried = world.split(0), world.split(0, timeout=1.5)
    world.timeout = 3
    assert (world.timeout, group.timeout, hurried.timeout) == (3, 300, 1.5)
    with pytest.raises(ValueError, match="timeout is 0; expected a number of seconds above 0"):
        world.timeout = 0
    world.set_timeout(300)
