"""Reduce, gather, scatter, all-to-all, blocks of different lengths, batches, and user-defined operations."""

import gc
import re
import weakref

import numpy as np
import pytest

import libdsc as dsc
from test_ranks import ranks


def rooted(world):
    n, rank = world.size, world.rank
    x, root = np.full(3, rank + 1.0), n - 1
    out = np.zeros(3) if rank == root else None
    world.reduce(x, root, "max", out=out)
    assert (x == rank + 1).all() and (out is None or (out == n).all())
    world.reduce(x, root)
    assert (x == (n * (n + 1) / 2 if rank == root else rank + 1)).all()
    mine = np.array([rank, 10 * rank])
    flat = np.zeros(2 * n, int) if rank == 0 else None
    world.gather(flat, mine)
    listed = [np.zeros(2, int) for _ in range(n)] if rank == root else None
    world.gather(listed, mine, root, async_op=True).wait()
    assert listed is None or [part.tolist() for part in listed] == [[r, 10 * r] for r in range(n)]
    for parts in (flat, None if flat is None else list(flat.reshape(n, 2))):
        back = np.zeros(2, int)
        world.scatter(back, parts)
        assert (back == mine).all()
    return None if flat is None else flat.tolist()


def test_reduce_gather_scatter():
    assert ranks(3, rooted) == [[0, 0, 1, 10, 2, 20], None, None]


def by_counts(world):
    """Tests gather and scatter with counts: parts of one array, lists of arrays, and parts without elements."""
    n, rank = world.size, world.rank
    counts, root = [2 * r for r in range(n)], n - 1
    mine = np.full(counts[rank], rank, np.float32)
    whole = np.zeros(sum(counts), np.float32)
    world.gather(whole if rank == root else None, mine, root, counts=counts)
    listed = [np.zeros(count, np.float32) for count in counts] if rank == 0 else None
    world.gather(listed, mine, async_op=True, counts=counts).wait()
    assert listed is None or all((part == r).all() for r, part in enumerate(listed))
    if rank == root:
        assert whole.tolist() == [r for r in range(n) for _ in range(2 * r)]
    for parts in (whole, np.split(whole, np.cumsum(counts)[:-1])):
        back = np.zeros(counts[rank], np.float32)
        world.scatter(back, parts if rank == root else None, root, counts=counts)
        assert (back == rank).all()
    for call, text in (
        (lambda: world.gather(None, np.zeros(1), counts=[2] * n), rf"x has 1 elements; expected 2, counts\[{rank}\]"),
        (lambda: world.scatter(np.zeros(1), counts=[1] * (n + 1)), f"counts has {n + 1} numbers; expected {n}, one per rank"),
        (lambda: world.scatter(np.zeros(1), None, rank, counts=[1] * n), "x is None; expected an array or a list of arrays"),
        (lambda: world.gather(np.zeros(1), np.zeros(2), rank, counts=[2] * n), f"out has 1 elements; expected {2 * n}, the sum"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    group = world.split(0)
    with pytest.raises(dsc.MismatchError, match=f"rank {root} sends 3 elements to rank 0, which expects 2"):
        of_rank = [2] * root + [3 if rank == root else 2]
        group.gather(np.zeros(sum(of_rank)) if rank == 0 else None, np.zeros(of_rank[rank]), counts=of_rank)
    return True


def test_gather_and_scatter_by_counts():
    assert ranks(3, by_counts) == [True] * 3


def exchanged(world):
    n, rank = world.size, world.rank
    x, out = 100 * rank + np.arange(2 * n), np.zeros(2 * n, int)
    world.all_to_all(out, x)
    expected = [100 * r + 2 * rank + i for r in range(n) for i in range(2)]
    assert out.tolist() == expected
    world.all_to_all(x)
    assert x.tolist() == expected
    # Rank r sends s + 1 elements to rank s, so each rank receives rank + 1 elements from every rank.
    blocks = [np.full(s + 1, 10 * rank + s) for s in range(n)]
    flat = np.zeros(n * (rank + 1), int)
    counts = {"send_counts": [s + 1 for s in range(n)], "recv_counts": [rank + 1] * n}
    world.all_to_all(flat, np.concatenate(blocks), **counts)
    listed = [np.zeros(rank + 1, int) for _ in range(n)]
    world.all_to_all(listed, blocks, async_op=True).wait()
    assert (np.concatenate(listed) == flat).all()
    return sorted(set(flat.tolist()))


def test_all_to_all():
    assert ranks(3, exchanged) == [[r, 10 + r, 20 + r] for r in range(3)]


def uneven(world):
    n, rank = world.size, world.rank
    counts = [3 * r for r in range(n)]  # rank 0 has no elements
    x = np.full(counts[rank], rank, np.float32)
    flat = np.empty(sum(counts), np.float32)
    world.all_gather(flat, x, counts=counts)
    listed = [np.empty(count, np.float32) for count in counts]
    world.all_gather(listed, x)
    assert (np.concatenate(listed) == flat).all()
    part, again = np.empty_like(x), np.empty_like(x)
    world.reduce_scatter(part, flat, counts=counts)
    world.reduce_scatter(again, listed, "max")
    assert (part == n * rank).all() and (again == rank).all()
    return flat.tolist()


def test_blocks_of_different_lengths():
    assert ranks(3, uneven) == [[1.0] * 3 + [2.0] * 6] * 3


def one_list_one_array(world):
    x = np.full(2, world.rank)
    flat = np.zeros((2, 2), int)
    world.all_gather(list(flat) if world.rank == 0 else flat, x)
    return flat.tolist()


def test_a_list_of_equal_arrays_is_the_same_as_one_array():
    assert ranks(2, one_list_one_array) == [[[0, 0], [1, 1]]] * 2


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda w, x: w.reduce(x, out=np.empty(3)), "out has 3 elements; expected 4"),
        (lambda w, x: w.gather(None, x), "out is None; expected an array or a list of arrays on the root, rank 0"),
        (lambda w, x: w.gather(np.empty(5), x), "out has 5 elements; expected 4"),
        (lambda w, x: w.gather([np.empty(5)], x), r"out\[0\] has 5 elements; expected 4"),
        (lambda w, x: w.gather([np.empty(4, "f4")], x), "out has element type f32; expected f64"),
        (lambda w, x: w.scatter(x), "x is None; expected"),
        (lambda w, x: w.scatter(x, [x, x]), "x has 2 arrays; expected 1, one per rank"),
        (lambda w, x: w.gather(np.empty(4), x, root=1), "root"),
        (lambda w, x: w.all_gather(np.empty(4), x, counts=[3]), r"out has 4 elements; expected 3, the sum of counts"),
        (lambda w, x: w.all_to_all(x, x, send_counts=[4], recv_counts=[3]), "out has 4 elements; expected 3, the sum of recv_counts"),
        (lambda w, x: w.all_to_all([x], [x], send_counts=[3], recv_counts=[4]), r"x\[0\] has 4 elements; expected 3, send_counts\[0\]"),
        (lambda w, x: dsc.broadcast_coalesced(0, [x]), "comm is a int; expected a Communicator"),
        (lambda w, x: w.all_gather(np.empty(3), x, counts=[3]), r"x has 4 elements; expected 3, counts\[0\]"),
        (lambda w, x: w.all_gather(x, x, counts=[2, 2]), "counts has 2 numbers; expected 1, one per rank"),
        (lambda w, x: w.all_gather(x, x, counts=[-1]), r"counts\[0\] is -1; expected 0 to"),
        (lambda w, x: w.reduce_scatter(x, [np.empty(3)]), r"x\[0\] has 3 elements; expected 4, like out"),
        (lambda w, x: w.all_to_all(np.empty(3), x), "x has 4 elements; expected 3"),
        (lambda w, x: w.all_to_all([x]), "x is None; expected x when out is a list"),
        (lambda w, x: w.all_to_all(x, np.empty(4), send_counts=[4]), "recv_counts is None; expected one count per rank, because out is one array"),
        (lambda w, x: w.monitored_barrier(0), "timeout is 0; expected a number of seconds above 0"),
        (lambda w, x: w.all_reduce(x, dsc.premul(float("nan"))), "scale"),
        (lambda w, x: dsc.user_op(min, -1), r"id is -1; expected 0 to 2\*\*64 - 1"),
        (lambda w, x: setattr(w, "nonfinite_check", "on"), 'nonfinite_check is "on"; expected one of "off", "count", "fail"'),
    ],
)
def test_wrong_arguments(world, call, text):
    with pytest.raises((ValueError, TypeError), match=text):
        call(world, np.zeros(4))


def test_every_operation_on_one_rank(world):
    x, out = np.arange(4.0), np.zeros(4)
    for call in (
        lambda: world.reduce(x, out=out),
        lambda: world.gather(out, x),
        lambda: world.gather([out], x),
        lambda: world.scatter(out, x),
        lambda: world.all_to_all(out, x),
        lambda: world.all_to_all([out], [x]),
        lambda: world.all_gather(out, x, counts=[4]),
        lambda: world.reduce_scatter(out, x, counts=[4]),
    ):
        out[:] = 0
        call()
        assert (out == x).all()
    world.monitored_barrier(5)


# ---- user-defined operations ---------------------------------------------------------------------------------------


def scaled(world):
    op, x = dsc.premul(0.5), np.full(100, 2.0 + world.rank, np.float32)
    world.all_reduce(x, op)
    return x[0], x[-1]


def test_premul():
    assert ranks(2, scaled) == [(2.5, 2.5)] * 2


def first_nonzero(earlier, later):
    return np.where(earlier != 0, earlier, later)


def combined(world):
    x = np.zeros(5000, np.int64)
    x[world.rank :: 3] = world.rank + 1
    x[3000:] = world.rank + 1
    world.all_reduce(x, dsc.user_op(first_nonzero, 7, commutative=False))
    largest, out = np.full(10, world.rank), np.zeros(10, int)
    work = world.all_reduce(largest, dsc.user_op(lambda a, b: np.maximum(a, b, out=a), 8), out=out, async_op=True)
    gc.collect()  # only the work still refers to that operation
    work.wait()
    return x[:3].tolist(), set(x[3000:].tolist()), out.tolist()


def test_user_op_in_the_order_of_ranks():
    assert ranks(3, combined) == [([1, 2, 3], {1}, [2] * 10)] * 3


def fails(world, async_op):
    def broken(earlier, later):
        raise KeyError("not my day")

    with pytest.raises(dsc.CallbackError) as caught:
        work = world.all_reduce(np.ones(8), dsc.user_op(broken, 1), async_op=async_op)
        work.wait()
    assert "user operation 1 returned 1: KeyError: 'not my day'" in str(caught.value)  # on every rank
    return repr(caught.value.__cause__)


@pytest.mark.parametrize("async_op", [False, True])
def test_an_exception_in_a_user_op_is_the_cause(async_op):
    found = dsc.spawn(_fails_in_world, 2, (async_op,), timeout=60)
    assert "KeyError('not my day')" in found and set(found) <= {"KeyError('not my day')", "None"}


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def _raises(rank, error):
    world = dsc.init_distributed(init_timeout=30, timeout=30)

    def broken(earlier, later):
        raise Unprintable if error == "Unprintable" else AssertionError

    with pytest.raises(dsc.CallbackError) as caught:
        world.all_reduce(np.ones(8), dsc.user_op(broken, 1))
    return str(caught.value)


@pytest.mark.parametrize("error", ["Unprintable", "AssertionError"])
def test_an_exception_without_a_text_is_named_by_its_type(error):
    for text in dsc.spawn(_raises, 2, (error,), timeout=60):
        assert re.search(rf"user operation 1 returned 1: {error}\b(?!:)", text), text


def _fails_in_world(rank, async_op):
    return fails(dsc.init_distributed(init_timeout=30, timeout=30), async_op)


RETURNS = {
    "shape": (lambda earlier, later: later[:1], "ValueError('the function returned an array of shape (1,); expected (8"),
    "scalar": (lambda earlier, later: 3, "ValueError('the function returned an array of shape (); expected (8"),
    "cast": (lambda earlier, later: earlier / 2, "TypeError('the function returned elements of float64; expected int"),
}


def _returns_wrongly(rank, name):
    world = dsc.init_distributed(init_timeout=30, timeout=30)
    with pytest.raises(dsc.CallbackError) as caught:
        world.all_reduce(np.arange(8, dtype=np.int32), dsc.user_op(RETURNS[name][0], 1))
    return repr(caught.value.__cause__)


@pytest.mark.parametrize("name", RETURNS)
def test_what_a_user_op_may_not_return(name):
    found = set(dsc.spawn(_returns_wrongly, 2, (name,), timeout=60))
    assert any(text.startswith(RETURNS[name][1]) for text in found - {"None"}) and len(found) <= 2, found


def test_ids_that_differ_are_a_mismatch():
    assert set(dsc.spawn(_mismatch, 2, timeout=60)) == {"MismatchError"}


def _mismatch(rank):
    world = dsc.init_distributed(init_timeout=30, timeout=30)
    with pytest.raises(dsc.DscError) as caught:
        world.all_reduce(np.ones(3), dsc.user_op(np.minimum, rank))
    return type(caught.value).__name__


def test_the_end_of_an_op(world):
    def function(earlier, later):
        return earlier + later

    op, alive = dsc.user_op(function, 3), weakref.ref(function)
    assert "user_op(" in repr(op) and op.close() is None and op.close() is None
    with pytest.raises(ValueError, match="closed>; expected an operation that is not closed"):
        world.all_reduce(np.ones(3), op)
    with dsc.user_op(function, 3) as op:
        pass
    assert "closed" in repr(op)
    del function, op
    assert alive() is None
    with pytest.raises(TypeError, match="function is a int"):
        dsc.user_op(3, 1)
    with pytest.raises(dsc.UnsupportedError):
        world.all_reduce(np.ones(3, int), dsc.premul(2))


# ---- batches -------------------------------------------------------------------------------------------------------


def batched(world):
    peer, x = 1 - world.rank, np.full(100_000, world.rank + 1.0)
    came, total, listed = np.zeros_like(x), np.ones(3), [np.zeros(1), np.zeros(1)]
    with world.batch() as batch:
        world.send(x, peer)  # outside of a batch both ranks would wait here forever
        world.recv(came, peer)
        world.all_reduce(total)
        world.all_gather(listed, np.array([world.rank + 1.0]))
    assert batch.work is None and (came == peer + 1).all() and (total == 2).all()
    assert [float(part[0]) for part in listed] == [1.0, 2.0]
    with world.batch(async_op=True) as batch:
        world.recv(came, peer)
        world.send(-x, peer)  # only the batch still refers to that array
    gc.collect()
    batch.work.wait()
    return came[0]


def test_batch():
    assert ranks(2, batched) == [-2.0, -1.0]


def test_an_exception_ends_a_batch(world):
    x = np.ones(3)
    with pytest.raises(KeyError):
        with world.batch():
            world.all_reduce(x, dsc.premul(2))
            raise KeyError
    assert (x == 2).all()
    with pytest.raises(ValueError, match="async_op is True inside batch"):
        with world.batch():
            world.all_reduce(x, async_op=True)
    with pytest.raises(dsc.StateError):
        with world.batch(), world.batch():
            pass
    world.all_reduce(x)


# ---- NaN and infinity, and missing ranks ---------------------------------------------------------------------------


def counts_nonfinite(world):
    assert world.nonfinite_check == "off" and world.nonfinite() == dsc.NonfiniteInputs(0, 0, None, None, None, None)
    world.nonfinite_check = "count"
    x = np.zeros(10)
    if world.rank == 1:
        x[4], x[7] = np.nan, np.inf
    world.all_reduce(x.copy())
    found = world.nonfinite(clear=True)
    assert (found.elements, found.operations, found.operation) == (2, 1, "all_reduce")
    assert (found.rank, found.index) == (1, 4) and world.nonfinite().elements == 0
    group = world.split(0)
    assert group.nonfinite_check == "count"
    world.nonfinite_check = "fail"
    with pytest.raises(dsc.NonfiniteError) as caught:
        world.all_reduce(x.copy())
    failure = caught.value
    assert (failure.rank, failure.ranks, failure.op, failure.group) == (1, (1,), "all_reduce", "world")
    assert failure.sequence == world.nonfinite().sequence and failure.index == 4
    assert "element 4; 2 elements of all inputs are NaN or infinite" in str(failure)
    work = world.all_reduce(x.copy(), async_op=True)
    with pytest.raises(dsc.NonfiniteError) as caught:
        work.wait()
    assert (caught.value.rank, caught.value.index) == (1, 4)
    with pytest.raises(dsc.NonfiniteError) as caught, world.batch():
        world.all_reduce(x)
    assert (caught.value.ranks, caught.value.index, world.error()) == ((1,), 4, None)
    reducer = dsc.BucketReducer(world, [np.zeros(3), np.zeros(5)], names=["weight", "bias"])
    grads = [np.ones(3), np.ones(5)]
    grads[1][2] = np.nan if world.rank == 1 else 1
    reducer.begin()
    for i in (1, 0):
        reducer.mark_ready(i, grads[i])
    with pytest.raises(dsc.NonfiniteError, match="bias") as caught:
        reducer.finish()
    assert (caught.value.rank, caught.value.ranks, caught.value.index) == (1, (1,), 2)
    assert np.isnan(x[4])
    world.nonfinite_check = "off"
    world.all_reduce(x)
    return world.nonfinite_check


def test_nonfinite():
    assert ranks(2, counts_nonfinite) == ["off"] * 2


def _one_is_missing(rank):
    world = dsc.init_distributed(init_timeout=30, timeout=30)
    with pytest.raises(dsc.DscError) as caught:
        if rank == 0:
            world.monitored_barrier(0.2)
        else:
            world.recv(np.zeros(1), 0)
    return type(caught.value).__name__, caught.value.ranks


def test_monitored_barrier_names_the_missing():
    found = dsc.spawn(_one_is_missing, 2, timeout=60)
    assert found[0] == ("TimeoutError", (1,))


def keeps_arrays(world):
    kept = []

    def largest(earlier, later):
        kept.extend([(earlier, earlier.copy()), (later, later.copy())])
        return np.maximum(earlier, later)

    op = dsc.user_op(largest, 5)
    x = np.full(30000, world.rank, np.int32)
    world.all_reduce(x, op)
    as_seen = all((array == seen).all() for array, seen in kept)
    world.barrier()  # all ranks have compared before any rank writes
    for array, _ in kept:
        array[...] = -5
    world.barrier()
    untouched = bool((x == world.size - 1).all())
    y = np.full(30000, world.rank, np.int32)
    world.all_reduce(y, op)
    return as_seen, untouched, bool((y == world.size - 1).all()), len(kept) > 0


def test_arrays_that_a_user_op_keeps_are_its_own():
    found = ranks(3, keeps_arrays)
    assert all(entry[:3] == (True, True, True) for entry in found) and any(entry[3] for entry in found)
