"""libdsc.torch.functional: gradients against finite differences, groups, errors, torch.compile, autocast,
checkpoints."""

import os
import pathlib
import re
import time

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch_ranks as ranks
from reducer_ranks import free_port
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch_adjoint import Alike, check

import libdsc as dsc
import libdsc.megatron as mpu
from libdsc.torch import communicator
from libdsc.torch import functional as dscf

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTS = [(2, None), pytest.param(3, None, marks=pytest.mark.full), (4, None), (2, [0, 1]), (3, [0, 0, 1])]
on_ranks = pytest.mark.parametrize(("n", "hosts"), HOSTS, ids=["2", "3", "4", "2 hosts", "3 on 2 hosts"])


def own(rank, *shape, seed=0):
    """Returns the numbers of one rank, which every rank can compute."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(100 * rank + seed))


def alike(*shape, seed=0):
    return own(0, *shape, seed=seed)


# ---- gradients -----------------------------------------------------------------------------------------------------


def maps(rank):
    n = dist.get_world_size()
    mean_free = {"copy": ([Alike(alike(2, 3))], False), "reduce": ([own(rank, 2, 3)], True)}
    mean_free |= {"scatter": ([Alike(alike(2, 3 * n))], False), "gather": ([own(rank, 2, 3)], True)}
    mean_free |= {name: ([own(rank, 2, 3 * n)], False) for name in ("gather_reduce", "reduce_scatter", "all_to_all")}
    for name, (inputs, is_alike) in mean_free.items():
        check(lambda x: dscf.tensor_map(x, name), *inputs, out=(is_alike,))
        check(lambda x: dscf.tensor_map(x, name).tanh(), *inputs, out=(is_alike,))
    check(lambda x: dscf.tensor_map(x, "sequence_to_hidden"), own(rank, 2, 3, 2 * n))
    check(lambda x: dscf.tensor_map(x, "hidden_to_sequence"), own(rank, 2 * n, 3, 2))
    parts = list(range(n))
    check(lambda x: dscf.tensor_map(x, "gather_reduce", 0, parts=parts), own(rank, rank, 3))
    return True


def collectives(rank):
    n = dist.get_world_size()
    check(dscf.all_reduce, own(rank, 2, 3))
    check(lambda x: dscf.all_reduce(x, "avg"), own(rank, 2, 3))
    check(lambda x: dscf.broadcast(x, n - 1), own(rank, 2, 3))
    check(lambda x: dscf.all_gather(x, 1), own(rank, 2, 3))
    check(lambda x: dscf.all_gather(x, parts=[1 + r for r in range(n)]), own(rank, 1 + rank, 3))
    check(lambda x: dscf.reduce_scatter(x, "avg", 1), own(rank, 2, 3 * n))
    for op in ("sum", "avg"):
        check(lambda x: dscf.reduce_scatter(x, op, parts=list(range(n))), own(rank, sum(range(n)), 2))
    check(lambda x: dscf.all_to_all(x, 1), own(rank, 2, 3 * n))
    sent, got = [1 + (rank + r) % 2 for r in range(n)], [1 + (rank + r) % 2 for r in range(n)]
    check(lambda x: dscf.all_to_all(x, send_parts=sent, recv_parts=got), own(rank, sum(sent), 2))
    check(lambda x: dscf.send_recv(x, (rank + 1) % n, (rank - 1) % n), own(rank, 2, 3))
    check(lambda x: dscf.send_recv(x, rank + 1 if rank + 1 < n else None, rank - 1 if rank else None), own(rank, 2, 3))
    return True


def collectives_again(rank):
    """The gradient is a function of the upstream gradient. This checks the gradient of that function."""
    n = dist.get_world_size()

    def gradient(function, *shape):
        x = own(rank, *shape).requires_grad_()

        def of_upstream(up):
            with torch.enable_grad():
                return torch.autograd.grad(function(x), x, up, create_graph=True)[0]

        return of_upstream

    check(gradient(dscf.all_reduce, 2, 3), own(rank, 2, 3, seed=1))
    check(gradient(lambda x: dscf.broadcast(x, 1), 2, 3), own(rank, 2, 3, seed=1))
    check(gradient(dscf.all_gather, 2, 3), own(rank, 2 * n, 3, seed=1))
    check(gradient(dscf.all_to_all, n, 3), own(rank, n, 3, seed=1))
    check(gradient(dscf.sequence_to_heads, 1, 2, n, 3), own(rank, 1, 2 * n, 1, 3, seed=1))
    check(gradient(lambda x: dscf.rms_norm(x, eps=1e-3), 2, 3), own(rank, 2, 3, seed=1))
    return True


def layers(rank):
    n = dist.get_world_size()
    x, bias = Alike(alike(2 * n, 3, 4)), own(rank, 5, seed=3)
    check(dscf.column_parallel_linear, x, own(rank, 5, 4, seed=2), bias)
    check(lambda *xs: dscf.column_parallel_linear(*xs, gather_output=True), x, own(rank, 5, 4, seed=2), bias, out=(True,))
    part = own(rank, 2, 3, 4)
    check(lambda *xs: dscf.column_parallel_linear(*xs, sequence_parallel=True), part, own(rank, 5, 4, seed=2), bias)
    check(lambda *xs: dscf.column_parallel_linear(*xs, sequence_parallel=True, sequence_dim=1), part, own(rank, 5, 4, seed=2), bias)
    bias, columns = Alike(alike(5, seed=3)), own(rank, 5, 4, seed=2)
    check(dscf.row_parallel_linear, own(rank, 2, 3, 4), columns, bias, out=(True,))
    check(lambda *xs: dscf.row_parallel_linear(*xs, input_is_parallel=False), Alike(alike(3, 4 * n)), columns, bias, out=(True,))
    check(lambda *xs: dscf.row_parallel_linear(*xs, sequence_parallel=True), own(rank, 2 * n, 3, 4), columns, bias)
    tokens = torch.arange(6 * n).remainder(3 * n - 1).view(2 * n, 3)
    rows = own(rank, len(dsc.split_range(3 * n - 1, n, rank)), 4)
    for sequence_parallel in (False, True):
        options = {"num_embeddings": 3 * n - 1, "sequence_parallel": sequence_parallel, "padding_idx": None}
        check(lambda w: dscf.vocab_parallel_embedding(tokens, w, **options), rows, out=(not sequence_parallel,))
    return True


def losses(rank):
    n, words = dist.get_world_size(), 3 * dist.get_world_size() + 1
    columns = len(dsc.split_range(words, n, rank))
    targets = torch.arange(10).remainder(words).view(5, 2)
    targets[1, 1] = -100
    for options in ({}, {"reduction": "none"}, {"reduction": "sum", "label_smoothing": 0.2, "z_loss": 0.01}):
        check(lambda x: dscf.vocab_parallel_cross_entropy(x, targets, vocab_size=words, **options), own(rank, 5, 2, columns), out=(True,))
    return True


def norms(rank):
    check(lambda x, w: dscf.rms_norm(x, w, 1e-3), own(rank, 2, 3), own(rank, 3, seed=1))
    x, residual, weight = own(rank, 2, 3), Alike(alike(2, 3, seed=1)), Alike(alike(3, seed=2))
    check(dscf.all_reduce_rms_norm, x, residual, weight, out=(True, True))
    check(lambda x, w: dscf.all_reduce_rms_norm(x, None, w)[0], x, weight, out=(True,))
    check(dscf.all_reduce_rms_norm, x, out=(True, True))
    return True


def attention(rank):
    n = dist.get_world_size()
    check(dscf.sequence_to_heads, own(rank, 2, 3, 2 * n, 2))
    check(dscf.heads_to_sequence, own(rank, 2, 3 * n, 2, 2))
    heads = [1] + [0] * (n - 1)
    check(lambda x: dscf.sequence_to_heads(x, head_parts=heads), own(rank, 2, 3, 1, 2))
    for options in ({}, {"is_causal": True}, {"is_causal": True, "order": "contiguous", "scale": 0.3}):
        inputs = (own(rank, 2, 2, 4, 3, seed=1), own(rank, 2, 2, 2, 3, seed=2), own(rank, 2, 2, 2, 3, seed=3))
        check(lambda *xs: dscf.ring_attention(*xs, **options), *inputs)
    return True


def experts(rank):
    n = dist.get_world_size()
    ids = torch.randint(-1, 2 * n, (4 + rank, 2), generator=torch.Generator().manual_seed(rank))
    with dscf.moe_plan(ids, 2 * n) as plan:
        check(lambda x: dscf.moe_dispatch(x, plan), own(rank, 4 + rank, 3))
        check(lambda x, w: dscf.moe_combine(x, plan, w), own(rank, plan.rows, 3), own(rank, 4 + rank, 2, seed=1))
        check(lambda x: dscf.moe_combine(x, plan), own(rank, plan.rows, 3))
    return True


@on_ranks
@pytest.mark.parametrize("body", [maps, collectives, collectives_again, layers, losses, norms, attention, experts])
def test_gradients(body, n, hosts):
    assert ranks.run(n, body, hosts=hosts) == [True] * n


# ---- results -------------------------------------------------------------------------------------------------------


def like_torch(rank):
    """Results equal those of torch's functions for the whole tensors."""
    n = dist.get_world_size()
    x, w = alike(3, 4 * n), alike(4 * n, seed=1)
    columns = slice(4 * rank, 4 * rank + 4)
    for eps in (None, 1e-2):
        torch.testing.assert_close(dscf.rms_norm(x[:, columns], w[columns], eps), F.rms_norm(x, (4 * n,), w, eps)[:, columns])
    partial, residual = own(rank, 3, 4), alike(3, 4, seed=7)
    hidden = sum(own(r, 3, 4) for r in range(n)) + residual
    normalized, rows = dscf.all_reduce_rms_norm(partial, residual, w[:4], 1e-2)
    torch.testing.assert_close(rows, hidden)
    torch.testing.assert_close(normalized, F.rms_norm(hidden, (4,), w[:4], 1e-2))
    targets = torch.tensor([0, 4 * n - 1, -100])
    for options in ({}, {"label_smoothing": 0.3}, {"label_smoothing": 1.0}, {"ignore_index": 0}, {"reduction": "none"}, {"reduction": "sum"}):
        expected = F.cross_entropy(x, targets.clamp(min=0) if "ignore_index" in options else targets, **options)
        got = dscf.vocab_parallel_cross_entropy(x[:, columns], targets.clamp(min=0) if "ignore_index" in options else targets, **options)
        torch.testing.assert_close(got, expected)
    ignored = dscf.vocab_parallel_cross_entropy(x[:, columns], torch.full((3,), -100))
    assert ignored.isnan()  # torch gives NaN, too
    assert torch.equal(dscf.all_reduce(torch.tensor([rank]), "max"), torch.tensor([n - 1]))
    return True


def ring_like_torch(rank, count):
    n = dist.get_world_size()
    whole = [own(0, 2, count, heads, 8, seed=seed) for seed, heads in enumerate((4, 2, 2))]
    for is_causal, order in ((False, "contiguous"), (True, "contiguous"), (True, "zigzag")):
        leaves = [x.clone().requires_grad_() for x in whole]
        q, k, v = (x.transpose(1, 2) for x in leaves)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=True).transpose(1, 2)
        up = own(0, *out.shape, seed=9)
        out.backward(up)

        def mine(x):
            return dsc.take_tokens(x.detach(), n, rank, 1, order)

        parts = [mine(x).clone().requires_grad_() for x in leaves]
        found = dscf.ring_attention(*parts, is_causal=is_causal, order=order, tokens=count)
        torch.testing.assert_close(found, mine(out))
        found.backward(mine(up))
        for got, expected in zip(parts, leaves):
            torch.testing.assert_close(got.grad, mine(expected.grad))
    return True


@on_ranks
def test_like_torch(n, hosts):
    assert ranks.run(n, like_torch, hosts=hosts) == [True] * n


@on_ranks
@pytest.mark.parametrize("count", [24, 13, 3])  # with 3 some ranks have no tokens
def test_ring_attention(n, hosts, count):
    assert ranks.run(n, ring_like_torch, count, hosts=hosts) == [True] * n


def narrow_types(rank):
    """float32, bfloat16 and float16, with gaps in memory.

    Sums of small whole numbers are exact in all of these types.
    """
    n = dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = (torch.arange(6.0).view(3, 2) + rank).to(dtype).T.requires_grad_()
        y = dscf.all_reduce(x)
        assert y.dtype == dtype and torch.equal(y.detach(), sum((torch.arange(6.0).view(3, 2) + r).T for r in range(n)).to(dtype))
        y.sum().backward()
        assert x.grad.dtype == dtype and (x.grad == n).all()
        q = torch.ones(1, 2, 2, 4, dtype=dtype, requires_grad=True)
        out = dscf.ring_attention(q, q, q)
        assert out.dtype == dtype and (out == 1).all()
        out.sum().backward()
        assert q.grad.dtype == dtype and torch.isfinite(q.grad).all()
        loss = dscf.vocab_parallel_cross_entropy(torch.zeros(2, 3, dtype=dtype), torch.tensor([0, 1]))
        assert loss.dtype == torch.float32 and abs(loss - torch.tensor(3.0 * n).log()) < 1e-6
    return True


def test_narrow_types():
    assert ranks.run(2, narrow_types) == [True] * 2


def mixed_types(rank):
    """Under autocast products are computed in bfloat16. A float32 residual keeps its type."""
    x, up, down = torch.ones(2, 4), torch.ones(6, 4, requires_grad=True), torch.ones(4, 6, requires_grad=True)
    bias = torch.ones(4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = dscf.row_parallel_linear(dscf.column_parallel_linear(x, up), down, bias)
        assert y.dtype == torch.bfloat16 and (y == 24 * dist.get_world_size() + 1).all()
        normalized, rows = dscf.all_reduce_rms_norm(y, torch.zeros(2, 4), torch.ones(4))
        assert normalized.dtype == rows.dtype == torch.float32
        q, k, v = torch.randn(3, 1, 2, 2, 4, generator=torch.Generator().manual_seed(rank)).requires_grad_()
        attended = dscf.ring_attention(q, k, v)
        (narrow,) = torch.autograd.grad(attended.square().sum(), q)
        rows.sum().backward()
    expected = dscf.ring_attention(q, k, v)
    assert torch.equal(attended, expected)  # not rounded to bfloat16
    assert torch.equal(narrow, torch.autograd.grad(expected.square().sum(), q)[0])
    assert up.grad.dtype == torch.float32 and (bias.grad == 2).all() and (down.grad == 8).all()
    return True


def test_autocast():
    assert ranks.run(2, mixed_types) == [True] * 2


def mlp(x, up, down):
    hidden = dscf.column_parallel_linear(x, up).tanh()
    y = dscf.row_parallel_linear(hidden, down)
    return (dscf.all_gather(y) * dscf.all_reduce(y).sum()).square().mean()


def compiled(rank):
    """The compiled program, which has graph breaks, gives the same numbers as the program without torch.compile."""
    leaves = [alike(5, 4).requires_grad_(), own(rank, 6, 4, seed=1).requires_grad_(), own(rank, 4, 6, seed=2).requires_grad_()]
    fast = torch.compile(mlp, backend="aot_eager")
    for _ in range(2):
        expected, got = mlp(*leaves), fast(*leaves)
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(torch.autograd.grad(got, leaves), torch.autograd.grad(expected, leaves))
    logits, targets = own(rank, 5, 4), torch.arange(5)
    loss = torch.compile(dscf.vocab_parallel_cross_entropy, backend="aot_eager")
    torch.testing.assert_close(loss(logits, targets), dscf.vocab_parallel_cross_entropy(logits, targets))
    return True


def test_compile():
    assert ranks.run(2, compiled) == [True] * 2


def checkpointed(rank, use_reentrant):
    leaves = [alike(5, 4).requires_grad_(), own(rank, 6, 4, seed=1).requires_grad_(), own(rank, 4, 6, seed=2).requires_grad_()]
    mlp(*leaves).backward()
    expected = [x.grad.clone() for x in leaves]
    for x in leaves:
        x.grad = None
    checkpoint(mlp, *leaves, use_reentrant=use_reentrant).backward()
    return all(torch.equal(x.grad, y) for x, y in zip(leaves, expected))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints(use_reentrant):
    assert ranks.run(2, checkpointed, use_reentrant) == [True] * 2


# ---- groups --------------------------------------------------------------------------------------------------------


def every_kind_of_group(rank):
    n = dist.get_world_size()
    pairs = [dist.new_group([2 * p, 2 * p + 1]) for p in range(n // 2)]
    mesh = dist.device_mesh.init_device_mesh("cpu", (n // 2, 2), mesh_dim_names=("dp", "tp"))
    x = torch.tensor([float(rank)])
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    for group in (pairs[rank // 2], communicator(pairs[rank // 2]), mesh["tp"]):
        assert dscf.all_reduce(x, group=group) == sum(pair)
        assert torch.equal(dscf.all_gather(x, group=group), torch.tensor(pair).float())
    assert dscf.all_reduce(x) == dscf.all_reduce(x, group=dist.group.WORLD) == sum(range(n))
    with pytest.raises(ValueError, match="device_mesh has 2 dimensions; expected 1"):
        dscf.all_reduce(x, group=mesh)
    gloo = dist.new_group(backend="gloo")
    with pytest.raises(TypeError, match="without the backend dsc; expected a group from"):
        dscf.all_reduce(x, group=gloo)
    with pytest.raises(TypeError, match="group is a str; expected a communicator of libdsc"):
        dscf.all_reduce(x, group="tp")
    dist.barrier()  # a rank that leaves early would make the other ranks' gloo connections fail
    return True


def test_groups():
    assert ranks.run(4, every_kind_of_group) == [True] * 4


def own_world(rank, n, job):
    with pytest.raises(dsc.StateError, match="no process group exists yet"):
        dscf.all_reduce(torch.ones(1))
    world = dsc.init_distributed(rank=rank, world_size=n, job_id=job, timeout=60)
    assert dscf.all_reduce(torch.ones(1)) == dscf.all_reduce(torch.ones(1), group=world) == n
    q = torch.ones(1, 2, 1, 2, dtype=torch.float64)
    group = world.split(0)
    for _ in range(2):
        dscf.ring_attention(q, q, q, group)
    group.close()
    with pytest.raises(dsc.BadHandleError):
        dscf.all_reduce(q, group=group)
    dscf.ring_attention(q, q, q, world.split(0))  # releases the ring of the closed group
    dsc.finalize()
    return True


def test_world_of_libdsc():
    assert ranks.run(2, own_world, 2, f"functional-{os.getpid()}", backend=None) == [True] * 2


def test_one_rank():
    """With one rank all functions are the identity, and torch allows the program to write the results."""
    assert ranks.run(1, one_rank) == [True]


def one_rank(rank):
    x = alike(2, 4).requires_grad_()
    y = dscf.row_parallel_linear(x, alike(3, 4, seed=1))
    torch.relu_(y)
    me = communicator()
    steps = [lambda x: dscf.tensor_map(x, "reduce"), dscf.all_gather, dscf.reduce_scatter, dscf.all_to_all, dscf.sequence_to_heads]
    steps += [lambda x: mpu.gather_from_sequence_parallel_region(x, True, me), lambda x: dscf.send_recv(x, 0, 0)]
    for step in steps:
        for given in (alike(1, 2, 2, 3), alike(1, 3, 2, 2).transpose(1, 3)):
            before = given.clone()
            torch.testing.assert_close(step(given).add_(1), before + 1)  # a new tensor, as with several ranks
            assert torch.equal(given, before)
    assert dscf.tensor_map(x, "copy").data_ptr() == x.data_ptr()
    for function in (dscf.all_reduce, dscf.all_gather, dscf.broadcast, dscf.reduce_scatter, dscf.rms_norm):
        check(function, alike(2, 4))
    check(lambda q: dscf.ring_attention(q, q, q, is_causal=True), alike(1, 3, 2, 4))
    with pytest.raises(ValueError, match="did you mean 'gather'"):
        dscf.tensor_map(x, "gathr")
    return True


# ---- errors --------------------------------------------------------------------------------------------------------


def wrong_arguments(rank):
    """Only one rank makes the call, so the call must not wait for the other rank."""
    if rank:
        return True
    x, w = torch.ones(3, 4), torch.ones(5, 4)
    linear, rows, words, ring = dscf.column_parallel_linear, dscf.row_parallel_linear, dscf.vocab_parallel_embedding, dscf.ring_attention
    entropy, one = dscf.vocab_parallel_cross_entropy, torch.tensor([1, 2, 3])
    cases = [
        (ValueError, "did you mean 'gather'", lambda: dscf.tensor_map(x, "gathr")),
        (ValueError, "3 elements along dimension 0; expected a multiple of 2", lambda: dscf.tensor_map(x, "scatter", 0)),
        (ValueError, "dim is 7; expected -2 to 1", lambda: dscf.all_gather(x, 7)),
        (TypeError, "x is a list; expected a torch.Tensor", lambda: dscf.all_reduce([1.0])),
        (TypeError, "layout torch.sparse_coo; expected a dense tensor", lambda: dscf.all_reduce(x.to_sparse())),
        (ValueError, "op is 'max', which has no gradient", lambda: dscf.all_reduce(x.clone().requires_grad_(), "max")),
        (ValueError, "op is 'max'; expected 'sum' or 'avg'", lambda: dscf.reduce_scatter(x, "max")),
        (ValueError, 'op is "total"; expected one of "sum"', lambda: dscf.all_reduce(x, "total")),
        (dsc.InvalidArgError, "root is 2, expected 0 to 1", lambda: dscf.broadcast(x, 2)),
        (ValueError, "dest is 0 and source is 1; expected both or neither to be 0, this rank itself", lambda: dscf.send_recv(x, 0, 1)),
        (ValueError, "x requires no gradient, so no gradient would be sent back to rank 1", lambda: dscf.send_recv(x, None, 1)),
        (TypeError, "x is a FakeTensor", lambda: dscf.all_reduce(FakeTensorMode().from_tensor(x))),
        (ValueError, "recv_parts is None; expected both", lambda: dscf.all_to_all(x, send_parts=[1, 2])),
        (TypeError, "x has element type torch.float32 and weight torch.float64", lambda: linear(x, w.double())),
        (ValueError, "expected 4 elements in the last dimension, because weight has shape", lambda: linear(torch.ones(3, 5), w)),
        (ValueError, "gather_output and sequence_parallel", lambda: linear(x, w, gather_output=True, sequence_parallel=True)),
        (ValueError, "sequence_dim is 1, the last dimension", lambda: linear(x, w, sequence_parallel=True, sequence_dim=1)),
        (ValueError, "bias has shape .1,.; expected .5,., because weight has 5 rows", lambda: linear(x, w, torch.ones(1))),
        (TypeError, "bias has element type torch.float64 and weight torch.float32", lambda: rows(x, w, torch.ones(5).double())),
        (ValueError, "bias is on meta and weight on cpu", lambda: linear(x, w, torch.ones(5, device="meta"))),
        (ValueError, "x is on cpu and weight on meta", lambda: linear(x, w.to("meta"))),
        (ValueError, "weight has shape .4,.; expected two dimensions", lambda: linear(x, torch.ones(4))),
        (ValueError, "expected 8 elements in the last dimension", lambda: rows(x, w, input_is_parallel=False)),
        (ValueError, "expected a multiple of 2, the number of ranks", lambda: rows(x, w, sequence_parallel=True)),
        (ValueError, "input_is_parallel is False", lambda: rows(x, w, sequence_parallel=True, input_is_parallel=False)),
        (IndexError, "tokens contains 99; expected values from 0 to 9", lambda: words(torch.tensor([99]), w)),
        (IndexError, "tokens contains -1; expected values from 0 to 9", lambda: words(torch.tensor([-1]), w)),
        (ValueError, "padding_idx is 10; expected -10 to 9", lambda: words(torch.tensor([1]), w, padding_idx=10)),
        (ValueError, "padding_idx is -11; expected", lambda: words(torch.tensor([1]), w, padding_idx=-11)),
        (ValueError, "dim is -3; expected -2 to 1", lambda: words(one.view(3, 1), w, sequence_parallel=True, sequence_dim=-3)),
        (TypeError, "tokens has element type torch.float32", lambda: words(torch.ones(2), w)),
        (ValueError, "expected 6 rows, the part of rank 0 when 11 rows are divided", lambda: words(torch.tensor([0]), w, num_embeddings=11)),
        (ValueError, "reduction is 'avg'", lambda: entropy(x, one, reduction="avg")),
        (ValueError, "label_smoothing is 2; expected a number from 0 to 1", lambda: entropy(x, one, label_smoothing=2)),
        (ValueError, "targets has shape .*expected", lambda: entropy(x, one[:2])),
        (dsc.InvalidArgError, "targets.0. is 99, expected 0 to 7", lambda: entropy(x, one + 98)),
        (ValueError, "logits has 4 columns; expected 5", lambda: entropy(x, one, vocab_size=9)),
        (ValueError, "q, k and v have shapes", lambda: ring(x, x, x)),
        (ValueError, "the heads of q may be a multiple of the heads of k and v", lambda: ring(*(torch.ones(1, 2, h, 4) for h in (3, 2, 2)))),
        (ValueError, "q has 2 tokens; expected 3, the part of rank 0 when 5 tokens are divided", lambda: ring(*[torch.ones(1, 2, 1, 4)] * 3, tokens=5)),
        (ValueError, "x has shape .*expected .batch, sequence, heads, head_dim.", lambda: dscf.sequence_to_heads(x)),
        (TypeError, "plan is a int; expected a plan that moe_plan", lambda: dscf.moe_combine(x, 3)),
        (TypeError, "expert_ids has element type torch.float32", lambda: dscf.moe_plan(x, 4)),
        (ValueError, "the tensor is on meta", lambda: dscf.all_reduce(x.to("meta"))),
    ]
    for kind, text, call in cases:
        with pytest.raises(kind, match=text):
            call()
    return True


def test_wrong_arguments():
    assert ranks.run(2, wrong_arguments) == [True] * 2


def different_shapes(rank):
    q = torch.ones(1, 4, 1, 4)
    dscf.ring_attention(q, q, q)
    short = torch.ones(1, 1 + rank, 1, 4)
    with pytest.raises(dsc.MismatchError):
        dscf.ring_attention(short, short, short)  # this ends the ring, not the group
    assert (dscf.ring_attention(q, q, q) == 1).all()
    x = torch.ones(2 + rank, requires_grad=True)
    with pytest.raises(dsc.MismatchError, match="rank 0: .*rank 1: "):
        dscf.all_reduce(x)
    return True


def test_ranks_that_differ():
    assert ranks.run(2, different_shapes) == [True] * 2


def loses_a_rank(rank, is_backward):
    x = torch.ones(3, requires_grad=True)
    y = dscf.all_reduce(x)
    if rank == 1:
        os._exit(9)
    start = time.monotonic()
    with pytest.raises(dsc.PeerDeadError) as caught:
        y.sum().backward() if is_backward else dscf.all_gather(y)
    assert tuple(caught.value.ranks) == (1,) and "rank 1" in str(caught.value)
    return time.monotonic() - start < 30  # long before the time-out


@pytest.mark.parametrize("hosts", [None, [0, 1, 1]], ids=["one host", "two hosts"])
@pytest.mark.parametrize("is_backward", [False, True])
def test_rank_that_dies(is_backward, hosts):
    found = ranks.run(3, loses_a_rank, is_backward, hosts=hosts, lost=(1,))
    assert found == [True, None, True]


# ---- document ------------------------------------------------------------------------------------------------------


def document(rank, n, port):
    """Runs the blocks of code of the page as one program."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    text = (ROOT / "docs" / "torch_functional.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    namespace = {}
    for block in blocks:
        exec(block, namespace)
    return len(blocks)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_document(n):
    assert ranks.run(n, document, n, str(free_port()), backend=None) == [10] * n
