"""Arrays of the program that operations move without copying: Communicator.register()."""

import gc

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
    assert repr(registration) == "<libdsc.Registration of 0 arrays>"
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


def mistakes(world):
    x = ones()
    with pytest.raises(TypeError, match=r"arrays\[1\] is a list; expected an array"):
        world.register(x, [1.0])
    fixed = ones()
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match=r"arrays\[0\] is read-only"):
        world.register(fixed)
    with pytest.raises(dsc.InvalidArgError, match="overlaps 120000 bytes at 0x.*registered"):
        world.register(x, x)
    with world.register(x), pytest.raises(dsc.InvalidArgError, match="which are registered"):  # and the first one was undone before
        world.register(x)
    with pytest.raises(dsc.InvalidArgError, match="bytes is 0, expected 1 or more"):
        world.register(np.empty(0))
    with pytest.raises(dsc.InvalidArgError, match="which are registered"):
        world.register(world.empty(COUNT))
    if world.size > 1:
        with pytest.raises(dsc.MismatchError, match=r"mem_register"):
            world.register(np.ones(COUNT + world.rank, np.float32))


test_numpy = everywhere(arrays_of_numpy)
test_lifetime = everywhere(a_registration_keeps_arrays_alive)
test_mistakes = everywhere(mistakes)
