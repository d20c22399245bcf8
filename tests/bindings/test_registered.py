"""Arrays of the program that operations move without copying: Communicator.register()."""

import gc
import mmap

import numpy as np
import pytest

import libdsc as dsc
from reducer_ranks import everywhere

COUNT = 30000


def ones():
    return np.ones(COUNT, np.float32)


def paths(world):
    return [entry["algorithm"] for entry in world.trace()["entries"]]


def arrays_of_numpy(world):
    x, y = ones(), np.zeros((3, COUNT // 3), np.float64)
    with world.register(x, y) as registration:
        assert repr(registration) == "<libdsc.Registration of 2 arrays>"
        world.all_reduce(x)
        world.all_reduce(y)
        assert (x == world.size).all() and not y.any()
        if world.size > 1 and world.local_size == world.size:
            assert paths(world)[-2:] == ["zero_copy", "zero_copy"]
    assert repr(registration) == "<libdsc.Registration, closed>"
    registration.close()
    world.all_reduce(x)
    assert (x == world.size**2).all()


def a_registration_keeps_arrays_alive(world):
    registration = world.register(ones())  # no other reference to the array
    gc.collect()
    others = [ones() for _ in range(20)]
    for x in others:
        world.all_reduce(x)
    assert all((x == world.size).all() for x in others)
    del registration
    gc.collect()
    x = ones()
    with world.register(x):  # an array that is registered again
        pass
    with world.register(x):
        world.all_reduce(x)
    assert (x == world.size).all()


def an_operation_outlasts_the_registration(world):
    """The array stays registered until the operation is complete, and can be registered again afterwards."""
    for _ in range(5):
        x = np.ones(1 << 20, np.float32)
        with world.register(x):
            work = world.all_reduce(x, async_op=True)
        work.wait()
        assert (x == world.size).all()
        y = np.ones(1 << 20, np.float32)
        world.all_reduce(y)
        assert (y == world.size).all()


def messages_outlast_the_registration(world):
    """Both ends of a message are in one registration, which ends before the message moves."""
    if world.size == 1:
        return
    half = 1 << 19
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for _ in range(5):
        x = np.full(2 * half, world.rank, np.float32)
        with world.register(x):
            received = world.recv(x[half:], left, async_op=True)
            sent = world.send(x[:half], right, async_op=True)
        received.wait()
        sent.wait()
        assert (x[half:] == left).all() and (x[:half] == world.rank).all()


def in_place(world):
    """The own block of an operation in place is not copied, and nothing changes in it."""
    x = np.arange(world.size * COUNT, dtype=np.float32)
    own = x[world.rank * COUNT : (world.rank + 1) * COUNT]
    before = x.copy()
    with world.register(x):
        world.all_gather(x, own)
        assert (x == before).all()
        world.broadcast(x, root=world.size - 1)
        assert (x == before).all()


def mistakes(world):
    x = ones()
    with pytest.raises(TypeError, match=r"arrays\[1\] is a number; expected an array|arrays\[1\] is a float"):
        world.register(x, 1.0)
    fixed = ones()
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match=r"arrays\[0\] is read-only"):
        world.register(fixed)
    with pytest.raises(dsc.InvalidArgError, match="overlaps 120000 bytes at 0x.*registered"):
        world.register(x, x)
    with world.register(x), pytest.raises(dsc.InvalidArgError, match="which are registered"):  # and the first one was undone before
        world.register(x)
    with pytest.raises(TypeError, match=r"arrays\[0\] is a list; expected an array .pass several one by one"):
        world.register([x])
    with pytest.raises(TypeError, match="there are no arrays; expected at least one"):
        world.register()
    with pytest.raises(dsc.InvalidArgError, match=r"shared memory \(MAP_SHARED\) .*expected private memory \(arrays\[0\]\)"):
        world.register(np.frombuffer(mmap.mmap(-1, 1 << 16), np.uint8))
    with world.register(np.empty(0, np.uint16), np.ones(9000, np.uint16), dtype="bf16") as registration:
        assert repr(registration) == "<libdsc.Registration of 1 arrays>"
    with pytest.raises(dsc.InvalidArgError, match="which are registered"):
        world.register(world.empty(COUNT))
    if world.size > 1:
        with pytest.raises(dsc.MismatchError, match=r"mem_register"):
            world.register(np.ones(COUNT + world.rank, np.float32))


test_numpy = everywhere(arrays_of_numpy)
test_lifetime = everywhere(a_registration_keeps_arrays_alive)
test_outlasting = everywhere(an_operation_outlasts_the_registration)
test_messages = everywhere(messages_outlast_the_registration)
test_in_place = everywhere(in_place)
test_mistakes = everywhere(mistakes)
