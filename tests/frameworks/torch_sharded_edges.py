"""Unusual models and programs for ShardedDataParallel. Each gives the gradients of the plain module, or an error."""

import copy
import re
import types

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from libdsc.torch import ShardedDataParallel


class Expert(nn.Module):
    """Keeps a second loss where `keep` stores it."""

    def __init__(self, keep):
        super().__init__()
        self.keep, self.router, self.inner = keep, nn.Linear(6, 3), nn.Linear(6, 6)

    def forward(self, x):
        scores = self.router(x).softmax(-1)
        self.keep(self, (scores.square() * 3).sum())
        return self.inner(x) * scores[:, :1]


class Around(nn.Module):
    """A unit with a frozen weight before another unit and one after it."""

    def __init__(self):
        super().__init__()
        self.before, self.after, self.scale = (nn.Parameter(torch.randn(6, 6)) for _ in range(3))
        self.inner = nn.Linear(6, 6)
        self.before.requires_grad_(False)
        self.after.requires_grad_(False)

    def forward(self, x):
        return F.linear(self.inner(F.linear(x, self.before).tanh()), self.after) @ self.scale


def batch(rank):
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(rank), requires_grad=True)


def is_block(module):
    return isinstance(module, (Expert, Around)) or getattr(module, "out_features", 0) == 6


def gives_the_gradients_of_the_plain_module(rank, make, total):
    """make() returns the module and the object that keeps its second losses. total(module, x, kept) returns the
    loss."""
    torch.manual_seed(3)
    plain, kept = make()
    of_ranks = []
    for each in range(dist.get_world_size()):
        plain.zero_grad()
        total(plain, batch(each), kept).backward()
        of_ranks.append([None if p.grad is None else p.grad.clone() for p in plain.parameters()])
    torch.manual_seed(3)
    module, kept = make()
    model = ShardedDataParallel(module, units=is_block)
    total(model, batch(rank), kept).backward()
    norm = model.clip_grad_norm_(1e9)
    expected = [sum(grads) / len(grads) for grads in zip(*of_ranks) if grads[0] is not None]
    torch.testing.assert_close(norm, torch.stack([each.norm() for each in expected]).norm().item(), rtol=1e-5, atol=0)


def second_losses(rank):
    """Second losses work wherever they are kept: units are gathered again when a backward pass reads what the graph has
    saved."""
    outside = []
    keeps = {
        "private": lambda module, loss: setattr(module, "_aux", loss),
        "tuple": lambda module, loss: setattr(module, "aux", (loss,)),
        "object": lambda module, loss: setattr(module, "stats", types.SimpleNamespace(aux=loss)),
        "outside": lambda module, loss: outside.append(loss),
    }
    finds = {
        "private": lambda module: module._aux,
        "tuple": lambda module: module.aux[0],
        "object": lambda module: module.stats.aux,
        "outside": lambda module: outside.pop(),
    }
    for name, keep in keeps.items():

        def make(keep=keep):
            experts = nn.Sequential(nn.Linear(6, 6), Expert(keep), nn.Linear(6, 4))
            return experts, experts[1]

        gives_the_gradients_of_the_plain_module(rank, make, lambda model, x, expert, find=finds[name]: model(x).sum() + find(expert))
        gives_the_gradients_of_the_plain_module(rank, make, lambda model, x, expert, find=finds[name]: (model(x), find(expert))[1])
    return True


def frozen_weights(rank):
    """After a unit has all its gradients, its frozen weights are still needed for the gradient of an input."""

    def make():
        return nn.Sequential(nn.Linear(6, 6), Around(), nn.Linear(6, 4)), None

    gives_the_gradients_of_the_plain_module(rank, make, lambda model, x, _: model(x).square().sum())
    return True


def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def small():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 4))


class Changed(nn.Module):
    """Changes a tensor after the graph has saved it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        y = self.layer(x).exp()
        z = y.sum()
        y.add_(1)
        return z


class Written(nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            self.bias.add_(1)
        return super().forward(x)


class Shown(nn.Linear):
    def forward(self, x):
        return super().forward(x), self.weight.t()


def errors(rank):
    """An error is raised where a gradient would be lost or a released parameter would be read."""
    x, found = batch(rank), {}
    changed = ShardedDataParallel(Changed())
    found["in place"] = error_of(lambda: changed(x).backward())
    found["written"] = error_of(lambda: ShardedDataParallel(Written(6, 6))(x))
    found["view"] = error_of(lambda: ShardedDataParallel(Shown(6, 6))(x))
    model = ShardedDataParallel(small(), units=[nn.Linear])
    found["submodule"] = error_of(lambda: model.module[0].state_dict())
    found["inside"] = error_of(lambda: ShardedDataParallel(nn.Sequential(model)))
    found["outer"] = error_of(lambda: nn.ModuleDict({"inner": model}).load_state_dict({}, strict=False))
    found["early clip"] = error_of(lambda: model.clip_grad_norm_(1.0))
    with torch.no_grad():
        found["write whole"] = error_of(lambda: write_whole(model))
    hook = model.module[0].weight.register_post_accumulate_grad_hook(lambda p: None)
    found["own hook"] = error_of(lambda: model(x))
    hook.remove()
    frozen = small()
    frozen[0].requires_grad_(False)
    late = ShardedDataParallel(frozen)
    late.module[0].requires_grad_(True)
    found["late"] = error_of(lambda: late(x))
    with_grad = small()
    with_grad(x).sum().backward()
    found["gradient"] = error_of(lambda: ShardedDataParallel(with_grad))
    unlike = small()
    unlike[2].bias.requires_grad_(rank == 0)
    found["unlike"] = error_of(lambda: ShardedDataParallel(unlike))
    assert model(x).sum().isfinite()  # the model still works
    return found


def write_whole(model):
    with model.full_parameters():
        model.module[0].weight.zero_()


EXPECTED = {
    "in place": r"RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation",
    "written": "StateError: forward: bias was written in place during a pass",
    "view": "StateError: forward: a Shown returns memory of its parameter weight",
    "submodule": "StateError: state_dict: the parameters of this module are this rank's parts",
    "inside": "ValueError: module contains a ShardedDataParallel",
    "outer": "(?s)RuntimeError: .*inner is a ShardedDataParallel; call its own load_state_dict\\(\\)",
    "early clip": "StateError: clip_grad_norm_: there are no averaged gradients",
    "write whole": "StateError: full_parameters: 0.weight was written in place",
    "own hook": "StateError: 0.weight has a hook from register_post_accumulate_grad_hook",
    "late": "StateError: 0.weight requires a gradient now, but did not when the module was wrapped",
    "gradient": "ValueError: parameter 0.weight has a gradient",
    "unlike": "MismatchError: requires_grad of 2.bias is False on rank 1; expected True as on rank 0",
}


def unexpected(found):
    return {name: found.get(name) for name, text in EXPECTED.items() if not re.match(text, str(found.get(name)))}


class Interrupted(nn.Linear):
    """Raises KeyboardInterrupt in the first pass."""

    is_first = True

    def forward(self, x):
        if self.is_first:
            self.is_first = False
            raise KeyboardInterrupt
        return super().forward(x)


def interrupted(rank):
    """A notebook continues after Ctrl-C in a forward pass.

    The next pass must use what the program has written since.
    """
    for stage in (1, 3):
        model = ShardedDataParallel(nn.Sequential(nn.Linear(6, 6), Interrupted(6, 4)), units=[nn.Linear], stage=stage)
        try:
            model(batch(rank))
        except KeyboardInterrupt:
            pass
        for p in model.parameters():
            p.data.fill_(0.5)
        loss = model(batch(rank)).sum()
        loss.backward()
        torch.testing.assert_close(loss, ((batch(rank).sum(1, keepdim=True) * 0.5 + 0.5) * 3 + 0.5).sum() * 4)
        assert all(p.grad is not None for p in model.parameters())
    return True


def habits(rank):
    """Assigned gradients are clipped, copies and states of whole parameters stay valid, and hooks of the program still
    run."""
    x = batch(rank)
    model = ShardedDataParallel(small(), units=[nn.Linear])
    with torch.inference_mode():
        model(x)  # before the first training pass
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: packed.append(1) or tensor, lambda tensor: tensor):
        loss = model(x).square().sum()
    loss.backward()
    assert packed, "the program's own hooks"
    for p in model.parameters():
        p.grad = p.grad * 3
    model.clip_grad_norm_(1e-3)
    squares = torch.tensor([sum(p.grad.double().square().sum() for p in model.parameters())])
    dist.all_reduce(squares)
    torch.testing.assert_close(squares.sqrt().item(), 1e-3, rtol=1e-3, atol=0)
    with model.full_parameters():
        state, twin = model.module.state_dict(), copy.deepcopy(model.module)
    expected = model.state_dict()
    assert all(torch.equal(state[key], expected[key]) for key in expected)
    if rank == 0:  # no other rank calls it
        assert twin(x).shape == (5, 4) and twin.state_dict().keys() == expected.keys()
    scalar = nn.Sequential(nn.Linear(6, 6), nn.PReLU())
    scalar.register_parameter("scale", nn.Parameter(torch.tensor(2.0)))
    sharded = ShardedDataParallel(scalar)
    optimizer = torch.optim.NAdam(sharded.parameters())  # its state also contains plain numbers for each parameter
    for _ in range(2):
        (sharded(x).sum() + 0 * x.sum()).backward()
        optimizer.step()
        sharded.load_optimizer_state_dict(optimizer, sharded.optimizer_state_dict(optimizer))
    return True
