"""Groups of a process group "dsc": how they are made, how they fail and how they end."""

import os
import re
import signal
import time
from datetime import timedelta

import pytest
import torch_ranks as ranks
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

import libdsc
import libdsc.torch

# Before 2.15 torch splits only groups that are bound to a GPU.
SPLITS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
BOTH = pytest.mark.parametrize("hosts", [None, [0, 1, 1]], ids=["one host", "two hosts"])


def total(x, group=None):
    dist.all_reduce(x, group=group)
    return x.tolist()


# ---- making groups ---------------------------------------------------------------------------------------------------


def several_groups(rank):
    size = dist.get_world_size()
    assert dist.get_backend() == "dsc" and isinstance(dist.group.WORLD, libdsc.torch.ProcessGroup)
    assert "dsc" in dist.get_backend_config()
    pair = dist.new_group([2, 0])  # torch sorts these ranks
    alone = dist.new_group([1])
    found = [total(torch.tensor([float(rank)]))[0]]
    for group in (pair, alone):
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            found.append((dist.get_group_rank(group, rank), total(torch.tensor([float(rank)]), group)[0]))
    halves, _ = dist.new_subgroups_by_enumeration([[0, 1], [2]])
    found.append(total(torch.tensor([1.0]), halves)[0])
    if SPLITS:
        found += splits(rank)
    if rank != 1:
        # from now on torch numbers groups differently on each rank
        local = dist.new_group([0, 2], use_local_synchronization=True)
        assert total(torch.tensor([1.0]), local) == [2.0]
    dist.barrier()
    dist.destroy_process_group(pair if rank != 1 else alone)
    assert total(torch.tensor([1.0])) == [size]
    return found


def splits(rank):
    split = dist.split_group(split_ranks=[[1, 0], [2]])
    found = [split.rank(), total(torch.tensor([float(rank)]), split)[0]]
    part = dist.split_group(split_ranks=[[0, 1]])
    dist.barrier()
    dist.destroy_process_group(split)
    return [*found, None if part is dist.GroupMember.NON_GROUP_MEMBER else total(torch.tensor([1.0]), part)[0]]


@BOTH
def test_new_groups_and_splits(hosts):
    expected = [
        ([3.0, (0, 2.0), 2.0], [1, 1.0, 2.0]),
        ([3.0, (0, 1.0), 2.0], [0, 1.0, 2.0]),
        ([3.0, (1, 2.0), 1.0], [0, 2.0, None]),
    ]
    found = ranks.run(3, several_groups, hosts=hosts)
    assert found == [groups + parts if SPLITS else groups for groups, parts in expected]


def again(rank, folder):
    sums = []
    for number in range(3):
        dist.init_process_group("dsc", init_method=f"file://{folder}/{number}", rank=rank, world_size=2)
        sums.append(total(torch.tensor([1.0 + number]))[0])
        dist.destroy_process_group()
    # like torchrun's agent, which keeps one store for all groups of a process
    store = dist.FileStore(f"{folder}/same", 2)
    for number in range(3):
        dist.init_process_group("dsc", store=store, rank=rank, world_size=2)
        sums.append(total(torch.tensor([1.0 + number]))[0])
        dist.destroy_process_group()
    return sums


def test_one_world_after_another(tmp_path):
    assert ranks.run(2, again, str(tmp_path), backend=None) == [[2.0, 4.0, 6.0, 2.0, 4.0, 6.0]] * 2


def other_devices(rank):
    """GPUs are assigned to another library. torch then needs a Backend object and calls its operations through C++."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert isinstance(backend, libdsc.torch.Backend) and not isinstance(dist.group.WORLD, libdsc.torch.ProcessGroup)
    x = torch.tensor([1.0])
    dist.all_reduce(x)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    out = [torch.empty(1) for _ in range(2)]
    dist.all_gather(out, x)
    dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, out[0], 1 - rank)])[0].wait()
    dist.monitored_barrier()
    return x.item(), libdsc.torch.communicator().size


def test_beside_another_library_for_gpus():
    assert ranks.run(2, other_devices, backend="cpu:dsc,cuda:gloo") == [(4.0, 2)] * 2


def in_place_of_gloo(rank):
    libdsc.torch.replace_gloo()
    dist.init_process_group("gloo", store=dist.FileStore(os.environ["STORE"], 2), rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    model(torch.ones(1, 2)).sum().backward()
    return dist.get_backend(), type(dist.group.WORLD).__module__, total(torch.tensor([1.0]))


def test_in_place_of_gloo(tmp_path, monkeypatch):
    monkeypatch.setenv("STORE", str(tmp_path / "store"))
    assert ranks.run(2, in_place_of_gloo, backend=None) == [("gloo", "libdsc.torch._backend", [2.0])] * 2


def own_communicator(rank):
    comm = libdsc.torch.communicator()
    x = torch.tensor([1.0])
    comm.all_reduce(x)
    with pytest.raises(TypeError, match="without the backend dsc"):
        libdsc.torch.communicator(dist.new_group(backend="gloo"))
    pair = dist.new_group([1, 0])
    return x.item(), comm.rank, libdsc.torch.communicator(pair).rank


def test_communicator():
    assert ranks.run(2, own_communicator) == [(2.0, 0, 0), (2.0, 1, 1)]


# ---- messages --------------------------------------------------------------------------------------------------------


def messages(rank):
    size = dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    x, y = torch.full((100_000,), float(rank)), torch.empty(100_000)
    works = [dist.isend(x, right), dist.irecv(y, left)]  # all ranks send first
    for work in works:
        work.wait()
    assert y[0] == left and all(work.is_completed() for work in works)
    ops = [dist.P2POp(dist.isend, x, right, tag=3), dist.P2POp(dist.irecv, y.zero_(), left, tag=3)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert y[-1] == left
    if rank == 0:
        froms = []
        for _ in range(2 * (size - 1)):
            froms.append(dist.recv(y, tag=7))
            assert y[5] == froms[-1]
        assert sorted(froms) == sorted([*range(1, size)] * 2)
        pending = dist.irecv(y)  # a receive from any rank stays open during a barrier, which must not disturb it
        dist.barrier()
        pending.wait()
        assert y[0] == 2 == pending._source_rank()
    else:
        for _ in range(2):
            dist.send(x, 0, tag=7)
        if rank == 2:
            dist.send(x, 0)
        dist.barrier()
    objects = [None]
    if rank == 1:
        dist.send_object_list([{"a": 1}], 2)
    if rank == 2:
        dist.recv_object_list(objects, 1)
        assert objects == [{"a": 1}]
    dist.barrier()


@BOTH
def test_messages(hosts):
    ranks.run(3, messages, hosts=hosts)


def wrong_tags(rank):
    x = torch.ones(3)
    if rank == 0:
        works = [dist.isend(x, 1, tag=1), dist.isend(x, 1, tag=2)]
        for work in works:
            work.wait()
    else:
        with pytest.raises(libdsc.torch.Error, match="rank 0 sent a message with tag 1, but this rank receives a message with tag 2"):
            dist.recv(x, 0, tag=2)
        with pytest.raises(libdsc.torch.Error, match="tag 2, but this rank receives a message with tag 1"):
            dist.recv(x, 0, tag=1)
    dist.barrier()  # the group still works


def test_tags_are_compared():
    ranks.run(2, wrong_tags)


# ---- failures --------------------------------------------------------------------------------------------------------


def killed(rank, operation):
    dist.barrier()
    pids = [None] * dist.get_world_size()
    dist.all_gather_object(pids, os.getpid())
    if rank == 1:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    begin_s = time.monotonic()
    with pytest.raises(dist.DistBackendError) as raised:
        while True:
            operation()
    took_s = time.monotonic() - begin_s
    error = raised.value
    cause = error.__cause__
    return str(error), took_s, isinstance(cause, libdsc.DscError), pids[1], dist.group.WORLD.get_error()


def reduce_once():
    dist.all_reduce(torch.ones(1000))


def reduce_later():
    dist.all_reduce(torch.ones(1000), async_op=True).wait()


def reduce_by_future():
    dist.all_reduce(torch.ones(1000), async_op=True).get_future().wait()


def step():
    if not hasattr(step, "model"):
        step.model = torch.nn.Linear(4, 1)
    # The constructor checks the parameters by a collective, too.
    torch.nn.parallel.DistributedDataParallel(step.model)(torch.ones(2, 4)).sum().backward()


@pytest.mark.parametrize("operation", [reduce_once, reduce_later], ids=["blocking", "asynchronous"])
@BOTH
def test_a_killed_rank_ends_the_others(operation, hosts):
    for result in ranks.run(3, killed, operation, hosts=hosts, lost=[1]):
        if result is None:
            continue
        text, took_s, has_cause, pid, state = result
        assert f"rank 1 (pid {pid}" in text or "(rank 1)" in text or "failed before" in text, text
        assert took_s < 20 and has_cause and state == ErrorType.REMOTE_ERROR, result


def killed_in_future(rank, operation):
    """An exception that passes through a future or through torch's C++ code keeps its text, but not always its
    class."""
    dist.barrier()
    if rank == 1:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(Exception) as raised:
        while True:
            operation()
    return str(raised.value)


@pytest.mark.parametrize("operation", [reduce_by_future, step], ids=["future", "DistributedDataParallel"])
def test_a_killed_rank_ends_what_waits_in_torch(operation):
    for text in filter(None, ranks.run(3, killed_in_future, operation, lost=[1])):
        assert re.search(r"rank 1|failed before", text), text


def late(rank):
    if rank == 0:
        begin_s = time.monotonic()
        with pytest.raises(libdsc.torch.Error, match=r"rank 1 \(pid \d+\) did not arrive within .*timeout") as raised:
            dist.all_reduce(torch.ones(3))
        assert raised.value.ranks == (1,) and raised.value.op == "all_reduce"
        assert 0.9 < time.monotonic() - begin_s < 20
        assert dist.group.WORLD.get_error() == ErrorType.TIMEOUT
    else:
        time.sleep(3)
        with pytest.raises(libdsc.torch.Error, match="failed earlier|arrived late"):
            dist.all_reduce(torch.ones(3))


def test_time_outs():
    ranks.run(2, late, timeout_s=1)


def own_time_outs(rank):
    dist.distributed_c10d.set_timeout(timedelta(seconds=1)) if hasattr(dist.distributed_c10d, "set_timeout") else (
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1))
    )
    if rank == 0:
        work = dist.irecv(torch.empty(3), 1)
        with pytest.raises(libdsc.torch.Error, match="did not complete within 0.1 s"):
            work.wait(timedelta(milliseconds=100))
        with pytest.raises(libdsc.torch.Error, match="did not arrive within 1.0 s"):
            work.wait()
    else:
        time.sleep(2.5)


def test_time_outs_of_a_wait_and_of_a_group():
    ranks.run(2, own_time_outs)


def monitored(rank):
    limit = timedelta(milliseconds=300)
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    if rank == 0:
        with pytest.raises(RuntimeError, match=r"Ranks 1, 2 failed to pass monitoredBarrier in 300 ms"):
            dist.monitored_barrier(timeout=limit, wait_all_ranks=True)
    else:
        time.sleep(1.5)


def test_monitored_barrier_names_who_did_not_come():
    ranks.run(3, monitored)


def different(rank):
    with pytest.raises(dist.DistBackendError, match="all_reduce"):
        if rank == 0:
            dist.all_reduce(torch.ones(3))
        else:
            dist.all_reduce(torch.ones(4))
    assert dist.group.WORLD.get_error() == ErrorType.COMM_ERROR


@BOTH
def test_ranks_that_call_different_things(hosts):
    ranks.run(3, different, hosts=hosts)


def aborted(rank):
    other = dist.new_group([0, 1])
    if rank == 0:
        time.sleep(0.3)
        other.abort()
        with pytest.raises(libdsc.torch.Error, match="was shut down or aborted"):
            dist.all_reduce(torch.ones(1), group=other)
    else:
        with pytest.raises(libdsc.torch.Error, match="aborted"):
            dist.all_reduce(torch.ones(1), group=other)
    return total(torch.tensor([1.0]))  # the other group still works


def test_abort_ends_one_group():
    assert ranks.run(2, aborted) == [[2.0]] * 2


def left(rank):
    other = dist.new_group([0, 1])
    if rank == 0:
        dist.destroy_process_group(other)
    else:
        with pytest.raises(libdsc.torch.Error, match=r"rank 0 \(pid \d+\) has left"):
            dist.all_reduce(torch.ones(1), group=other)
    return total(torch.tensor([1.0]))


def test_who_leaves_keeps_nobody_waiting():
    assert ranks.run(2, left) == [[2.0]] * 2


def shrunk(rank):
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError):
        while True:
            dist.all_reduce(torch.ones(1))
    group = dist.shrink_group([1], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    assert dist.get_world_size() == 2 and dist.get_rank() == (0 if rank == 0 else 1)
    return total(torch.tensor([1.0]), group)


def test_shrink_group_goes_on_without_the_dead():
    assert ranks.run(3, shrunk, lost=[1]) == [[2.0], None, [2.0]]


def cannot_shrink(rank):
    if rank != 2:
        with pytest.raises(libdsc.torch.Error, match="host"):
            dist.shrink_group([2])


def test_a_group_of_several_hosts_cannot_shrink_yet():
    ranks.run(3, cannot_shrink, hosts=[0, 1, 1])


def never(rank, folder):
    if rank == 0:
        begin_s = time.monotonic()
        with pytest.raises(Exception) as raised:
            dist.init_process_group("dsc", init_method=f"file://{folder}/store", rank=0, world_size=2, timeout=timedelta(seconds=2))
        assert time.monotonic() - begin_s < 30
        return str(raised.value)
    return None


def test_a_rank_that_never_joins(tmp_path):
    text = ranks.run(2, never, str(tmp_path), backend=None)[0]
    assert "rank 1" in text or "worker" in text, text  # torch's own store may time out first, with its own text


def wrong_arguments(rank):
    with pytest.raises(ValueError, match="split sizes of input add up to 3; expected 4, the number of its rows"):
        dist.all_to_all_single(torch.empty(4), torch.empty(4), [2, 2], [1, 2])
    with pytest.raises(TypeError, match="cannot be reduced"):
        dist.all_reduce(torch.empty(1, dtype=torch.bits8))
    with pytest.raises(ValueError, match="layout"):
        dist.broadcast(torch.eye(2).to_sparse(), 0)
    with pytest.raises((ValueError, RuntimeError)):
        dist.broadcast(torch.ones(1), 5)
    return total(torch.tensor([1.0]))


def test_wrong_arguments_touch_nobody():
    assert ranks.run(2, wrong_arguments) == [[2.0]] * 2


# ---- bugs that a review found ----------------------------------------------------------------------------------------


def outputs_in_another_order(rank):
    shape = (1, 2, 2, 2)
    ours = torch.empty(shape, memory_format=torch.channels_last)
    for call in (
        lambda: dist.all_gather([ours, ours.clone()], torch.ones(shape)),
        lambda: dist.scatter(ours, [torch.ones(shape)] * 2 if rank == 0 else None),
        lambda: dist.irecv(ours, 1 - rank),
    ):
        with pytest.raises(ValueError, match="must be contiguous"):
            call()
    # an input may have any order of dimensions
    given = torch.arange(8.0).view(shape).to(memory_format=torch.channels_last) + rank
    parts = [torch.empty(shape) for _ in range(2)]
    dist.all_gather(parts, given)
    return [part.flatten().tolist() for part in parts] == [[float(i + r) for i in range(8)] for r in range(2)]


def test_outputs_must_be_contiguous():
    assert ranks.run(2, outputs_in_another_order) == [True, True]


def batch_that_fails(rank):
    with pytest.raises(ValueError):
        dist.batch_isend_irecv([dist.P2POp(dist.irecv, torch.ones(4, 4)[:, 1], 1 - rank)])
    return total(torch.tensor([1.0]))


def test_a_batch_that_fails_leaves_the_group_as_it_was():
    assert ranks.run(2, batch_that_fails) == [[2.0]] * 2


def dropped(rank):
    x = torch.tensor([rank + 1], dtype=torch.int16)  # this type is reduced in a wider type
    dist.all_reduce(x, async_op=True)
    end_s = time.monotonic() + 20
    while x.item() != 3 and time.monotonic() < end_s:
        time.sleep(0.01)
    return x.item()


def test_a_work_that_is_dropped_still_writes_its_result():
    assert ranks.run(2, dropped) == [3, 3]


def two_threads(rank):
    import threading

    x, y = torch.ones(1000), torch.zeros(3)
    total(torch.ones(1))
    if rank == 1:
        dist.recv(y, 0)
        return [total(x)[0], y[0].item()]
    # the group's library has now seen a second thread
    threading.Thread(target=dist.barrier, args=(dist.new_group([0]),)).start()
    seen = threading.Thread(target=lambda: dist.isend(torch.ones(3), 1).wait())
    other = threading.Thread(target=lambda: total(x))
    seen.start()
    other.start()
    for thread in (seen, other):
        thread.join(30)
    return [x[0].item(), 1.0]


def test_two_threads_use_one_group():
    assert ranks.run(2, two_threads, timeout_s=20) == [[2.0, 1.0]] * 2


def aborted_while_it_waits(rank):
    other = dist.new_group([0, 1])
    pending = dist.irecv(torch.empty(3), group=other)  # receives from any source
    other.abort()
    with pytest.raises(Exception):
        pending.wait()
    x = torch.ones(3)
    future = dist.group.WORLD.allreduce([x], dist.AllreduceOptions()).get_future()
    return future.wait()[0].tolist(), type(pending).__name__


def test_an_aborted_group_stops_no_futures_of_others():
    assert ranks.run(2, aborted_while_it_waits) == [([2.0] * 3, "AnySource")] * 2


def left_open(rank):
    with pytest.raises(ZeroDivisionError):
        with dist._coalescing_manager(device=torch.device("cpu")):
            raise ZeroDivisionError
    x = torch.tensor([1.0])
    dist.group.WORLD.allreduce([x], dist.AllreduceOptions()).wait()
    return x.item()


def test_an_exception_while_coalescing_loses_nothing():
    assert ranks.run(2, left_open) == [2.0] * 2
