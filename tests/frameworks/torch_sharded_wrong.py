"""Errors of ShardedDataParallel on each rank: wrong inputs and uses, killed ranks, passes that end early."""

import copy
import gc
import os
import signal
import time
import weakref

import torch
import torch.distributed as dist
from torch import nn

import libdsc as dsc
from libdsc.torch import ShardedDataParallel
from torch_sharded_cases import made, sharded
from torch_sharded_modules import Block, batch_of, loss_of


def killed(rank, victim, phase):
    """Returns the error that the other ranks get, and after how long."""
    model = sharded("gpt")
    tokens = batch_of(rank, 0)
    loss_of(model(tokens), tokens).backward()
    loss = loss_of(model(tokens), tokens)
    dist.barrier()
    if rank == victim and phase == "between":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == victim:
        model.module.norm.weight.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGKILL))
    start = time.monotonic()
    try:
        for _ in range(3):
            loss.backward()
            loss = loss_of(model(tokens), tokens)
    except dsc.DscError as error:
        return type(error).__name__, str(error), time.monotonic() - start
    return "no error", "", time.monotonic() - start


def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


class Strange(nn.Module):
    """A module that is used in wrong ways."""

    def __init__(self, use):
        super().__init__()
        self.use, self.block, self.last = use, nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.last(self.use(self, x))


def peeks(module, x):
    return x @ module.block.weight.t()


class Returns(nn.Linear):
    def forward(self, x):
        return self.weight


class Wrapped:
    def __init__(self, inner):
        self.inner = inner


class Opaque(nn.Linear):
    def forward(self, x):
        return Wrapped(super().forward(x))


def misuses(rank):
    """Using parameters where they are released raises an error. It must not end the process."""
    strange = {"outside": ShardedDataParallel(Strange(peeks), units=lambda m: getattr(m, "out_features", 0) == 6)}
    returns = nn.Sequential(Returns(6, 6))
    strange["returns"] = ShardedDataParallel(returns, units=[Returns])
    x = torch.ones(3, 6)
    found = {name: error_of(lambda model=model: model(x)) for name, model in strange.items()}
    opaque = ShardedDataParallel(nn.Sequential(Opaque(6, 6)), units=[Opaque])
    found["opaque"] = error_of(lambda: opaque(x))
    slopes = ShardedDataParallel(nn.Sequential(nn.Linear(6, 6)), units=[nn.Linear])
    leaf = x.clone().requires_grad_()
    found["second order"] = error_of(lambda: torch.autograd.grad(slopes(leaf).square().sum(), leaf, create_graph=True))
    model = sharded("gpt")
    tokens = batch_of(rank, 0)
    found["unit alone"] = error_of(lambda: model.module.blocks[0](torch.ones(1, 2, 24)))
    found["regularized"] = error_of(lambda: (loss_of(model(tokens), tokens) + sum(p.square().sum() for p in model.parameters())).backward())
    found["after that"] = error_of(lambda: loss_of(model(tokens), tokens).backward())
    return found


def refusals(rank):
    """Wrong inputs are refused before anything happens: the module is unchanged and can be trained afterwards."""
    module = made("gpt")
    shapes = [p.shape for p in module.parameters()]
    sparse, meta, lazy = nn.Embedding(4, 4, sparse=True), nn.Linear(2, 2, device="meta"), nn.LazyLinear(2)
    wrongs = {
        "no module": lambda: ShardedDataParallel(3),
        "sparse": lambda: ShardedDataParallel(nn.Sequential(sparse)),
        "meta": lambda: ShardedDataParallel(meta),
        "lazy": lambda: ShardedDataParallel(lazy),
        "frozen": lambda: ShardedDataParallel(nn.Linear(2, 2).requires_grad_(False)),
        "complex": lambda: ShardedDataParallel(nn.Linear(2, 2, dtype=torch.complex64)),
        "units": lambda: ShardedDataParallel(module, units=[3]),
        "absent": lambda: ShardedDataParallel(module, units=[nn.LSTM]),
        "list": lambda: ShardedDataParallel(module, units=[nn.ModuleList]),
        "text": lambda: ShardedDataParallel(module, units="Block"),
        "number": lambda: ShardedDataParallel(module, units=3),
        "instance": lambda: ShardedDataParallel(module, units=module),
        "answer": lambda: ShardedDataParallel(module, units=lambda m: 1),
        "stage": lambda: ShardedDataParallel(module, stage=4),
        "shard_size": lambda: ShardedDataParallel(module, shard_size=5),
        "group": lambda: ShardedDataParallel(module, process_group=3),
        "mixed_precision": lambda: ShardedDataParallel(module, mixed_precision=object()),
        "init_sync": lambda: ShardedDataParallel(module, init_sync=3),
    }
    found = {name: error_of(wrong) for name, wrong in wrongs.items()}
    assert [p.shape for p in module.parameters()] == shapes and not module._forward_hooks
    model = ShardedDataParallel(module, units=[Block])
    foreign = nn.Parameter(torch.ones(2))
    shaped = torch.optim.SGD(model.parameters(), 0.1)
    shaped.state[model.module.norm.weight]["factor"] = torch.ones(2, 3)
    late = {
        "join": model.join,
        "hook": lambda: model.register_comm_hook(None, "bf16"),
        "keep_vars": lambda: model.state_dict(keep_vars=True),
        "assign": lambda: model.load_state_dict({}, assign=True),
        "foreign": lambda: model.optimizer_state_dict(torch.optim.SGD([foreign], 0.1)),
        "factored": lambda: model.optimizer_state_dict(shaped),
        "no optimizer": lambda: model.optimizer_state_dict(3),
        "folder": lambda: model.load("/nowhere"),
        "copy": lambda: copy.deepcopy(model),
        "full": lambda: enter_twice(model),
        "gradients": lambda: read(model, batch_of(rank, 0)),
        "parts": lambda: model.module.state_dict(),
        "clip": lambda: model.clip_grad_norm_(1.0),
    }
    found |= {name: error_of(wrong) for name, wrong in late.items()}
    model.double()
    tokens = batch_of(rank, 0)
    found["converted"] = error_of(lambda: model(tokens))
    model.float()
    found["trains"] = error_of(lambda: loss_of(model(tokens), tokens).backward())
    late_loss = loss_of(model(tokens), tokens)
    model.close()
    model.close()
    found["backward after close"] = error_of(late_loss.backward)
    found["closed"] = error_of(lambda: model(tokens))
    return found


def read(model, tokens):
    with model.full_parameters():
        model(tokens)


def enter_twice(model):
    with model.full_parameters(), model.full_parameters():
        pass


def interrupted(rank):
    """After an exception in a backward pass the next call raises an error.

    After an exception before the backward pass everything still works.
    """
    model = sharded("gpt")
    tokens = batch_of(rank, 0)
    found = {}
    model.module.again = "nonsense"
    found["forward"] = error_of(lambda: model(tokens[:, :3]))
    model.module.again = None
    assert all(p.dim() == 1 for p in model.parameters())
    found["then"] = error_of(lambda: loss_of(model(tokens), tokens).backward())
    hook = model.module.tokens.weight.register_hook(lambda grad: 1 / 0)
    found["backward"] = error_of(lambda: loss_of(model(tokens), tokens).backward())
    hook.remove()
    found["after"] = error_of(lambda: model(tokens))
    found["for ever"] = error_of(model.state_dict)
    return found


def dropped(rank):
    """Deleting the last reference to a wrapper closes it."""
    model = sharded("gpt")
    tokens = batch_of(rank, 0)
    loss_of(model(tokens), tokens).backward()
    module, handle = model.module, weakref.ref(model.sharded)
    del model
    gc.collect()
    assert handle() is None and not module._forward_hooks and not module.blocks[0]._forward_pre_hooks
    return [p.dim() for p in module.parameters()]
