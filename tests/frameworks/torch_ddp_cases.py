"""Small modules, batches, and the expected results of a DDP, which each rank computes for all ranks."""

import gc
import json
import os
import pathlib
import re
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist
from torch import nn

import libdsc as dsc


def small():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def wide():
    torch.manual_seed(6)
    return nn.Sequential(nn.Linear(4, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3))


def wide_loss(model, x):
    return model(x).square().sum()


def batches(rank, iteration, count):
    """Returns the micro-batches of one rank, which every rank can compute."""
    generator = torch.Generator().manual_seed(1000 * iteration + rank)
    return [torch.randn(2, 4, generator=generator) for _ in range(count)]


def mean_of_ranks(world, module, iteration, count):
    """Returns the average over ranks of the sum of the gradients of all micro-batches."""
    loss = sum(module(x).square().sum() for rank in range(world.size) for x in batches(rank, iteration, count))
    return torch.autograd.grad(loss / world.size, list(module.parameters()))


def reference_sums(world, module, iteration, loss):
    """Returns the average over ranks of the gradients of one batch."""
    total = sum(loss(module, batches(rank, iteration, 1)[0]) for rank in range(world.size))
    return torch.autograd.grad(total / world.size, list(module.parameters()))


def step_of(world, model, iteration, loss=wide_loss):
    model.zero_grad()
    loss(model, batches(world.rank, iteration, 1)[0]).backward()


def expect_same_everywhere(world, tensors):
    """Checks that all ranks have the same bits."""
    found = dsc.all_gather_object(world, [tensor.detach().tolist() for tensor in tensors])
    assert all(each == found[0] for each in found), found


def expect_error(kind, text, call):
    try:
        call()
    except kind as error:
        assert re.search(text, str(error), re.DOTALL), str(error)
    else:
        raise AssertionError(f"expected {kind.__name__}: {text}")


def run(names):
    """Runs the named cases of a file, which are functions of the world. An error ends all ranks."""
    torch.set_num_threads(1)
    world = dsc.init_distributed(timeout=60, init_timeout=120)
    file = pathlib.Path(tempfile.gettempdir(), f"gloo-{os.environ['MEETING']}")
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=world.rank, world_size=world.size)
    cases = {name: f for name, f in names.items() if getattr(f, "__module__", "") == "__main__" and _takes_world(f)}
    found = {}
    for name in sys.argv[1:] or cases:
        try:
            cases[name](world)
            found[name] = "good"
        except BaseException as error:  # after an error the operations of the ranks no longer match
            found[name] = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            print(json.dumps(found), flush=True)
            os._exit(1)
        gc.collect()
    print(json.dumps(found), flush=True)
    dist.destroy_process_group()
    file.unlink(missing_ok=True)
    dsc.finalize()


def _takes_world(f):
    return hasattr(f, "__code__") and f.__code__.co_varnames[:1] == ("world",)
