"""Checks defaults that affect memory and speed but no result. No other test would notice a changed default."""

import ctypes
import pathlib
import threading
import time

import numpy as np

import libdsc as dsc
from libdsc import _raw
from libdsc._library import lib

SECONDS = 120
MIB = 1 << 20
BUFFER_BYTES = 250 * MIB
IN_FLIGHT = 2


def start():
    return dsc.init_distributed(init_timeout=60, timeout=60)


def operations_of(world, function):
    before = sum(one.count for one in world.stats())
    function()
    return sum(one.count for one in world.stats()) - before


def buffers(rank):
    """A buffer is sent when it holds 250 MiB.

    If the first tensor is one byte smaller, the buffer takes one more tensor. Most of the memory are untouched pages of
    zeros.
    """
    world = start()
    memory = np.zeros(BUFFER_BYTES + 1, np.uint8)
    found = []
    for cut in (BUFFER_BYTES - 1, BUFFER_BYTES):
        tensors = [memory[:cut], memory[cut : cut + 1]]
        found.append(operations_of(world, lambda: dsc.broadcast_coalesced(world, tensors)))
        found.append(operations_of(world, lambda: world.all_reduce_coalesced(tensors)))
    dsc.finalize()
    return found


def test_lists_are_cut_at_250_mib():
    assert dsc.spawn(buffers, 2, timeout=SECONDS) == [[1, 1, 2, 2]] * 2


def flights(rank, sign):
    """Returns how many operations rank 0 starts while no other rank joins them."""
    world = start()
    tensors = [np.ones(100 + i, np.float32) for i in range(5)]
    started = None
    if rank == 0:
        list_of_tensors = threading.Thread(target=lambda: dsc.broadcast_coalesced(world, tensors, buffer_bytes=1))
        list_of_tensors.start()
        end = time.monotonic() + SECONDS / 4
        while started != IN_FLIGHT and time.monotonic() < end:
            time.sleep(0.01)
            started = enqueued(world)
        time.sleep(0.2)  # time in which a third one could start
        started = enqueued(world)
        pathlib.Path(sign).touch()
        list_of_tensors.join()
    else:
        while not pathlib.Path(sign).exists():
            time.sleep(0.01)
        dsc.broadcast_coalesced(world, tensors, buffer_bytes=1)
    dsc.finalize()
    return started


def enqueued(world):
    return next(iter(world.trace()["pg_status"].values()), {}).get("last_enqueued_collective", 0)


def test_two_buffers_of_a_list_travel_at_once(tmp_path):
    assert dsc.spawn(flights, 2, (str(tmp_path / "sign"),), timeout=SECONDS)[0] == IN_FLIGHT


def test_buckets_have_25_mib_and_the_first_one_1(world):
    """Uses parameters of half a MiB each. The bucket of the first parameters is launched last."""
    with dsc.BucketReducer(world, [np.zeros(MIB // 8, np.float32) for _ in range(60)]) as reducer:
        assert reducer.buckets == [list(range(52, 60)), list(range(2, 52)), [0, 1]]
    options = _raw.BucketReducerOptions()
    assert lib.dsc_bucket_reducer_options_init(ctypes.byref(options), ctypes.sizeof(options)) == 0
    assert (options.bucket_bytes, options.first_bucket_bytes) == (25 * MIB, MIB)
