"""Every operation of a process group "dsc" with every torch type, compared with what torch computes on one rank."""

import pytest
import torch_ranks as ranks
import torch
import torch.distributed as dist

# Registers the backend. Only torch 2.14 and newer does this without an import, and only for an installed package.
import libdsc.torch  # noqa: F401

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
EIGHT_BITS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
COMPLEX = [torch.complex64, torch.complex128]
REDUCED = FLOATS + INTEGERS + EIGHT_BITS + COMPLEX
MOVED = [*REDUCED, torch.bool, torch.complex32, torch.float8_e8m0fnu]
WAYS = [(2, None), (3, None), (4, [0, 0, 1, 1])]
PLACES = ["one host, 2 ranks", "one host, 3 ranks", "two hosts, 4 ranks"]


def numbers(rank, dtype, count=5):
    """Returns small whole numbers, whose sums are exact in every type."""
    return (torch.arange(count) % 3 + rank % 3).to(torch.float32).to(dtype)


def bits(tensor):
    """Returns the bits of a tensor, because torch can compare only a few of its types."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def expect(found, expected, *what):
    assert found.dtype == expected.dtype and torch.equal(bits(found), bits(expected)), (*what, found, expected)


def total(dtype, size, op=torch.sum, **shape):
    given = torch.stack([numbers(rank, torch.float32, **shape) for rank in range(size)])
    found = op(given, dim=0)
    return (found if isinstance(found, torch.Tensor) else found.values).to(dtype)


def check_all_reduce(rank, size):
    for dtype in REDUCED:
        for async_op in (False, True):
            x = numbers(rank, dtype)
            work = dist.all_reduce(x, async_op=async_op)
            if async_op:
                assert work.wait() and work.is_completed() and work.is_success() and work.exception() is None
                assert work.result()[0].data_ptr() == x.data_ptr()
            expect(x, total(dtype, size), "sum", dtype, async_op)
        if dtype not in COMPLEX:
            for op, torchs in ((dist.ReduceOp.MAX, torch.amax), (dist.ReduceOp.MIN, torch.amin), (dist.ReduceOp.PRODUCT, torch.prod)):
                x = numbers(rank, dtype)
                dist.all_reduce(x, op)
                expect(x, total(dtype, size, torchs), op, dtype)
    for dtype in FLOATS:
        x = numbers(rank, dtype) * size
        dist.all_reduce(x, dist.ReduceOp.AVG)
        expect(x, total(dtype, size), "average", dtype)


def check_bits(rank, size):
    for dtype in INTEGERS:
        if not dtype.is_signed and dtype != torch.uint8:
            continue  # torch itself has no | for these types
        for op, combine in ((dist.ReduceOp.BOR, torch.bitwise_or), (dist.ReduceOp.BAND, torch.bitwise_and), (dist.ReduceOp.BXOR, torch.bitwise_xor)):
            x, expected = numbers(rank, dtype), numbers(0, dtype)
            for other in range(1, size):
                expected = combine(expected, numbers(other, dtype))
            dist.all_reduce(x, op)
            expect(x, expected, op, dtype)


def check_overflow(rank, size):
    """Sums of narrow integers overflow as in torch."""
    for dtype in (torch.int16, torch.uint16, torch.int8, torch.uint8):
        x = torch.full((3,), torch.iinfo(dtype).max, dtype=torch.int64).to(dtype)
        expected = (x.to(torch.int64) * size).to(dtype)
        dist.all_reduce(x)
        expect(x, expected, dtype)


def check_moves(rank, size):
    for dtype in MOVED:
        x = numbers(rank, dtype)
        dist.broadcast(x, size - 1)
        expect(x, numbers(size - 1, dtype), "broadcast", dtype)
        parts = [torch.empty(5, dtype=dtype) for _ in range(size)]
        dist.all_gather(parts, numbers(rank, dtype))
        whole = torch.empty(5 * size, dtype=dtype)
        dist.all_gather_into_tensor(whole, numbers(rank, dtype))
        for other in range(size):
            expect(parts[other], numbers(other, dtype), "all_gather", dtype)
            expect(whole[5 * other : 5 * other + 5], numbers(other, dtype), "all_gather_into_tensor", dtype)
        check_roots(rank, size, dtype)
        check_all_to_all(rank, size, dtype)


def check_roots(rank, size, dtype):
    parts = [torch.empty(5, dtype=dtype) for _ in range(size)] if rank == 1 else None
    dist.gather(numbers(rank, dtype), parts, dst=1)
    if rank == 1:
        for other in range(size):
            expect(parts[other], numbers(other, dtype), "gather", dtype)
    x = torch.empty(5, dtype=dtype)
    dist.scatter(x, [numbers(other + 1, dtype) for other in range(size)] if rank == 0 else None)
    expect(x, numbers(rank + 1, dtype), "scatter", dtype)


def check_all_to_all(rank, size, dtype):
    parts = [torch.empty(2 + other, dtype=dtype) for other in range(size)]
    dist.all_to_all(parts, [numbers(rank + other, dtype, 2 + rank) for other in range(size)])
    for other in range(size):
        expect(parts[other], numbers(rank + other, dtype, 2 + other), "all_to_all", dtype)
    rows = torch.cat([numbers(rank, dtype, 2) for _ in range(size)]).view(size, 2)
    out = torch.empty_like(rows)
    dist.all_to_all_single(out, rows)
    for other in range(size):
        expect(out[other], numbers(other, dtype, 2), "all_to_all_single", dtype)
    sends, comes = list(range(1, size + 1)), [rank + 1] * size
    out = torch.empty(sum(comes), 2, dtype=dtype)
    given = torch.cat([numbers(rank + other, dtype, 2).repeat(count, 1) for other, count in enumerate(sends)])
    dist.all_to_all_single(out, given, comes, sends)
    for other in range(size):
        expect(out[other * (rank + 1)], numbers(rank + other, dtype, 2), "split sizes", dtype)


def check_reduce_to_one(rank, size):
    for dtype in REDUCED:
        x = numbers(rank, dtype)
        dist.reduce(x, dst=1)
        expect(x, total(dtype, size) if rank == 1 else x, "reduce", dtype)
        if dtype in COMPLEX:
            continue
        out = torch.empty(2, dtype=dtype)
        dist.reduce_scatter_tensor(out, numbers(rank, dtype, 2 * size))
        expect(out, total(dtype, size, count=2 * size)[2 * rank : 2 * rank + 2], "reduce_scatter_tensor", dtype)
        out = torch.empty(rank + 1, dtype=dtype)
        dist.reduce_scatter(out, [numbers(rank, dtype, other + 1) for other in range(size)])
        expect(out, total(dtype, size, count=rank + 1), "reduce_scatter", dtype)


def check_together(rank, size):
    """Operations that torch combines, and several tensors in one call."""
    xs = [numbers(rank, torch.float32), numbers(rank, torch.float32, 3)]
    with dist._coalescing_manager():
        for x in xs:
            dist.all_reduce(x)
    for x in xs:
        expect(x, total(torch.float32, size, count=x.numel()), "coalesced all_reduce")
    outs = [torch.empty(5 * size), torch.empty(3 * size)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for out in outs:
            dist.all_gather_into_tensor(out, numbers(rank, torch.float32, out.numel() // size))
    manager.wait()
    for out in outs:
        expect(out, torch.cat([numbers(other, torch.float32, out.numel() // size) for other in range(size)]), "coalesced gather")
    with dist._coalescing_manager(device=torch.device("cpu")):
        x, y = numbers(rank, torch.int16), numbers(rank, torch.float32)
        dist.all_reduce(x)
        dist.broadcast(y, 1)
    expect(x, total(torch.int16, size), "between start_coalescing and end_coalescing")
    expect(y, numbers(1, torch.float32), "between start_coalescing and end_coalescing")


def check_shapes(rank, size):
    """Tensors without elements, with one element and no dimension, with another order of dimensions, and with gaps."""
    for shape in ((0,), (), (2, 0, 3), (1, 1)):
        x = torch.full(shape, float(rank))
        dist.all_reduce(x)
        expect(x, torch.full(shape, float(sum(range(size)))), shape)
        dist.broadcast(x, 0)
    x = torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last) * (rank + 1)
    expected = torch.arange(24.0).view(1, 2, 3, 4) * sum(range(1, size + 1))
    dist.all_reduce(x)
    assert x.is_contiguous(memory_format=torch.channels_last) and torch.equal(x, expected)
    whole = torch.zeros(4, 4)
    with pytest.raises(ValueError, match="must be contiguous"):
        dist.all_reduce(whole[:, 1])
    out = [torch.empty(4) for _ in range(size)]
    dist.all_gather(out, (whole + rank)[:, 1])  # an input may have gaps
    expect(out[1], torch.full((4,), 1.0), "gaps")
    x = torch.ones(3, requires_grad=True)
    dist.broadcast(x.detach().fill_(float(rank)), 1)
    assert x.tolist() == [1.0] * 3


def check_sparse(rank, size):
    x = torch.sparse_coo_tensor([[rank, 7, 7]], [[1.0, 2.0], [3.0, 4.0], [1.0, 1.0]], (8, 2))
    expected = sum(
        torch.sparse_coo_tensor([[other, 7, 7]], [[1.0, 2.0], [3.0, 4.0], [1.0, 1.0]], (8, 2)).to_dense()
        for other in range(size)
    )
    dist.all_reduce(x)
    assert x.is_sparse and torch.equal(x.to_dense(), expected)
    empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0, 2), (8, 2))
    dist.all_reduce(empty)
    assert empty._nnz() == 0


def check_premultiplied(rank, size):
    x = numbers(rank, torch.float32)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    expect(x, total(torch.float32, size) / 2, "premultiplied sum")


def check_objects(rank, size):
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": other} for other in range(size)]
    listed = [f"of {rank}", rank]
    dist.broadcast_object_list(listed, src=1)
    assert listed == ["of 1", 1]
    own = [None]
    dist.scatter_object_list(own, [("part", other) for other in range(size)] if rank == 0 else None, src=0)
    assert own == [("part", rank)]
    found = [None] * size if rank == 1 else None
    dist.gather_object(rank, found, dst=1)
    assert rank != 1 or found == list(range(size))


def check_futures(rank, size):
    """A future is ready when its operation is complete, even if the program never waits for the work.

    Futures can be chained.
    """
    x = numbers(rank, torch.float32)
    future = dist.all_reduce(x, async_op=True).get_future()
    doubled = future.then(lambda ready: ready.value()[0] * 2)
    expect(doubled.wait(), total(torch.float32, size) * 2, "future")
    done = dist.group.WORLD.allreduce([x], dist.AllreduceOptions()).get_future()
    assert done.wait()[0].data_ptr() == x.data_ptr() and done.done()


ALL = [
    check_all_reduce,
    check_bits,
    check_overflow,
    check_moves,
    check_reduce_to_one,
    check_together,
    check_shapes,
    check_sparse,
    check_premultiplied,
    check_objects,
    check_futures,
]


def everything(rank):
    for check in ALL:
        check(rank, dist.get_world_size())


@pytest.mark.parametrize(("size", "hosts"), WAYS, ids=PLACES)
def test_all_operations(size, hosts):
    ranks.run(size, everything, hosts=hosts)


def alone(rank):
    for check in (check_all_reduce, check_shapes, check_sparse, check_objects, check_futures):
        if check is not check_objects and check is not check_shapes:
            check(rank, 1)


def test_a_group_of_one_rank():
    ranks.run(1, alone)
