"""What ranks do with ShardedDataParallel; each function runs on every rank and returns what the test looks at."""

import contextlib
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import libdsc as dsc
from libdsc.torch import DistributedDataParallel, ShardedDataParallel
from torch_sharded_modules import MODELS, Block, Gpt, batch_of, loss_of, optimizer_of

STEPS = 6


def made(name, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return MODELS[name][0]().to(dtype)


def sharded(name, stage=3, seed=0, **options):
    return ShardedDataParallel(made(name, seed), units=MODELS[name][1], stage=stage, **options)


def ddp(name):
    return DistributedDataParallel(made(name), find_unused_parameters=True)


class Way:
    """How a model is trained."""

    def __init__(self, micro=1, syncs=False, zero="before", to_none=True, autocast=False, evaluates=False):
        self.micro, self.syncs, self.zero, self.to_none = micro, syncs, zero, to_none
        self.autocast, self.evaluates = autocast, evaluates


WAYS = {
    "plain": Way(),
    "no_sync": Way(micro=3),
    "each_micro_batch_reduced": Way(micro=3, syncs=True),
    "zero_between": Way(zero="between"),
    "zero_after": Way(zero="after"),
    "zeros_before": Way(to_none=False),
    "zeros_between": Way(zero="between", to_none=False),
    "zeros_after_no_sync": Way(micro=2, zero="after", to_none=False),
    "autocast": Way(autocast=True),
    "evaluates": Way(evaluates=True),
    "never_zeroed": Way(zero="never"),
}


def train(model, optimizer, way, rank, steps=range(STEPS)):
    """Returns the losses of this rank."""
    losses = []
    for iteration in steps:
        if way.zero == "before":
            optimizer.zero_grad(way.to_none)
        for micro in range(way.micro):
            tokens = batch_of(rank, iteration, micro)
            is_local = micro < way.micro - 1 and not way.syncs
            with model.no_sync() if is_local else contextlib.nullcontext():
                with torch.autocast("cpu", torch.bfloat16, enabled=way.autocast):
                    loss = loss_of(model(tokens), tokens)
                if way.zero == "between" and micro == 0:
                    optimizer.zero_grad(way.to_none)
                loss.backward()
            losses.append(loss.item())
        optimizer.step()
        if way.zero == "after":
            optimizer.zero_grad(way.to_none)
        if way.evaluates:
            model.eval()
            with torch.no_grad():
                losses.append(loss_of(model(tokens), tokens).item())
            model.train()
    return losses


def apart(expected, got):
    """The largest difference of two states in the units of float32, and the names of what has not the same bits."""
    assert list(expected) == list(got), (list(expected), list(got))
    worst, names = 0.0, []
    for name, a in expected.items():
        b = got[name]
        assert a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride(), name
        if not torch.equal(a, b):
            names.append(name)
            worst = max(worst, (a.double() - b.double()).abs().max().item())
    return worst, names


def beside_ddp(rank, name, way, optimizer, stage, keeps_buffers=True):
    """How far losses and parameters are from those of DistributedDataParallel, and which are not the same."""
    reference, model = ddp(name), sharded(name, stage)
    optimizers = [optimizer_of(optimizer, each.parameters()) for each in (reference, model)]
    expected, got = (train(each, of, WAYS[way], rank) for each, of in zip((reference, model), optimizers))
    state = {key: value for key, value in reference.module.state_dict().items()}
    own = model.state_dict()
    if rank > 0:  # DDP copies rank 0's buffers
        buffers = dict(model.module.named_buffers())
        state, own = ({key: value for key, value in each.items() if key not in buffers} for each in (state, own))
    worst, names = apart(state, own)
    return max(worst, *(abs(a - b) for a, b in zip(expected, got))), names + ["loss"] * (expected != got)
