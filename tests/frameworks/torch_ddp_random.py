"""Trains random modules under torch's DDP over gloo and under libdsc's DDP. All gradients, parameters and buffers must
have the same bits.

    python3 torch_ddp_random.py FIRST COUNT    on each of the ranks that dscrun starts; prints the seeds that failed
"""

import os
import pathlib
import sys
import tempfile
import time
import traceback
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as Stock

import libdsc as dsc
from libdsc.torch import DistributedDataParallel
from torch_ddp_modules import Plan, differences, train


def compare(plan, world):
    """Raises AssertionError on all ranks at the first difference on any rank."""
    rank = world.rank
    modules = [plan.module(rank), plan.module(rank)]
    stock = Stock(modules[0], **plan.options(0))
    ours = DistributedDataParallel(modules[1], **plan.options(1))
    optimizers = [plan.optimizer_of(module.parameters()) for module in modules]
    expect_same(world, "at first", *(dict(model.state_dict()) for model in (stock, ours)))
    for iteration in range(plan.iterations):
        grads = [
            train(plan, rank, model, module, iteration, optimizer)
            for model, module, optimizer in zip((stock, ours), modules, optimizers)
        ]
        expect_same(world, f"gradients of iteration {iteration}", *grads)
        expect_same(world, f"state after iteration {iteration}", *(dict(model.state_dict()) for model in (stock, ours)))
    ours.close()


def expect_same(world, where, expected, got):
    found = dsc.all_gather_object(world, differences(expected, got))
    assert not any(found), f"{where}: " + "; ".join(f"rank {r}: {name}" for r, names in enumerate(found) for name in names)


def main():
    first, count = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    world = dsc.init_distributed(timeout=60, init_timeout=120)
    dist.init_process_group("gloo", init_method=f"file://{pathlib.Path(tempfile.gettempdir(), 'gloo-' + os.environ['MEETING'])}", rank=world.rank, world_size=world.size)
    failed, start = [], time.monotonic()
    for seed in range(first, first + count):
        plan = Plan(seed)
        try:
            compare(plan, world)
        except AssertionError as error:
            failed.append(seed)
            if world.rank == 0:
                print(f"seed {seed} ({plan}): {error}", flush=True)
        except Exception:  # the other rank cannot continue either
            print(f"rank {world.rank}, seed {seed} ({plan}): {traceback.format_exc()}", flush=True)
            os._exit(1)
    if world.rank == 0:
        spent = f"{time.monotonic() - start:.1f} s"
        print(f"{count - len(failed)} of {count} modules train the same bits, {spent}; failed seeds: {failed}", flush=True)
    dist.destroy_process_group()
    dsc.finalize()
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
