"""Measures how much sharding adds to a training step: torch's FSDP2 over gloo and "dsc", and
libdsc.torch.ShardedDataParallel.

dscrun -n 2 -- python3 bench/bench_torch_sharded.py [STEPS]

Exposed time is the time of forward, backward and optimizer, minus that of a module that each rank trains alone, with an
optimizer for the whole module. All ways take turns in the same processes.
"""

import pathlib
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

import libdsc as dsc
from bench_torch_ddp import BATCH, CONTEXT, VOCABULARY, Block, Gpt, decile
from libdsc.torch import ShardedDataParallel

OPTIMIZERS = {"sgd": lambda params: torch.optim.SGD(params, 0.01), "adamw": lambda params: torch.optim.AdamW(params, 1e-3)}


def fsdp(module, group):
    mesh = DeviceMesh.from_group(group, "cpu")
    for block in module.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(module, mesh=mesh)


class Trained:
    """The small GPT and its optimizer."""

    def __init__(self, wrap, optimizer):
        torch.manual_seed(0)
        self.model = wrap(Gpt())
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())

    def step(self, tokens):
        """Returns the seconds of the step, and the loss."""
        start = time.perf_counter()
        loss = F.cross_entropy(self.model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - start, loss.item()


def report(optimizer, times, ranks):
    """Prints medians and first deciles; ratios are relative to the first way."""
    base = times["alone"]
    print(f"{optimizer}, {ranks} ranks, {len(base)} steps of {statistics.median(base):.1f} ms alone")
    first = None
    for name, values in list(times.items())[1:]:
        numbers = [statistics.median(values), statistics.median(values) - statistics.median(base), decile(values) - decile(base)]
        first = first or numbers
        ratios = [each / torchs for each, torchs in zip(numbers, first)]
        print(
            f"{name}: step {numbers[0]:.1f} ms ({ratios[0]:.2f}), exposed: median {numbers[1]:.1f} ms ({ratios[1]:.2f}), "
            f"first decile {numbers[2]:.1f} ms ({ratios[2]:.2f})"
        )


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    torch.set_num_threads(1)
    world = dsc.init_distributed()
    file = pathlib.Path(tempfile.gettempdir(), f"gloo-{dsc.broadcast_object(world, torch.randint(0, 1 << 40, ()).item())}")
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=world.rank, world_size=world.size)
    groups = {"gloo": dist.group.WORLD, "dsc": dist.new_group(backend="dsc")}
    wraps = {
        "alone": lambda module: module,
        "torch FSDP2, gloo": lambda module: fsdp(module, groups["gloo"]),
        "torch FSDP2, dsc": lambda module: fsdp(module, groups["dsc"]),
        **{
            f"libdsc.torch stage {stage}": lambda module, stage=stage: ShardedDataParallel(module, groups["dsc"], units=[Block], stage=stage)
            for stage in (1, 2, 3)
        },
    }
    for optimizer in OPTIMIZERS:
        runs = {way: Trained(wrap, optimizer) for way, wrap in wraps.items()}
        times = {way: [] for way in runs}
        for number in range(steps + 5):
            tokens = torch.randint(0, VOCABULARY, (BATCH, CONTEXT), generator=torch.Generator().manual_seed(world.size * number + world.rank))
            for way, run in runs.items():
                world.barrier()
                spent, loss = run.step(tokens)
                if number >= 5:
                    times[way].append(spent * 1e3)
                if number == 4 and world.rank == 0:
                    print(f"{way}: loss {loss:.6f}")
        if world.rank == 0:
            report(optimizer, times, world.size)
    dist.destroy_process_group()
    file.unlink(missing_ok=True)
    dsc.finalize()


if __name__ == "__main__":
    main()
