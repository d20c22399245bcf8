"""Forward and backward passes under libdsc.torch.DistributedDataParallel, on the ranks of one job. Each rank prints
what it found.

    python3 torch_ddp_passes.py [CASE ...]    on each rank; all cases without names
"""

import gc
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import libdsc as dsc
from libdsc.torch import DistributedDataParallel as Ours
from torch_ddp_cases import batches, expect_error, expect_same_everywhere, mean_of_ranks, reference_sums, run, small


def accumulates_without_zeroing(world):
    """Micro-batches under no_sync() accumulate in p.grad as in one process, for any owner of its memory, with or
    without zeroing."""
    for views in (False, True):
        for set_to_none in (None, False, True):
            model = Ours(small(), gradient_as_bucket_view=views)
            for iteration in range(4):
                xs = batches(world.rank, iteration, 3)
                if set_to_none is not None or iteration == 0:
                    model.zero_grad(set_to_none=bool(set_to_none))
                before = [0 if p.grad is None else p.grad.clone() for p in model.parameters()]
                with model.no_sync():
                    for x in xs[:-1]:
                        model(x).square().sum().backward()
                model(xs[-1]).square().sum().backward()
                expected = mean_of_ranks(world, model.module, iteration, 3)
                for p, g, old in zip(model.parameters(), expected, before):
                    assert torch.allclose(p.grad, g + old, rtol=1e-5, atol=1e-6), (views, set_to_none, iteration)
                expect_same_everywhere(world, [p.grad for p in model.parameters()])
            model.close()


class Routed(nn.Module):
    """Each rank uses a different layer. No rank uses the last layer."""

    def __init__(self, n):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(n + 1))

    def forward(self, x, which):
        return self.layers[which](x)


def others_gradients_arrive(world):
    """If only other ranks used a layer, p.grad gets their average, and the replicas stay equal.

    A layer that no rank used gets no gradient.
    """
    for views in (False, True):
        torch.manual_seed(0)
        model = Ours(Routed(world.size), find_unused_parameters=True, gradient_as_bucket_view=views)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        for iteration in range(3):
            optimizer.zero_grad()
            model(torch.ones(1, 4) * (iteration + 1), world.rank).square().sum().backward()
            for n, layer in enumerate(model.module.layers):
                assert (layer.weight.grad is None) == (n == world.size), n
            optimizer.step()
            expect_same_everywhere(world, list(model.parameters()))
        model.close()


def channels_last_parameters(world):
    """Rank 0's weights are copied into the model's own memory, and gradients have the strides of their parameters."""
    for views in (False, True):
        torch.manual_seed(world.rank)
        net = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        place, strides = net.weight.data_ptr(), net.weight.stride()
        model = Ours(net, gradient_as_bucket_view=views)
        torch.manual_seed(0)
        assert torch.equal(net.weight, nn.Conv2d(3, 8, 3).weight) and net.weight.data_ptr() == place
        for _ in range(3):
            model.zero_grad()
            x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
            model(x).square().sum().backward()
            assert net.weight.stride() == strides == net.weight.grad.stride()
            expect_same_everywhere(world, [net.weight.grad])
        model.close()


def user_set_gradients_of_other_strides(world):
    """A p.grad with other strides than its parameter is averaged in place, too."""
    model = Ours(nn.Linear(4, 4, bias=False))
    grad = model.module.weight.grad = torch.full((4, 4), float(world.rank)).t()[:, :]
    grad = model.module.weight.grad = torch.arange(16.0).reshape(4, 4).t() * world.rank
    before = grad.clone()
    x = torch.ones(1, 4)
    model(x).sum().backward()
    assert model.module.weight.grad is grad
    expected = 1 + before / max(world.rank, 1) * sum(range(world.size)) / world.size
    if world.rank > 0:
        assert torch.allclose(grad, expected)
    expect_same_everywhere(world, [grad])
    model.close()


def two_losses_and_two_passes(world):
    """Several losses, of one pass or of two, are all averaged. Stock DDP would leave out the second loss."""

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)

        def forward(self, x):
            return self.actor(x), self.critic(x)

    torch.manual_seed(0)
    for options in ({}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}):
        model = Ours(Pair(), **options)
        for iteration in range(3):
            model.zero_grad()
            (x,) = batches(world.rank, iteration, 1)
            a, c = model(x)
            a.square().sum().backward()
            c.square().sum().backward()
            expected = reference_sums(world, model.module, iteration, lambda m, x: sum(y.square().sum() for y in m(x)))
            for p, g in zip(model.parameters(), expected):
                assert torch.allclose(p.grad, g, rtol=1e-5)
        model.close()
    model = Ours(small())
    for iteration in range(3):
        model.zero_grad()
        (x,) = batches(world.rank, iteration, 1)
        first, second = model(x), model(2 * x)
        first.square().sum().backward(retain_graph=True)
        second.square().sum().backward()
        first.sum().backward()
        loss = lambda m, x: m(x).square().sum() + m(2 * x).square().sum() + m(x).sum()
        for p, g in zip(model.parameters(), reference_sums(world, model.module, iteration, loss)):
            assert torch.allclose(p.grad, g, rtol=1e-4, atol=1e-5)
        expect_same_everywhere(world, [p.grad for p in model.parameters()])
    model.close()


def missing_gradients_are_told(world):
    """A parameter without a gradient is an error of that backward pass, which names the parameter.

    The next iteration starts afresh.
    """

    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, both):
            return self.unused(self.used(x)) if both else self.used(x)

    model = Ours(Partly())
    for both in (True, False, True):
        call = lambda both=both: model(torch.ones(1, 4), both).sum().backward()
        if both:
            call()
        else:
            expect_error(dsc.StateError, r"unused\.weight \(index 2\).*set find_unused_parameters=True", call)
    model.close()
    model = Ours(Partly())
    kind = dsc.MismatchError if world.rank == 0 else dsc.StateError
    expect_error(kind, r"unused\.weight \(index 2\)", lambda: model(torch.ones(1, 4), world.rank == 0).sum().backward())
    model.close()


def failed_backward_is_told_by_the_next_forward(world):
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise ArithmeticError("on purpose")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, fails):
            y = self.a(x)
            return self.b(Raises.apply(y) if fails else y)

    model = Ours(Net())
    x = torch.ones(1, 4)
    expect_error(ArithmeticError, "on purpose", lambda: model(x, True).sum().backward())
    expect_error(dsc.StateError, r"a\.weight \(index 0\)", lambda: model(x, False))
    model.zero_grad()
    model(x, False).sum().backward()
    expect_same_everywhere(world, [p.grad for p in model.parameters()])
    model.close()


def passes_beside_the_wrapper_warn(world):
    model = Ours(small())
    (x,) = batches(world.rank, 0, 1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with model.no_sync():
            model(x).sum().backward()
        model(x).sum().backward()
        assert not told, told
        model.module(x).sum().backward()
        model.module(x).sum().backward()
    assert [str(each.message) for each in told if "on this rank only" in str(each.message)] == [str(told[0].message)]
    # adds to no p.grad, so the wrapper must not count this pass
    torch.autograd.grad(model(x).sum(), list(model.parameters()))
    model.close()


def gradient_penalty(world):
    """A pass with create_graph inside the loss does not count as the pass that is reduced."""
    model = Ours(small())
    for iteration in range(2):
        model.zero_grad()

        def loss(m, x):
            x = x.clone().requires_grad_()
            y = m(x).square().sum()
            (slope,) = torch.autograd.grad(y, x, create_graph=True)
            return y + slope.square().sum()

        (x,) = batches(world.rank, iteration, 1)
        loss(model, x).backward()
        for p, g in zip(model.parameters(), reference_sums(world, model.module, iteration, loss)):
            assert torch.allclose(p.grad, g, rtol=1e-4, atol=1e-5)
    model.close()


def checkpoint_around_the_wrapper(world):
    for reentrant in (False, True):
        model = Ours(small())
        for iteration in range(2):
            model.zero_grad()
            (x,) = batches(world.rank, iteration, 1)
            checkpoint(model, x.requires_grad_(), use_reentrant=reentrant).square().sum().backward()
            expected = reference_sums(world, model.module, iteration, lambda m, x: m(x).square().sum())
            for p, g in zip(model.parameters(), expected):
                assert torch.allclose(p.grad, g, rtol=1e-4, atol=1e-5), reentrant
        model.close()


class WithBuffers(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        kinds = [torch.int16, torch.bool, torch.int64, torch.float16, torch.complex64, torch.bfloat16, torch.float8_e4m3fn, torch.float64]
        for kind in kinds:
            self.register_buffer(f"of_{kind}".replace(".", "_"), torch.full((3,), float(rank)).to(kind))
        self.register_buffer("turned", torch.full((2, 5), float(rank)).t())
        self.register_buffer("gapped", torch.full((4, 6), float(rank))[:, ::2])
        self.register_buffer("one", torch.tensor(rank))
        self.register_buffer("unsaved", torch.full((2,), float(rank)), persistent=False)

    def forward(self, x):
        return self.layer(x)


def buffers_are_rank_zeros(world):
    """Buffers of every type and layout get rank 0's values, at first and in each forward pass, even if the module
    replaces a buffer."""

    def expect(model, number):
        for name, buffer in model.module.named_buffers():
            assert torch.equal(buffer.to(torch.complex128), torch.full(buffer.shape, number).to(buffer.dtype).to(torch.complex128)), name

    def change(model, rank):
        for name, buffer in model.module.named_buffers():
            buffer.copy_(torch.full(buffer.shape, float(rank)))

    x = torch.ones(1, 4)
    model = Ours(WithBuffers(world.rank))
    expect(model, 0)
    change(model, world.rank)
    model(x)
    expect(model, 0)
    model.module.one = torch.tensor(world.rank + 7)
    with torch.no_grad():
        model(x)
    assert model.module.one == 7
    model.module.one = torch.tensor(world.rank + 8)
    model(x)  # buffers are not synchronized after a pass that reduced nothing, as in PyTorch
    assert model.module.one == 8 + world.rank
    model.close()
    plain = Ours(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    for _ in range(3):
        plain(torch.randn(3, 4) + world.rank).sum().backward()
    plain(torch.randn(3, 4)).sum().backward()
    plain.close()
    for options in ({"broadcast_buffers": False}, {"forward_sync_buffers": False}):
        model = Ours(WithBuffers(world.rank), **options)
        first = world.rank if "broadcast_buffers" in options else 0
        expect(model, first)
        change(model, world.rank + 1)
        model(x)
        expect(model, world.rank + 1)
        model.close()


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))
        self.b = nn.Parameter(torch.randn(3, 4, dtype=torch.complex64).t())

    def forward(self, x):
        return (x @ self.a).abs().square().sum() + (x.conj() @ self.b).real.sum()


def complex_parameters(world):
    for views in (False, True):
        torch.manual_seed(0)
        module = Complex()
        model = Ours(module, gradient_as_bucket_view=views)
        for iteration in range(3):
            model.zero_grad()
            x = batches(world.rank, iteration, 1)[0].to(torch.complex64) * (1 + 2j)
            model(x).backward()
            every = [b[0].to(torch.complex64) * (1 + 2j) for b in (batches(r, iteration, 1) for r in range(world.size))]
            expected = torch.autograd.grad(sum(module.forward(each) for each in every) / world.size, list(module.parameters()))
            for p, g in zip(module.parameters(), expected):
                assert torch.allclose(p.grad, g, rtol=1e-4, atol=1e-5) and p.grad.dtype == torch.complex64
        model.close()


def gradients_that_a_program_keeps(world):
    """Without views p.grad stays the same tensor, and a gradient that the program has kept is never overwritten."""
    model = Ours(small())
    (x,) = batches(world.rank, 0, 1)
    kept = []
    for iteration in range(4):
        model.zero_grad()
        (model(x).sum() * (iteration + 1)).backward()
        kept.append((model.module[0].bias.grad, model.module[0].bias.grad.clone()))
    assert all(torch.equal(grad, then) for grad, then in kept)
    grad = kept[-1][0]
    model.zero_grad(set_to_none=False)
    model(x).sum().backward()
    assert model.module[0].bias.grad is grad
    model.close()
    model = Ours(small(), gradient_as_bucket_view=True)
    for _ in range(3):
        model.zero_grad()
        model(x).sum().backward()
    held = [p.grad for p in model.parameters()]
    model.close()
    del model
    gc.collect()
    assert all(torch.isfinite(grad).all() for grad in held)  # the memory is still valid after the wrapper was closed


def static_graph_changes_are_told(world):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, times, b=False):
            for _ in range(times):
                x = checkpoint(self.a, x, use_reentrant=True)
            return self.b(x) if b else x

    x = torch.ones(1, 4, requires_grad=True)
    for times, b, text in [(3, False, r"a\.(weight|bias) got a gradient 3 times"), (2, True, r"b\.weight|b\.bias")]:
        model = Ours(Twice(), static_graph=True)
        for _ in range(2):
            model(x, 2).sum().backward()
        assert model.module.b.weight.grad is None
        expect_error(dsc.StateError, text, lambda: model(x, times, b).sum().backward())
        world.barrier()  # closing inside an iteration ends the reducer on all ranks
        model.close()
    late = Ours(small())
    late._set_static_graph()
    late(torch.ones(1, 4)).sum().backward()
    assert late.static_graph
    late.close()


if __name__ == "__main__":
    run(globals())
