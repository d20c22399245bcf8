"""Arrays of the program that a reducer writes, and arrays over the reducer's memory that the program keeps."""

import array
import copy
import ctypes
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest

import libdsc as dsc
from reducer_ranks import everywhere, iterate, same

MANY = 1 << 18  # elements; so large that freed memory is unmapped


def ones(n=1000):
    return np.ones(n, np.float32)


def finish_once_too_often(world):
    """The error of the second finish() is caught. clip() must not write where a gradient was freed, but must write a
    gradient that still exists."""
    for keep in (False, True):
        with dsc.BucketReducer(world, [ones()]) as reducer:
            reducer.begin()
            gradient = ones() * 100
            gone = weakref.ref(gradient)
            reducer.mark_ready(0, gradient)
            if not keep:
                del gradient
            reducer.finish()
            with pytest.raises(dsc.StateError, match="no iteration is open"):
                reducer.finish()
            assert keep or gone() is None  # finish() has written it, and no other reference is left
            if not keep:
                with pytest.raises(dsc.StateError, match="no longer exists"):
                    reducer.clip(1.0)
                continue
            reducer.clip(1.0)
            assert np.linalg.norm(gradient) == pytest.approx(1.0, rel=1e-3)


def sums_survive_a_finish_too_many(world):
    """Sums in the views that were accumulated without communication are not invalidated."""
    with dsc.BucketReducer(world, [ones()]) as reducer:
        with reducer.no_sync():
            reducer.begin()
            reducer.grad_view(0)[...] = 3
            reducer.mark_ready(0)
            reducer.finish()
            with pytest.raises(dsc.StateError, match="no iteration is open"):
                reducer.finish()
        reducer.begin()
        same([reducer.grad_view(0)], [3 * ones()])
        reducer.accumulate(0, ones())
        reducer.mark_ready(0)
        reducer.finish()
        same([reducer.grad_view(0)], [4 * ones()])


def without_its_results(world):
    """An iteration that fails because a gradient is missing leaves no sums behind."""
    with dsc.BucketReducer(world, [ones()]) as reducer:
        with reducer.no_sync():
            iterate(reducer, [ones()])
        view = reducer.grad_view(0)
        reducer.begin()
        with pytest.raises(dsc.StateError, match="did not receive a gradient"):
            reducer.finish()
        reducer.begin()
        with pytest.raises(dsc.StateError, match="nothing was written"):
            reducer.mark_ready(0)
        view[...] = 2
        reducer.mark_ready(0)
        reducer.finish()
        same([view], [2 * ones()])


def inside_finish(world, act):
    """Calls act(reducer) on another thread while finish() runs. Returns how act() and finish() ended, if they were
    reached.

    Only the reducer holds the gradients, and finish() still has to write them.
    """
    ended, alive = [], []

    def on_thread(reducer):
        try:
            act(reducer)
            ended.append(None)
        except dsc.DscError as error:
            ended.append(error)

    def hook(bucket):
        bucket.buffer /= bucket.divisor
        yield bucket.comm.all_reduce(bucket.buffer, async_op=True)
        if bucket.index == 0:  # this bucket runs inside finish(), because no later bucket is launched
            thread = threading.Thread(target=on_thread, args=(reducer,))
            thread.start()
            thread.join()
            alive.extend(gradient() is not None for gradient in given)

    reducer = dsc.BucketReducer(world, [ones()], hook=hook)
    reducer.begin()
    gradient = ones()
    given = [weakref.ref(gradient)]
    reducer.mark_ready(0, gradient)
    del gradient
    try:
        reducer.finish()
        ended.append(None)
    except dsc.DscError as error:
        ended.append(error)
    reducer.close()
    assert all(alive)
    return ended


def threads_that_finish_at_once(world):
    refused, ended = inside_finish(world, lambda reducer: reducer.finish())
    assert isinstance(refused, dsc.StateError) and "another thread is running finish()" in str(refused), refused
    assert ended is None, ended


def a_thread_that_closes_during_finish(world):
    *closed, ended = inside_finish(world, lambda reducer: reducer.close())
    assert closed in ([None], []), closed  # another rank's close() may end finish() before `act` is called
    # finish() may already have received everything that it needs
    assert ended is None or isinstance(ended, dsc.DscError), ended


def a_finish_that_is_refused_in_a_pass(world):
    """A pipeline does not reduce in the middle of a pass. Afterwards the gradients must still be written."""
    own = world.split(world.rank)
    reducer = dsc.BucketReducer(own, [ones()])
    alive = []

    def backward(*_):
        reducer.begin()
        gradient = ones()
        given.append(weakref.ref(gradient))
        reducer.mark_ready(0, gradient)
        with pytest.raises(dsc.StateError, match="once per step"):
            reducer.finish()

    def reduce_grads(_):
        alive.append(given[0]() is not None)
        reducer.finish()

    given = []
    schedule = dsc.PipeSchedule("1f1b", stages=1, stage=0, micro_batches=1)
    own.pipe_run(
        schedule, forward=lambda *_: 0.0, backward=backward, reduce_grads=reduce_grads, load_micro_batch=lambda *_: None
    )
    assert alive == [True]
    same([reducer.grad_view(0)], [ones()])


class Moving:
    """An array whose owner may replace its memory, as x.data = y does in PyTorch."""

    def __init__(self, values):
        self.values = values

    @property
    def __array_interface__(self):
        return self.values.__array_interface__


def arrays_that_move(world):
    """clip() and sync_buffers() write to the arrays, and must notice that the arrays have other memory now."""
    with dsc.BucketReducer(world, [ones()], dtype="f32") as reducer:
        for make, move in {
            lambda: array.array("f", [1.0] * 1000): lambda x: x.extend([0.0] * MANY),
            lambda: Moving(ones()): lambda x: setattr(x, "values", ones()),
            lambda: memoryview(ones()): lambda x: x.release(),
        }.items():
            gradient = make()
            iterate(reducer, [gradient])
            reducer.clip(1.0)
            move(gradient)
            with pytest.raises(dsc.StateError, match="its memory has changed"):
                reducer.clip(1.0)
        numbers, moving = array.array("f", [1.0] * 10), Moving(ones(10))
        reducer.set_buffers({"numbers": numbers, "moving": moving})
        with pytest.raises(BufferError):
            numbers.extend([0.0] * MANY)
        reducer.sync_buffers()
        moving.values = ones(10)
        with pytest.raises(dsc.StateError, match=r"the memory of buffers\['moving'\] has changed"):
            reducer.sync_buffers()
        world.barrier()
        reducer.set_buffers([moving])
        numbers.extend([0.0] * MANY)
        reducer.sync_buffers()


def is_mapped(address):
    with open("/proc/self/maps") as maps:
        ranges = [line.split(" ", 1)[0].split("-") for line in maps]
    return any(int(start, 16) <= address < int(end, 16) for start, end in ranges)


def address_of(kept):
    return kept.__array_interface__["data"][0]


def hooks_keep_their_arrays(world):
    """Arrays stay valid after buckets were rebuilt and after the reducer is closed.

    The memory is freed with the last array.
    """
    kept, buckets = [], []

    def hook(bucket):
        buckets.append(bucket)
        kept.append(bucket.buffer if bucket.index else bucket.gradients()[0])
        bucket.buffer /= bucket.divisor
        return bucket.comm.all_reduce(bucket.buffer, async_op=True)

    params = [np.zeros(MANY, np.float32) for _ in range(4)]
    reducer = dsc.BucketReducer(world, params, bucket_bytes=2 * params[0].nbytes, first_bucket_bytes=1000, hook=hook)
    for step in range(3):
        iterate(reducer, [np.full(MANY, 1 + step, np.float32) for _ in params], (0, 2, 1, 3))
        if step == 0:
            first, places = list(kept), [address_of(x) for x in kept]
    assert reducer.rebuilds == 1
    assert not set(places) & {address_of(x) for x in kept[len(places) :]}  # the rebuilt buckets have other memory
    for array_of_first in first:
        assert (array_of_first[:: MANY // 2] == 1).all()  # the values that the library left there
        array_of_first[...] = 7
    if world.size > 1:
        assert all(is_mapped(place) for place in places)
    del first, array_of_first, kept[: len(places)], buckets[: len(places)]
    if world.size > 1:
        assert not any(is_mapped(place) for place in places)
    reducer.close()
    del reducer
    gc.collect()
    for at_the_end in kept:
        # 3 from the last step, or 9 written below through another array of the same bucket
        assert at_the_end[5] in (3, 9)
        at_the_end[5] = 9
    with pytest.raises(dsc.DscError):
        buckets[0].comm.all_reduce(ones())


def memory_of_the_library_is_not_freed(world):
    """A hook that frees retained memory once too often gets an error, and the reducer still works."""
    free, retain = dsc._library.lib.dsc_mem_free, dsc._library.lib.dsc_mem_retain
    codes = []

    def hook(bucket):
        start = ctypes.c_void_p()
        codes.append(retain(address_of(bucket.buffer), ctypes.byref(start)))
        codes.extend(free(start) for _ in range(3))  # one too many, even with the retain of the array itself
        return bucket.comm.all_reduce(bucket.buffer, async_op=True)

    with dsc.BucketReducer(world, [ones()], hook=hook) as reducer:
        for _ in range(2):
            iterate(reducer, [ones()])
    assert dsc.Result.ERR_INVALID_ARG in codes


def memory_is_retained(world):
    """Retains memory by hand, as a hook in C does. Each retain needs one free, and other memory is refused."""
    free, retain = dsc._library.lib.dsc_mem_free, dsc._library.lib.dsc_mem_retain
    shared = world.empty(MANY)
    shared[...] = world.rank
    place, starts = address_of(shared), [ctypes.c_void_p(), ctypes.c_void_p()]
    for start in starts:
        assert retain(place + shared.nbytes - 1, ctypes.byref(start)) == 0 and start.value == place
    del shared
    assert retain(place, ctypes.byref(starts[0])) == 0 and free(place) == 0  # another reference still keeps the memory
    assert free(place) == 0
    assert (np.frombuffer((ctypes.c_float * MANY).from_address(place), np.float32) == world.rank).all()
    assert free(place) == 0
    assert free(place) == dsc.Result.ERR_INVALID_ARG
    own = ones()
    for address in (address_of(own), place, None):
        assert retain(address, ctypes.byref(starts[0])) == dsc.Result.ERR_INVALID_ARG and not starts[0].value
    assert retain(address_of(own), None) == dsc.Result.ERR_INVALID_ARG


def copies_are_refused(world):
    """A copy of a handle would be destroyed a second time."""
    x = ones()
    objects = [dsc.BucketReducer(world, [ones()]), dsc.Sharded(world, [ones()]), world.all_reduce(x, async_op=True)]
    for each in objects:
        for make in (copy.copy, copy.deepcopy, pickle.dumps, lambda x: copy.deepcopy({"inside": [x]})):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                make(each)
        gc.collect()
    objects[-1].wait()
    for shared in (world, dsc.PipeSchedule("1f1b", 2, micro_batches=4)):  # as if a copy of a module contained them
        assert copy.copy(shared) is shared and copy.deepcopy({"inside": [shared]})["inside"][0] is shared
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            pickle.dumps(shared)
    assert (x == world.size).all()


test_finish_once_too_often = everywhere(finish_once_too_often)
test_sums_survive_a_finish_too_many = everywhere(sums_survive_a_finish_too_many)
test_an_iteration_without_its_results = everywhere(without_its_results)
test_threads_that_finish_at_once = everywhere(threads_that_finish_at_once)
test_a_thread_that_closes_during_finish = everywhere(a_thread_that_closes_during_finish)
test_a_finish_that_is_refused_in_a_pass = everywhere(a_finish_that_is_refused_in_a_pass)
test_arrays_that_move = everywhere(arrays_that_move)
test_hooks_keep_their_arrays = everywhere(hooks_keep_their_arrays)
test_memory_of_the_library_is_not_freed = everywhere(memory_of_the_library_is_not_freed)
test_memory_is_retained = everywhere(memory_is_retained)
test_copies_are_refused = everywhere(copies_are_refused)
