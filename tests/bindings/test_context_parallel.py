"""Ring attention and Ulysses over ranks, forward and backward, compared with dense attention.

Also orders of a sequence.
"""

import gc

import numpy as np
import pytest

import libdsc as dsc
from attention import dense, dense_grads, narrowed, ring_backward, ring_forward, widened, works
from reducer_ranks import everywhere
from test_ranks import ranks

BATCH, HEADS, DIM = 2, 4, 3


def inputs(count, dtype, seed=0):
    """Returns q, k, v and the gradient of the output, for the whole sequence."""
    random = np.random.default_rng(seed)
    return [random.standard_normal((BATCH, count, HEADS, DIM)).astype(dtype) for _ in range(4)]


def close(found, expected, dtype):
    accuracy = 3e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(found, expected, accuracy, accuracy)


# ---- ring ----------------------------------------------------------------------------------------------------------


def ring_is_dense(world, count, dtype, order, causal):
    take = lambda x: dsc.take_tokens(x, world.size, world.rank, 1, order)  # noqa: E731
    whole = inputs(count, dtype)
    q, k, v, upstream = map(take, whole)
    kv, grad = np.stack([k, v]), np.full((2, *k.shape), np.nan, dtype)
    amounts = works(world, count, order if causal else None)
    parts = [sum(map(len, dsc.sequence_ranges(count, world.size, r, order))) for r in range(world.size)]
    longest = max(parts) * 2 * BATCH * HEADS * DIM * np.dtype(dtype).itemsize
    with dsc.Ring(world, longest, longest) as ring:
        for _ in range(2):  # a ring can be used for many passes
            out, lse = ring_forward(world, ring, q, kv, amounts, parts)
            dq = ring_backward(world, ring, q, kv, out, lse, upstream, amounts, grad, parts)
    expected = dense_grads(*whole[:3], causal, whole[3])
    for found, wanted in zip((out, dq, *grad), expected):
        close(found, take(wanted), dtype)
    # restore the whole sequence from the parts of all ranks
    shape = (BATCH, max(parts), HEADS, DIM)
    padded = np.zeros((world.size, *shape), dtype)
    mine = np.zeros(shape, dtype)
    mine[:, : parts[world.rank]] = out
    world.all_gather(padded, mine)
    close(dsc.put_tokens([padded[r][:, : parts[r]] for r in range(world.size)], 1, order), expected[0], dtype)


def ring_attention(world):
    ring_is_dense(world, 24, np.float32, "zigzag", True)
    ring_is_dense(world, 24, np.float64, "zigzag", True)
    ring_is_dense(world, 24, np.float64, "contiguous", True)
    ring_is_dense(world, 21, np.float64, "zigzag", True)  # chunks of unequal sizes
    ring_is_dense(world, 22, np.float32, "contiguous", False)
    ring_is_dense(world, 3, np.float64, "contiguous", True)  # with 4 ranks one rank has no tokens


test_ring_attention = everywhere(ring_attention)


def test_ring_attention_of_two():
    ranks(2, ring_attention)


def loss(world, ring, q, k, v, weights, amounts):
    """Returns the sum of the weighted outputs, a number that is equal on all ranks."""
    total = np.array([np.vdot(ring_forward(world, ring, q, np.stack([k, v]), amounts)[0], weights)])
    world.all_reduce(total)
    return total[0]


def numerical(world):
    """Checks that the gradient in a random direction equals the slope of the loss in that direction."""
    q, k, v, weights = (dsc.take_tokens(x, world.size, world.rank, 1) for x in inputs(24, np.float64, 1))
    steps = [dsc.take_tokens(x, world.size, world.rank, 1) for x in inputs(24, np.float64, 2)[:3]]
    amounts, kv = works(world, 24, "zigzag"), np.stack([k, v])
    with dsc.Ring(world, kv.nbytes, kv.nbytes) as ring:
        grad, epsilon = np.empty_like(kv), 1e-6
        out, lse = ring_forward(world, ring, q, kv, amounts)
        dq = ring_backward(world, ring, q, kv, out, lse, weights, amounts, grad)
        ends = [
            loss(world, ring, *(x + sign * epsilon * step for x, step in zip((q, k, v), steps)), weights, amounts)
            for sign in (1, -1)
        ]
    slope = np.array([sum(np.vdot(g, step) for g, step in zip((dq, *grad), steps))])
    world.all_reduce(slope)
    np.testing.assert_allclose(slope[0], (ends[0] - ends[1]) / (2 * epsilon), 1e-6)


test_numerical = everywhere(numerical)


def bf16(world):
    """Keys and values have 16 bits, gradients have 32 bits."""
    whole = inputs(24, np.float32, 3)
    whole[1:3] = [widened(narrowed(x)) for x in whole[1:3]]
    q, k, v, upstream = (dsc.take_tokens(x, world.size, world.rank, 1) for x in whole)
    kv, amounts = narrowed(np.stack([k, v])), works(world, 24, "zigzag")
    grad = np.empty(kv.shape, np.float32)
    with dsc.Ring(world, kv.nbytes, grad.nbytes) as ring:
        out, lse = ring_forward(world, ring, q, kv, amounts, dtype="bf16")
        dq = ring_backward(world, ring, q, kv, out, lse, upstream, amounts, grad, dtype="bf16")
        for found, wanted in zip((out, dq, *grad), dense_grads(*whole[:3], True, whole[3])):
            close(found, dsc.take_tokens(wanted, world.size, world.rank, 1), np.float32)
        sums = np.zeros(4, np.uint16)  # 16-bit sums round at each step: 256 + 1 + 1 gives 256
        for source, _, part in ring.backward(np.zeros(4, np.uint16), sums, dtype="bf16", grad_dtype="bf16"):
            part[:] = narrowed(np.full(4, 256 if source == world.rank else 1, np.float32))
    assert (widened(sums) == 256).all()


test_bf16 = everywhere(bf16)


# ---- Ulysses -------------------------------------------------------------------------------------------------------


def ulysses_is_dense(world, count, heads, dtype, uneven):
    random = np.random.default_rng(5)
    whole = [random.standard_normal((BATCH, count, heads, DIM)).astype(dtype) for _ in range(4)]
    parts = {}
    tokens, own_heads = (dsc.split_range(total, world.size, world.rank) for total in (count, heads))
    if uneven:
        parts = {
            f"{name}_parts": [len(dsc.split_range(total, world.size, r)) for r in range(world.size)]
            for name, total in (("sequence", count), ("head", heads))
        }
    there = lambda x: world.sequence_to_heads(x, **parts)  # noqa: E731
    back = lambda x: world.sequence_to_heads(x, direction="backward", **parts)  # noqa: E731
    mine = [np.ascontiguousarray(x[:, tokens.start : tokens.stop]) for x in whole]
    q, k, v = (there(x) for x in mine[:3])
    for x, expected in zip((q, k, v), whole):
        assert np.array_equal(x, expected[:, :, own_heads.start : own_heads.stop])
    out = back(dense(q, k, v, True)[0])
    gradients = dense_grads(q, k, v, True, there(mine[3]))[1:]  # the gradient of the exchange back is this exchange
    found = [out, *(back(np.ascontiguousarray(x)) for x in gradients)]
    for x, expected in zip(found, dense_grads(*whole[:3], True, whole[3])):
        close(x, expected[:, tokens.start : tokens.stop], dtype)


def ulysses(world):
    for dtype in (np.float32, np.float64):
        ulysses_is_dense(world, 12, 12, dtype, False)
        ulysses_is_dense(world, 11, 7, dtype, True)
        ulysses_is_dense(world, 9, 2, dtype, True)  # fewer heads than ranks


test_ulysses = everywhere(ulysses)


def asynchronous(world):
    x = np.arange(2 * 6 * 6 * 2, dtype=np.float32).reshape(2, 6, 6, 2)[:, : 6 // world.size]
    x = np.ascontiguousarray(x)
    out = np.empty((2, 6, 6 // world.size, 2), np.float32)
    world.sequence_to_heads(x, out=out, async_op=True).wait()
    assert np.array_equal(out, world.sequence_to_heads(x))
    narrow = narrowed(x)
    assert np.array_equal(world.sequence_to_heads(narrow, dtype="bf16"), narrowed(out))


def test_works_and_types():
    for n in (1, 2, 3):
        ranks(n, asynchronous)


# ---- orders of a sequence ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["zigzag", "contiguous"])
@pytest.mark.parametrize("count, n", [(24, 3), (8, 4), (7, 2), (11, 4), (3, 4), (0, 2), (5, 1)])
def test_causal_work_is_the_mask(order, count, n):
    """Every pair of a query and an earlier or equal key is computed exactly once, on the right rank.

    No other pair is computed.
    """
    held = [[token for part in dsc.sequence_ranges(count, n, r, order) for token in part] for r in range(n)]
    assert sorted(token for tokens in held for token in tokens) == list(range(count))
    for rank in range(n):
        for source in range(n):
            seen = np.array(held[rank], int)[:, None] >= np.array(held[source], int)
            found = np.zeros_like(seen)
            work = dsc.causal_work(count, n, rank, source, order)
            if work is not None:
                block = found[work.queries, work.keys]
                block[...] = np.tril(np.ones(block.shape, bool)) if work.is_diagonal else True
            assert np.array_equal(found, seen), (rank, source, work)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_zigzag_is_the_same_work_for_all(n):
    """In zigzag order every rank computes the same amount at each step, half of the amount without a mask.

    In contiguous order the amount varies from nothing to everything.
    """

    def pairs(rank, step, order):
        work = dsc.causal_work(4 * n, n, rank, (rank - step) % n, order)
        if work is None:
            return 0
        queries, keys = (part.stop - part.start for part in work[:2])
        return queries * (queries + 1) // 2 if work.is_diagonal else queries * keys

    for step in range(n):
        assert {pairs(rank, step, "zigzag") for rank in range(n)} == {10 if step == 0 else 8}
    if n > 1:
        assert {pairs(rank, 1, "contiguous") for rank in range(n)} == {0, 16}


def test_tokens_are_taken_and_put():
    x = np.arange(2 * 13 * 3).reshape(2, 13, 3)
    assert dsc.take_tokens(np.arange(12), 3, 1).tolist() == [2, 3, 8, 9]
    assert dsc.take_tokens(np.arange(12), 3, 1, order="contiguous").tolist() == [4, 5, 6, 7]
    for n in (1, 2, 3, 7):
        for order in ("zigzag", "contiguous"):
            for dim in (1, -2, 0):
                parts = [dsc.take_tokens(x, n, rank, dim, order) for rank in range(n)]
                assert np.array_equal(dsc.put_tokens(parts, dim, order), x)
    with pytest.raises(ValueError, match="x has no dimensions; expected one or more"):
        dsc.take_tokens(np.array(1), 2, 0)
    with pytest.raises(ValueError, match=r"parts\[0\] has shape \(5,\); expected \(4,\)"):
        dsc.put_tokens([np.zeros(5), np.zeros(3)])
    with pytest.raises(ValueError, match="parts is empty"):
        dsc.put_tokens([])
    with pytest.raises(ValueError, match="did you mean 'zigzag'"):
        dsc.sequence_ranges(8, 2, 0, "zigzak")
    with pytest.raises(dsc.InvalidArgError, match="rank is 2, expected 0 to 1"):
        dsc.sequence_ranges(8, 2, 2)
    with pytest.raises(dsc.InvalidArgError, match="source is -1, expected 0 to 1"):
        dsc.causal_work(8, 2, 0, -1)


def test_tokens_of_tensors_are_tensors():
    torch = pytest.importorskip("torch", minversion="2.14")
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.arange(24).to(dtype).reshape(12, 2)
        parts = [dsc.take_tokens(x, 3, rank) for rank in range(3)]
        assert parts[1].dtype == dtype and parts[1][:, 0].tolist() == [4, 6, 16, 18]
        assert torch.equal(dsc.put_tokens(parts), x)


# ---- wrong calls, and kinds of arrays ------------------------------------------------------------------------------


def arrays_of_a_ring(world):
    n, rank = world.size, world.rank
    own = np.full((2, 3), rank, np.float32)
    ring = dsc.Ring(world, own.nbytes)
    seen = []
    for source, block in ring(own):
        seen.append(source)
        assert block.shape == (2, 3) and (block == source).all() and not block.flags.writeable
        if source == rank:
            assert block.ctypes.data == own.ctypes.data
    assert seen == [(rank - step) % n for step in range(n)]
    first = ring(own)
    assert next(first)[0] == rank
    for source, _ in ring(own):  # every rank leaves this loop after the same step
        if source != rank or n == 1:
            break
    with pytest.raises(ValueError, match="another pass of this ring has started"):
        next(first)
    blocks = [block for _, block in ring(own.copy())]
    ring.close()
    del ring
    gc.collect()
    again = own.copy() + 1  # may reuse the memory of the copy if the copy was freed too early
    assert (blocks[0] == rank).all() and (blocks[-1] == (rank + 1) % n).all() and again is not None
    with dsc.Ring(world, own.nbytes, own.nbytes) as ring:
        grad = np.empty_like(own)
        for *_, place in ring.backward(own, grad):
            place += 1
    assert (grad == n).all()
    return seen


def test_arrays_of_a_ring():
    for n in (1, 2, 3):
        ranks(n, arrays_of_a_ring)


def leaves(world, steps):
    own = np.full(6, world.rank, np.float64)
    ring = dsc.Ring(world, own.nbytes)
    loop = ring(own)
    for _ in range(steps[world.rank] + 1):
        next(loop)
    with pytest.raises(dsc.MismatchError, match=f"left at {steps[0]}"):
        ring(own)
    world.barrier()  # the communicator still works


@pytest.mark.parametrize("steps", [(1, 1, 0), (0, 1, 1), (0, 0, 1)])
def test_a_pass_that_ranks_leave_after_other_steps(steps):
    ranks(3, leaves, steps)


def wrong_arguments(world):
    own, locked = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    locked.flags.writeable = False
    with dsc.Ring(world, own.nbytes, own.nbytes) as ring:
        assert "24 bytes, gradients 24" in repr(ring)
        for error, text, call in (
            (dsc.InvalidArgError, "the longest block has 32 bytes, expected at most 24, the ring's block_bytes", lambda: ring(np.zeros(8, "f4"))),
            (dsc.InvalidArgError, "the longest gradient of a block has 48 bytes, expected at most 24, the ring's grad_bytes", lambda: ring.backward(own, np.zeros((2, 3)))),
            (dsc.InvalidArgError, "overlap", lambda: ring.backward(own, own)),
            (ValueError, r"grad has shape \(3, 2\); expected \(2, 3\)", lambda: ring.backward(own, np.zeros((3, 2), "f4"))),
            (ValueError, "parts has 1 sizes; expected 2", lambda: ring(own, [2])),
            (ValueError, "block has 2 elements along dimension 0; expected 1", lambda: ring(own, [1, 1])),
            (ValueError, "dim is 2", lambda: ring(own, [2, 2], 2)),
            (ValueError, "block has no dimension", lambda: ring(np.zeros((), "f4"), [1, 1])),
            (ValueError, r"grad is read-only; .*\(such as numpy.empty\(\)\)", lambda: ring.backward(own, locked)),
            (TypeError, "world is a int; expected a Communicator", lambda: dsc.Ring(0, 10)),
            (TypeError, "block is a list", lambda: ring([1.0])),
        ):
            with pytest.raises(error, match=text):
                call()
        blocks = list(ring(own))
        assert [source for source, _ in blocks] == [world.rank, 1 - world.rank]
        with pytest.raises(dsc.InvalidArgError, match="block is in memory that the ring owns"):
            ring(blocks[-1][1])
    with pytest.raises(dsc.BadHandleError, match="ring: the ring was closed"):
        ring(own)
    x = np.zeros((1, 3, 4, 2), np.float32)
    for error, text, call in (
        (ValueError, r"x has shape \(2, 3\); expected \[batch", lambda: world.sequence_to_heads(own)),
        (ValueError, "3 elements along dimension 2; expected a multiple of 2", lambda: world.sequence_to_heads(x[:, :, :3].copy())),
        (ValueError, "expected 5, the part of rank", lambda: world.sequence_to_heads(x, sequence_parts=[5, 5])),
        (ValueError, "did you mean 'forward'", lambda: world.sequence_to_heads(x, direction="foward")),
        (ValueError, "out is None", lambda: world.sequence_to_heads(x, async_op=True)),
        (ValueError, r"out has shape \(1, 4, 3, 2\)", lambda: world.sequence_to_heads(x, out=np.zeros((1, 4, 3, 2), "f4"))),
        (ValueError, r"^block_bytes is 0; expected 1 to 2\*\*60 - 1$", lambda: dsc.Ring(world, 0)),
        (ValueError, r"^block_bytes is 4611686018427387904; expected 1 to", lambda: dsc.Ring(world, 2**62)),
        (ValueError, r"^grad_bytes is -1; expected 0 to 2\*\*60 - 1$", lambda: dsc.Ring(world, 8, -1)),
        (dsc.InvalidArgError, "overlap", lambda: world.sequence_to_heads(x, out=x.reshape(1, 6, 2, 2))),
    ):
        with pytest.raises(error, match=text):
            call()
    group, x = world.split(0), np.zeros((1, 4, 4, 2), np.float32)
    with pytest.raises(dsc.MismatchError, match="to heads, .*to sequence"):
        group.sequence_to_heads(x, direction=["forward", "backward"][world.rank], out=np.zeros(32, "f4"))
    ring = dsc.Ring(world, 64, 64)
    with pytest.raises(dsc.MismatchError, match=r"\[4\] f32, grad f32"):
        if world.rank == 0:
            ring(np.zeros(2, "f4"))
        else:
            ring.backward(np.zeros(2, "f4"), np.zeros(2, "f4"))
    world.barrier()  # the communicator still works


def test_wrong_arguments():
    ranks(2, wrong_arguments)
