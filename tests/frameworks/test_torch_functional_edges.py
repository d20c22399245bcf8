"""libdsc.torch.functional in special cases: changed tensors, second gradients, released memory, unequal parts, unusual
tensors."""

import gc
import weakref

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
import torch_ranks as ranks

import libdsc.megatron as mpu
from libdsc.torch import communicator
from libdsc.torch import functional as dscf
from test_torch_functional import alike, own


def changed_before_backward(rank):
    """Changes tensors that the backward pass reads again."""
    losses = [dscf.vocab_parallel_cross_entropy, lambda x, y: mpu.vocab_parallel_cross_entropy(x, y, tp_group=communicator()).sum()]
    for loss_of in losses:
        for index in range(2):
            scores, targets = own(rank, 3, 4).requires_grad_() * 1, torch.tensor([0, 1, 2])
            loss = loss_of(scores, targets)
            with torch.no_grad():
                (scores, targets)[index].zero_()
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
    return True


def test_logits_and_targets_that_changed():
    assert ranks.run(2, changed_before_backward) == [True] * 2


def without_second_gradients(rank):
    """The error must also appear if the upstream gradient needs no gradient, as for a gradient penalty."""
    ids = torch.zeros(3, 1, dtype=torch.int64)
    plan, weights = dscf.moe_plan(ids, dist.get_world_size()), own(rank, 3, 1).requires_grad_()
    for name, function, x in (
        ("vocab_parallel_cross_entropy", lambda x: dscf.vocab_parallel_cross_entropy(x, ids.flatten()), own(rank, 3, 4)),
        ("ring_attention", lambda x: dscf.ring_attention(x, x, x).sum(), own(rank, 1, 2, 1, 4)),
        ("all_reduce_rms_norm", lambda x: dscf.all_reduce_rms_norm(x)[0].sum(), own(rank, 3, 4)),
        ("moe_combine", lambda x: dscf.moe_combine(dscf.moe_dispatch(x, plan), plan, weights).sum(), own(rank, 3, 4)),
    ):
        (first,) = torch.autograd.grad(function(x.requires_grad_()), x, create_graph=True)
        (plain,) = torch.autograd.grad(function(x), x)
        assert torch.equal(first, plain)
        with pytest.raises(RuntimeError, match=f"{name}: second derivatives are not supported"):
            first.square().sum().backward()
    return True


def test_second_gradients_that_are_none():
    assert ranks.run(2, without_second_gradients) == [True] * 2


class OverArray(torch.autograd.Function):
    """A tensor over an array, so that a test sees when its memory is released."""

    @staticmethod
    def forward(ctx, x, array):
        array[...] = x.numpy()
        return torch.from_numpy(array)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def lets_go(rank):
    """Memory is released that only hooks of saved tensors keep, and a ring's memory when its group ends."""
    leaf, targets, array = own(rank, 3, 4).requires_grad_(), torch.tensor([0, 1, 2]), np.empty((3, 4))
    alive = weakref.ref(array)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda saved: saved):
        loss = dscf.vocab_parallel_cross_entropy(OverArray.apply(leaf, array), targets)
    del array
    gc.collect()
    assert alive() is None
    (gradient,) = torch.autograd.grad(loss, leaf)
    assert torch.equal(gradient, torch.autograd.grad(dscf.vocab_parallel_cross_entropy(leaf, targets), leaf)[0])
    group, rings = dist.new_group([0, 1]), set()
    for _ in range(2):
        # the second case has longer blocks, the first case has longer gradients
        for tokens, dtype in ((4, torch.float64), (12, torch.float16)):
            q = torch.ones(1, tokens, 1, 4, dtype=dtype)
            dscf.ring_attention(q, q, q, group)
            (ring,) = communicator(group)._attached.values()
            rings.add(id(ring))
    last = weakref.ref(ring)
    del ring
    dist.barrier()
    dist.destroy_process_group(group)
    assert last() is None
    return len(rings) <= 2


def test_memory():
    assert ranks.run(2, lets_go) == [True] * 2


def unlike_parts(rank):
    x, mine = alike(2, 9), slice(*((0, 5), (5, 9))[rank])
    torch.testing.assert_close(dscf.rms_norm(x[:, mine], hidden_size=9), F.rms_norm(x, (9,))[:, mine])
    with pytest.raises(ValueError, match="hidden_size is None, but ranks have parts of different sizes, .5, 4."):
        dscf.rms_norm(x[:, mine])
    with pytest.raises(ValueError, match="num_embeddings is None, but ranks have parts of different sizes, .5, 4."):
        dscf.vocab_parallel_embedding(torch.arange(8), x.T[mine])
    return True


def test_parts_of_unlike_sizes():
    assert ranks.run(2, unlike_parts) == [True] * 2


def unusual_tensors(rank):
    """Lazy negatives, results that torch has not waited for, averages close to the limit of float16."""
    x = torch._neg_view(own(rank, 4))
    expected = -torch.cat([own(r, 4) for r in range(2)])
    assert torch.equal(dscf.all_gather(x), expected)
    assert torch.equal(dscf.all_reduce(x, "max"), expected.view(2, 4).amax(0))
    waiting = funcol.all_reduce(torch.ones(4), "sum", dist.group.WORLD)
    assert torch.equal(dscf.all_gather(waiting), torch.full((8,), 2.0))
    large = torch.full((2, 4), 40000.0, dtype=torch.float16)
    for dim, parts in ((0, None), (1, None), (1, [3, 1])):
        part = dscf.reduce_scatter(large, "avg", dim, parts=parts)
        assert part.shape == ((1, 4), (2, 2 if parts is None else parts[rank]))[dim] and (part == 40000).all()
    tokens, table = torch.zeros(2, 4, dtype=torch.int64), torch.ones(3, 5)
    shapes = [dscf.vocab_parallel_embedding(tokens, table, sequence_parallel=True, sequence_dim=dim).shape for dim in (-1, -2)]
    return shapes == [(2, 2, 5), (1, 4, 5)]


def test_unusual_tensors():
    assert ranks.run(2, unusual_tensors) == [True] * 2
