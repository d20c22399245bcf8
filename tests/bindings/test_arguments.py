"""Arguments of a wrong type or out of range raise an error that names them. Other ranks are not affected."""

import ctypes
import math

import numpy as np
import pytest

import libdsc as dsc
from test_ranks import ranks


def is_refused_alone(world, between):
    """Rank 1 passes a read-only array, catches the error and goes on."""
    x = np.zeros(3)
    x.flags.writeable = world.rank == 0
    if between:
        for _ in range(2):  # all ranks pass a wrong argument
            with pytest.raises(ValueError):
                world.all_reduce(x[::2])
        world.barrier()
        world.broadcast(np.zeros(world.rank + 1))
        return None
    try:
        world.all_reduce(x)
    except ValueError:
        world.barrier()
    return None


def mismatch(world, between):
    with pytest.raises(dsc.MismatchError) as caught:
        is_refused_alone(world, between)
    return str(caught.value)


def in_group(world, between):
    """A world that has failed cannot be finalized successfully."""
    group = world.split(0)
    return mismatch(group, between)


def test_a_mismatch_names_the_call_that_was_refused_on_one_rank_alone():
    first, second = ranks(2, in_group, False)
    assert "; before that, this rank rejected a call that other ranks may have made: all_reduce raised ValueError: x is read-only" in second
    assert "refused" not in first
    assert not any("refused" in text for text in ranks(2, in_group, True))


WRONG_TYPES = [
    (lambda w, x: dsc.all_reduce_coalesced(w, x), "^arrays is one numpy.ndarray; expected a list of arrays$"),
    (lambda w, x: dsc.broadcast_coalesced(w, np.ones((2, 2))), "^arrays is one numpy.ndarray; expected a list of arrays$"),
    (lambda w, x: dsc.verify_params(w, {"a": x}), "^arrays is a dict; expected a list of arrays$"),
    (lambda w, x: dsc.verify_params(w, 3), "^arrays is a int; expected a list of arrays$"),
    (lambda w, x: dsc.all_reduce_coalesced(w, bytearray(8)), "^arrays is one bytearray; expected a list of arrays$"),
    (lambda w, x: dsc.BucketReducer(w, np.ones((2, 2))), "^params is one numpy.ndarray; expected a list of arrays$"),
    (lambda w, x: dsc.Sharded(w, np.ones((2, 2))), "^params is one numpy.ndarray; expected a list of arrays$"),
    (lambda w, x: dsc.finalize_grads(tensor=w, averaged=x), "^averaged is one numpy.ndarray; expected a list of arrays$"),
    (lambda w, x: dsc.finalize_grads(grads=x, num_tokens=1), "^grads is one numpy.ndarray; expected a list of arrays$"),
    (lambda w, x: w.tensor_map(x, "gather", parts=4), "^parts is 4; expected a list of integers$"),
    (lambda w, x: w.broadcast(x, root=True), "root is True; expected an integer"),
    (lambda w, x: w.moe_plan(np.zeros((4, 1), "i4"), experts=True), "experts is True; expected an integer"),
    (lambda w, x: w.all_reduce_rms_norm(x, epsilon=True), "epsilon is True; expected a number"),
    (lambda w, x: dsc.Ring(w, True), "block_bytes is True; expected an integer"),
    (lambda w, x: w.set_timeout(True), "timeout is True; expected a number"),
    (lambda w, x: w.broadcast(x, root=1.0), "root is 1.0; expected an integer"),
    (lambda w, x: w.reduce(x, root="0"), "root is '0'; expected an integer"),
    (lambda w, x: w.gather(None, x, root=None), "root is None; expected an integer"),
    (lambda w, x: w.scatter(x, x, root=[0]), r"root is \[0\]; expected an integer"),
    (lambda w, x: w.send(x, peer="1"), "peer is '1'; expected an integer"),
    (lambda w, x: w.recv(x, peer=0.5), "peer is 0.5; expected an integer"),
    (lambda w, x: w.split("a"), "color is 'a'; expected an integer"),
    (lambda w, x: w.split(0, key=1.5), "key is 1.5; expected an integer"),
    (lambda w, x: w.split(0, name=3), "name is 3; expected a string"),
    (lambda w, x: w.split(0, timeout="a"), "timeout is 'a'; expected a number"),
    (lambda w, x: w.create_group(3), "ranks is 3; expected a list of integers"),
    (lambda w, x: w.create_group([0, "1"]), r"ranks\[1\] is '1'; expected an integer"),
    (lambda w, x: w.shrink(name=b"a"), "name is b'a'; expected a string"),
    (lambda w, x: w.agree(1.5), "flags is 1.5; expected an integer"),
    (lambda w, x: w.all_gather(x, x, counts=["1"]), r"counts\[0\] is '1'; expected an integer"),
    (lambda w, x: w.set_timeout("a"), "timeout is 'a'; expected a number"),
    (lambda w, x: w.monitored_barrier("a"), "timeout is 'a'; expected a number"),
    (lambda w, x: w.progress("a"), "timeout is 'a'; expected a number"),
    (lambda w, x: dsc.BucketReducer([x], w), "world is a list; expected a Communicator"),
    (lambda w, x: dsc.verify_params([x], w), "comm is a list; expected a Communicator"),
    (lambda w, x: dsc.all_gather_object([None], 3), "comm is a list; expected a Communicator"),
    (lambda w, x: dsc.average_gradients([x], w), "comm is a list; expected a Communicator"),
    (lambda w, x: dsc.spawn(print, 2, args=3), r"args is 3; expected a tuple of the arguments of fn, such as \(x,\)"),
    (lambda w, x: dsc.PipeSchedule("1f1b", 2, 0), r"the whole pipeline, call PipeSchedule\('1f1b', 2, micro_batches=M\)"),
    (lambda w, x: w.global_rank("0"), "group_rank is '0'; expected an integer"),
    (lambda w, x: w.group_rank(0.0), "global_rank is 0.0; expected an integer"),
    (lambda w, x: w.empty(1.5), "shape is 1.5; expected an integer"),
    (lambda w, x: w.empty((1, "2")), r"shape\[1\] is '2'; expected an integer"),
    (lambda w, x: dsc.all_reduce_coalesced(w, [x], buffer_bytes="0"), "buffer_bytes is '0'; expected an integer"),
    (lambda w, x: dsc.broadcast_coalesced(w, [x], root="0"), "root is '0'; expected an integer"),
    (lambda w, x: dsc.broadcast_coalesced(w, [x], buffer_bytes=0.5), "buffer_bytes is 0.5; expected an integer"),
    (lambda w, x: dsc.BucketReducer(w, [x], bucket_bytes=1e6), "bucket_bytes is 1000000.0; expected an integer"),
    (lambda w, x: dsc.BucketReducer(w, [x], buckets=[["0"]]), r"buckets\[0\]\[0\] is '0'; expected an integer"),
    (lambda w, x: dsc.BucketReducer(w, [x], names=[0]), "names is 0; expected a string"),
    (lambda w, x: dsc.premul("2"), "scale is '2'; expected a number"),
    (lambda w, x: dsc.user_op(min, 1.0), "id is 1.0; expected an integer"),
    (lambda w, x: dsc.init_distributed(rank="0"), "rank is '0'; expected an integer"),
    (lambda w, x: dsc.init_distributed(progress_thread="no"), "progress_thread is 'no'; expected True or False"),
    (lambda w, x: dsc.init_distributed(rank_per_thread="no"), "rank_per_thread is 'no'; expected True or False"),
    (lambda w, x: dsc.init_distributed(require_existing=2), "require_existing is 2; expected True or False"),
    (lambda w, x: dsc.shard_indices(10, 2, 0.5), "shard is 0.5; expected an integer"),
    (lambda w, x: dsc.plan_buckets([1.5], ["f32"], [9]), r"numels\[0\] is 1.5; expected an integer"),
    (lambda w, x: w.all_gather(x, [x, x]), r"^x is a list; expected .*; the order of arguments is all_gather\(out, x\)$"),
    (lambda w, x: w.all_reduce(x, x), r"^op is a ndarray of shape .*; the order of arguments is all_reduce\(x, op, out\)$"),
    (lambda w, x: w.broadcast(0, x), r"^root is a ndarray of shape .*; the order of arguments is broadcast\(x, root\)$"),
    (lambda w, x: w.send(1, x), r"^peer is a ndarray of shape .*; the order of arguments is send\(x, peer\)$"),
    (lambda w, x: w.reduce_scatter("sum", x, x), r"^out is a str; .*; the order of arguments is reduce_scatter\(out, x, op\)$"),
    (lambda w, x: w.gather(x, 1), r"^x is a int; .*; the order of arguments is gather\(out, x, root\)$"),
    (lambda w, x: setattr(w, "nonfinite_check", True), "nonfinite_check is a bool; expected a name or a number"),
]
OUT_OF_RANGE = [
    (lambda w, x: w.broadcast(x, root=2**32 + 1), "root is 4294967297; expected 0 to 1"),
    (lambda w, x: w.send(x, peer=2**32), "peer is 4294967296; expected 0 to 1"),
    (lambda w, x: w.split(2**33), r"color is 8589934592; expected 0 to 2\*\*31 - 1, or None"),
    (lambda w, x: w.split(-1), r"color is -1; expected 0 to 2\*\*31 - 1, or None"),
    (lambda w, x: w.split(-5), r"color is -5; expected 0 to 2\*\*31 - 1, or None"),
    (lambda w, x: w.all_gather([x, x], x), r"out\[0\] and out\[1\] overlap; expected separate memory for each"),
    (lambda w, x: w.all_gather([x[1:], x[:2]], x[:2]), r"out\[1\] and out\[0\] overlap"),
    (lambda w, x: w.all_to_all([x[:2], x[1:]], [x[:2], x[:3]]), r"out\[0\] and out\[1\] overlap"),
    (lambda w, x: w.all_gather(x[:2], x), r"^out has 2 elements; expected 8 .*; the order of arguments is all_gather\(out, x\)$"),
    (lambda w, x: w.split(0, key=-(2**40)), r"key is -\d+; expected -2\*\*31 to 2\*\*31 - 1"),
    (lambda w, x: w.create_group([2**32]), r"ranks\[0\] is 4294967296; expected"),
    (lambda w, x: w.agree(2**65), r"flags is 36893488147419103232; expected -2\*\*31 to 2\*\*31 - 1"),
    (lambda w, x: w.global_rank(2**32), "group_rank is 4294967296; expected 0 to 1"),
    (lambda w, x: w.empty(-1), r"shape is -1; expected 0 to 2\*\*63 - 1"),
    (lambda w, x: w.empty((2**62, 2**62)), r"the size in bytes of shape is \d+; expected 0 to 2\*\*64 - 1"),
    (lambda w, x: w.all_gather(x, x, counts=[2**64, 0]), r"counts\[0\] is 18446744073709551616; expected 0 to"),
    (lambda w, x: dsc.BucketReducer(w, [x], bucket_bytes=-1), "bucket_bytes is -1; expected 0 to"),
    (lambda w, x: dsc.init_distributed(port=2**40), "port is 1099511627776; expected"),
    (lambda w, x: dsc.shard_indices(2**64, 2, 0), "count is 18446744073709551616; expected 0 to"),
    (lambda w, x: w.set_timeout(float("nan")), "timeout is nan; expected a number of seconds above 0"),
    (lambda w, x: w.split(0, name="a\0b"), "expected a string without zero bytes"),
]


def refuses(world):
    """Rank 1 makes wrong calls between two operations of both ranks. The operations still work."""
    x = np.zeros(4)
    for kind, cases in ((TypeError, WRONG_TYPES), (ValueError, OUT_OF_RANGE)):
        for call, text in cases if world.rank == 1 else ():
            with pytest.raises(kind, match=text):
                call(world, x)
    world.all_reduce(x)
    assert world.error() is None
    assert world.agree(np.bool_(True)) is True and world.agree(np.int64(6)) == 6
    world.broadcast(x, root=np.int8(1))
    world.set_timeout(math.inf)
    return world.all_reduce(np.ones(1), async_op=True).wait(math.inf)


def test_wrong_arguments_concern_nobody_else():
    assert ranks(2, refuses) == [True, True]


def test_what_ctypes_refuses_aborts_nothing(world):
    from libdsc import _interrupt
    from libdsc._library import lib

    with pytest.raises(ctypes.ArgumentError):
        _interrupt.call(lambda: pytest.fail("stopped"), lib.dsc_comm_finalize, 1.5)
    world.barrier()


@pytest.mark.parametrize("i", [-1, 1, 2**64])
def test_there_is_no_such_parameter(world, i):
    with dsc.BucketReducer(world, [np.zeros(3)]) as reducer:
        for call in (reducer.mark_ready, reducer.mark_unused, reducer.grad_view):
            with pytest.raises(IndexError if abs(i) < 2**63 else ValueError, match=str(i)):
                call(i)
        with pytest.raises(TypeError, match="i is '0'; expected an integer"):
            reducer.mark_ready("0")


def test_misspelt_attributes(world):
    with dsc.BucketReducer(world, [np.zeros(3)]) as reducer:
        things = [world, reducer, dsc.premul(1.0), dsc.user_op(np.add, 1), world.batch()]
        things += [dsc.PipeSchedule("1f1b", 2, 0, 4), world.barrier(async_op=True)]
        for thing in things:
            with pytest.raises(AttributeError):
                thing.nonfinte_check = "fail"


def test_reduce_op_has_the_built_in_ones_too(world):
    assert {name: getattr(dsc.ReduceOp, name) for name in dsc.Op.__members__} == dict(dsc.Op.__members__)
    assert dsc.ReduceOp.PRODUCT is dsc.Op.PROD
    x = np.full(3, 2.0)
    world.all_reduce(x, op=dsc.ReduceOp.SUM)
    assert x.tolist() == [2, 2, 2]
