"""Random modules and random ways to train them, under ShardedDataParallel and DistributedDataParallel."""

import random

import torch

from libdsc.torch import DistributedDataParallel, ShardedDataParallel
from torch_ddp_modules import Plan, describe, differences, train


class ShardedPlan(Plan):
    """A plan without sparse embeddings. In stage 3 all ranks use the same blocks, because they gather them together."""

    def __init__(self, seed):
        super().__init__(seed)
        r = random.Random(f"sharded {seed}")
        self.kinds = [kind for kind in self.kinds if kind != "sparse"] or ["linear"]
        self.checkpoints = self.checkpoints[: len(self.kinds)]
        self.has_sparse = False
        self.stage = r.choice([1, 2, 3, 3])
        self.selection = r.choice(["all", "some", "leaves", "none"])
        self.chosen = {kind: r.random() < 0.6 for kind in range(len(self.kinds))}
        self.zero = r.choice(["none", "none", "zeros", "sometimes"])
        if self.mode == "static":
            self.mode = "find_unused"

    def masks(self, iteration, micro, rank):
        return super().masks(iteration, micro, 0 if self.stage == 3 else rank)

    def units(self, module):
        """Returns the units: all blocks, some of them, or all layers, also those inside blocks."""
        blocks = list(module.blocks)
        if self.selection == "leaves":
            chosen = [each for each in module.modules() if not any(each.children())]
        else:
            chosen = [block for i, block in enumerate(blocks) if self.selection == "all" or self.selection == "some" and self.chosen[i]]
        return lambda each: any(each is one for one in chosen)

    @property
    def is_exact(self):
        """Returns whether the bits must equal those of DDP.

        They may not where averages are summed instead of sums averaged, or where 16 bits are rounded.
        """
        return self.dtype != torch.bfloat16 and self.zero != "sometimes"


def compare(rank, seed):
    """Trains in both ways and returns the plan and the differences."""
    plan = ShardedPlan(seed)
    modules = [plan.module(rank) for _ in range(2)]
    reference = DistributedDataParallel(modules[0], **plan.options(0))
    model = ShardedDataParallel(modules[1], units=plan.units(modules[1]), stage=plan.stage)
    optimizers = [plan.optimizer_of(each.parameters()) for each in modules]
    for iteration in range(plan.iterations):
        for each, module, optimizer in zip((reference, model), modules, optimizers):
            train(plan, rank, each, module, iteration, optimizer)
    expected, got = modules[0].state_dict(), model.state_dict()
    if rank:
        buffers = dict(modules[0].named_buffers())
        expected, got = ({n: v for n, v in each.items() if n not in buffers} for each in (expected, got))
    found = differences(expected, got)
    if not plan.is_exact:
        limit = 0.1 if plan.dtype == torch.bfloat16 else 1e-4
        found = [n for n in expected if not torch.allclose(expected[n], got[n], limit, limit)]
        found = [f"{n} ({describe(expected[n])}; {describe(got[n])})" for n in found]
    return str(plan), found


def compare_all(rank, seeds):
    """Returns the plans with differences."""
    return [(seed, *told) for seed in seeds if (told := compare(rank, seed))[1]]
