"""Operations on Python objects: results, failures on one rank, sizes, and two hosts."""

import os
import socket

import pytest

import libdsc as dsc
from test_ranks import ranks


class Poison:
    """An object that can be pickled but not unpickled."""

    def __reduce__(self):
        return int, ("poison",)


def moves(world):
    mine = {"rank": world.rank, "text": "x" * world.rank}
    found = [world.broadcast_object(mine, 1), world.all_gather_object(mine), world.gather_object(mine, 2)]
    objs = [[to] for to in range(world.size)] if world.rank == 1 else None
    return [*found, world.scatter_object(objs, root=1), dsc.broadcast_object(world, world.rank, 2)]


def test_objects():
    all_of = [{"rank": rank, "text": "x" * rank} for rank in range(3)]
    for rank, found in enumerate(ranks(3, moves)):
        assert found == [all_of[1], all_of, all_of if rank == 2 else None, [rank], 2]


def to_one_rank(world):
    """Sends objects around a ring. For an object that cannot be pickled both ends raise, and the group still works."""
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    if world.rank == 0:
        world.send_object({"from": 0}, right)
        got = world.recv_object(left)
    else:
        got = world.recv_object(left)
        world.send_object({"from": world.rank}, right)
    said = ""
    if world.rank < 2:
        with pytest.raises(dsc.InvalidArgError, match="rank 0: a function cannot be pickled") as caught:
            world.send_object(lambda: 0, 1) if world.rank == 0 else world.recv_object(0)
        assert caught.value.rank == 0
        said = str(caught.value).partition(" of group")[0]
    with world.batch():
        with pytest.raises(dsc.StateError, match="send_object is called inside batch"):
            world.send_object(1, right)
    return got, said, world.all_gather_object(1)


def test_objects_to_one_rank():
    for rank, found in enumerate(ranks(3, to_one_rank)):
        assert found == ({"from": (rank - 1) % 3}, ["send_object", "recv_object", ""][rank], [1, 1, 1])


def reduces(world):
    own = world.rank + 1
    every = [world.all_reduce_object(own, op) for op in ("sum", "prod", "max", "min", "avg", "band", "bor", "bxor")]
    every += [world.all_reduce_object(own), world.all_reduce_object([own]), world.all_reduce_object(own, digits)]
    assert world.all_reduce_object(0.5) == 0.5 * world.size
    on_root = world.reduce_object(str(own), "sum", 1)
    with pytest.raises(ValueError, match="op is 'mean'; expected one of sum, avg, prod"):
        world.all_reduce_object(own, "mean")
    with pytest.raises(TypeError, match="op is a int; expected a name"):
        world.reduce_object(own, 3)
    with pytest.raises(dsc.MismatchError, match="ranks gave different values of op: rank 0: max; rank 1: sum") as caught:
        world.all_reduce_object(own, "sum" if world.rank else "max")
    assert caught.value.rank == 1 and world.error() is None
    return every, on_root


def digits(a, b):
    return 10 * a + b


def test_numbers_and_other_objects_are_reduced():
    for rank, found in enumerate(ranks(3, reduces)):
        assert found == ([6, 6, 3, 1, 2, 0, 3, 0, 6, [1, 2, 3], 123], "123" if rank == 1 else None)


def moves_between_hosts(rank, port):
    """The first two ranks are on one host, the third one is on another host."""
    local = {"LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2 - rank // 2, "MASTER_PORT": port}
    os.environ.update({name: str(number) for name, number in local.items()})
    os.environ.update(DSC_HOST_ID=f"host-{rank // 2}", DSC_TOKEN="ab" * 32, MASTER_ADDR="127.0.0.1")
    world = dsc.init_distributed(init_timeout=60, timeout=60)
    assert world.local_size < world.size
    found = moves(world)
    dsc.finalize()
    return found


def large(world):
    sent = bytes([world.rank + 1]) * (5 << 20)
    got = world.all_gather_object(sent)
    assert got == [bytes([rank + 1]) * (5 << 20) for rank in range(world.size)]
    assert world.broadcast_object(sent)[:1] == b"\1"
    return len(world.scatter_object([sent] * world.size if world.rank == 0 else None))


def test_large_objects():
    assert ranks(2, large) == [5 << 20] * 2


def fails(world):
    bad = lambda: 0  # noqa: E731
    cases = [
        (1, lambda: world.broadcast_object(bad if world.rank == 1 else None, 1)),
        (2, lambda: world.all_gather_object(bad if world.rank == 2 else 0)),
        (2, lambda: world.gather_object(bad if world.rank == 2 else 0)),
        (0, lambda: world.scatter_object([1, 2, bad] if world.rank == 0 else None)),
        (0, lambda: world.scatter_object([1] if world.rank == 0 else None)),
    ]
    texts = []
    for rank, call in cases:
        with pytest.raises(dsc.InvalidArgError) as caught:
            call()
        assert caught.value.rank == rank and f"rank {rank}: " in str(caught.value)
        texts.append(str(caught.value))
    with pytest.raises(dsc.InvalidArgError, match="rank 1 cannot be unpickled here: ValueError"):
        world.all_gather_object(Poison() if world.rank == 1 else 0) if world.rank != 1 else _own(world)
    with world.batch():
        with pytest.raises(dsc.StateError, match="inside batch"):
            world.broadcast_object(1)
    assert world.error() is None
    return texts, world.all_gather_object(world.rank)


def _own(world):
    """The rank that sends the object keeps it as it is, so only this rank does not fail to unpickle."""
    world.all_gather_object(Poison())
    raise dsc.InvalidArgError("rank 1 cannot be unpickled here: ValueError")


def test_failures_are_the_same_on_all_ranks():
    found = ranks(3, fails)
    assert found[0] == found[1] == found[2] and found[0][1] == [0, 1, 2]
    assert "cannot be pickled" in found[0][0][0]


def differs(world):
    """Ranks that called different operations on objects get the error immediately, and the communicator still works."""
    calls = {
        "all_gather_object()": lambda: world.all_gather_object(1),
        "gather_object(root 0)": lambda: world.gather_object(1),
        "gather_object(root 1)": lambda: world.gather_object(1, 1),
        "all_reduce_object()": lambda: world.all_reduce_object(1),
        "reduce_object(root 0)": lambda: world.reduce_object(1),
    }
    for usual in calls:
        for other in calls:
            if usual != other:
                with pytest.raises(dsc.MismatchError, match="ranks called different operations: ") as told:
                    calls[other if world.rank == 1 else usual]()
                assert f"rank 0: {usual}; rank 1: {other}; rank 2: {usual}" in str(told.value)
                assert told.value.ranks == (1,) and told.value.group == world.name
    assert world.error() is None
    return world.all_reduce_object(1)


def test_other_operations():
    assert ranks(3, differs) == [3] * 3


def ends(world):
    """The library itself detects operations that begin differently, and ends the communicator."""
    with pytest.raises(dsc.MismatchError) as told:
        world.broadcast_object(1) if world.rank == 1 else world.all_gather_object(1)
    return told.value.ranks


def test_operations_that_begin_otherwise():
    assert ranks(3, ends) == [(1,)] * 3


def test_two_hosts():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    all_of = [{"rank": rank, "text": "x" * rank} for rank in range(3)]
    for rank, found in enumerate(dsc.spawn(moves_between_hosts, 3, (port,), timeout=120)):
        assert found == [all_of[1], all_of, all_of if rank == 2 else None, [rank], 2]
