"""The attributes of an exception belong to the same failure as its text."""

import os
import pathlib
import re
import tempfile
import threading
import time

import numpy as np
import pytest

import libdsc as dsc
from libdsc import _work
from reducer_ranks import everywhere

FIRST, LATER = 2, 1  # the rank that is missing first, and the rank that leaves later


def with_block(rank, way):
    """A block whose operation fails on all ranks; returns how the block ended, and whether the world has."""
    try:
        with dsc.init_distributed(init_timeout=30, timeout=30) as world:
            work = world.all_reduce(np.ones(2 + rank), async_op=True)
            if way == "caught":
                with pytest.raises(dsc.MismatchError):
                    work.wait()
            if way == "dropped":
                with pytest.warns(RuntimeWarning, match="no call waited for it"):
                    del work
                    while _work._dropped:
                        _work.reap()
    except dsc.DscError as error:
        return type(error).__name__, dsc.is_initialized()
    return "well", dsc.is_initialized()


FAILED = {"MismatchError", "RevokedError"}


@pytest.mark.parametrize("way, ends", [("caught", {"well"}), ("not seen", FAILED), ("dropped", FAILED)])
def test_the_end_of_a_with_block_raises_what_the_program_has_not_caught(way, ends):
    for end, is_initialized in dsc.spawn(with_block, 2, (way,), timeout=60):
        assert end in ends and not is_initialized


def ones(n=100):
    return np.ones(n, np.float32)


def expect(error, ranks, group):
    """Checks that the attributes of an exception and its text name the same ranks and the same group."""
    assert (error.rank, error.ranks) == (ranks[0], tuple(ranks)), (error.rank, error.ranks, str(error))
    assert error.group == group, (error.group, str(error))
    if group == "sharded":  # this rank may have got the failure from another rank, with that rank's text
        return
    said = re.search(r'\w+ number (\d+) of group "(.*?)"', str(error))
    if said:
        assert (int(said[1]), said[2]) == (error.sequence, group), (error.sequence, str(error))


def fail(comm):
    """Rank 0 waits in vain for rank FIRST. All ranks learn of the failure."""
    comm.barrier()
    comm.timeout = 0.2
    if comm.rank == 0:
        with pytest.raises(dsc.TimeoutError) as told:
            comm.recv(ones(), FIRST)
        expect(told.value, [FIRST], comm.name)
    while comm.error() is None:
        time.sleep(0.01)
    expect(comm.error(), [FIRST], comm.name)


def make_sign():
    """Creates a file that exists until a rank gives the sign."""
    handle, path = tempfile.mkstemp()
    os.close(handle)
    return path


def wait_for(sign):
    end = time.monotonic() + 60
    while sign.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not sign.exists()


def objects_of_a_world_that_failed(world):
    """These objects have their own groups, in which another rank leaves later."""
    if world.size == 1:
        return
    sign = pathlib.Path(world.broadcast_object(make_sign() if world.rank == 0 else None))
    reducer = dsc.BucketReducer(world, [ones()])
    sharded = dsc.Sharded(world, [ones()], stage=3)
    tied = dsc.TiedLayers(world, {"a": list(range(world.size))}, {"a": ones()})
    fail(world)
    if world.rank == LATER:
        for each in (reducer, sharded, tied):
            each.close()
        return

    def iterate():
        reducer.begin()
        reducer.mark_ready(0, ones())
        reducer.finish()

    def gather():
        sharded.unshard(0)
        sharded.wait(0)

    with pytest.raises(dsc.PeerLeftError) as told:
        iterate()
    expect(told.value, [LATER], "reducer")
    if world.rank != 0:
        # so that some ranks learn of the failure and of its group from rank 0 before they notice it themselves
        wait_for(sign)
    with pytest.raises(dsc.PeerLeftError) as told:
        gather()
    sign.unlink(missing_ok=True)
    expect(told.value, [LATER], "sharded" if told.value.sequence is None else "sharded.params")
    with pytest.raises(dsc.PeerLeftError) as told:
        tied.reduce({"a": ones()})
    expect(told.value, [LATER], "tied/a")
    with pytest.raises(dsc.RevokedError) as told:  # the text of the error contains the cause
        reducer.begin()
    expect(told.value, [LATER], "reducer")
    with pytest.raises(dsc.RevokedError) as told:
        gather()
    assert told.value.ranks == (LATER,), str(told.value)


def later_operations_of_a_communicator(world):
    """A later operation is reported with its own number, not with that of the operation that failed first."""
    if world.size == 1:
        return
    group = world.split(0, world.rank, name="group")
    group.all_reduce(ones())
    fail(group)
    for _ in range(2):
        with pytest.raises((dsc.RevokedError, dsc.TimeoutError)) as told:  # the first call may report the cause itself
            group.all_reduce(ones())
        expect(told.value, [FIRST], "group")
    work = group.all_reduce(ones(), async_op=True)
    with pytest.raises(dsc.RevokedError) as told:
        work.wait()
    expect(told.value, [FIRST], "group")
    with pytest.raises(dsc.InvalidArgError) as told:  # this error names no rank and no operation
        group.broadcast(ones(), world.size)
    assert (told.value.rank, told.value.ranks, told.value.group, told.value.sequence) == (None, (), "group", None)
    world.barrier()
    with pytest.raises(dsc.StateError) as told:
        dsc.BucketReducer(world, [ones()]).clip()
    assert (told.value.rank, told.value.ranks, told.value.group, told.value.sequence) == (None, (), "world", None)


def a_reducer_that_failed_meanwhile(world):
    """The next call that needs other ranks reports the cause and its rank. Leaving no_sync() needs no other rank."""
    if world.size == 1:
        return
    reducer = dsc.BucketReducer(world, [ones()])
    world.barrier()
    if world.rank == LATER:  # another thread of this rank closes the reducer during finish()
        reducer.begin()
        reducer.mark_ready(0, ones())
        closing = threading.Timer(0.2, reducer.close)
        closing.start()
        with pytest.raises(dsc.DscError):
            reducer.finish()
        closing.join()
    world.barrier()
    if world.rank != LATER:
        with reducer.no_sync():
            pass
        with pytest.raises((dsc.RevokedError, dsc.PeerLeftError)) as told:
            reducer.begin()
        assert (told.value.rank, told.value.ranks) == (LATER, (LATER,)), str(told.value)
    world.barrier()


test_a_reducer_that_failed_meanwhile = everywhere(a_reducer_that_failed_meanwhile)
test_objects_of_a_world_that_failed = everywhere(objects_of_a_world_that_failed)
test_later_operations_of_a_communicator = everywhere(later_operations_of_a_communicator)
