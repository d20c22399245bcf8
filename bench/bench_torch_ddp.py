"""Measures how much averaging gradients adds to a training step, with torch's DDP over gloo and over "dsc", and with
libdsc.torch.

dscrun -n 2 -- python3 bench/bench_torch_ddp.py [MODEL] [STEPS]

MODEL is gpt, which computes, or resnet50 or gpt2, whose gradients are made one after another with little computation.
Exposed time is the time of a step minus that of a step without averaging. All ways take turns in the same processes.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as Stock

import libdsc as dsc
from bench_ddp import TorchModel, shapes_of
from libdsc.torch import DistributedDataParallel as Ours

WIDTH, HEADS, LAYERS, CONTEXT, VOCABULARY, BATCH = 256, 4, 4, 64, 512, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places.weight)))


class Met(nn.Module):
    """Ends each backward pass with a barrier, without averaging. It shows the cost of waiting for the slower rank."""

    def __init__(self, module, world):
        super().__init__()
        self.module, self.world = module, world

    def forward(self, *arguments):
        output = self.module(*arguments)
        output.register_hook(lambda _: torch.autograd.Variable._execution_engine.queue_callback(self.world.barrier))
        return output


class Trained:
    """The small GPT and its optimizer."""

    def __init__(self, wrap):
        torch.manual_seed(0)
        self.model = wrap(Gpt())
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def step(self):
        """Returns the seconds of the forward and backward passes; the optimizer takes the same time in all ways."""
        tokens = torch.randint(0, VOCABULARY, (BATCH, CONTEXT))
        self.optimizer.zero_grad()
        start = time.perf_counter()
        F.cross_entropy(self.model(tokens).flatten(0, 1), tokens.flatten()).backward()
        spent = time.perf_counter() - start
        self.optimizer.step()
        return spent


class Listed:
    """The gradients of a large model, in memory that all ways share."""

    models = {}

    def __init__(self, name, rank, wrap):
        known = self.models.setdefault(name, None) or TorchModel(shapes_of(name), rank)
        self.models[name] = known
        self.model = wrap(known.module())

    def step(self):
        start = time.perf_counter()
        self.model().backward()
        spent = time.perf_counter() - start
        self.model.zero_grad()
        return spent


def report(times, parameters, ranks):
    """Prints medians and first deciles. Other work on the machine has the least influence on the latter."""
    base = times["without averaging"]
    print(f"{parameters / 1e6:.2f} M parameters, {ranks} ranks, {len(base)} steps of {statistics.median(base):.1f} ms without averaging")
    exposed_of = {name: (statistics.median(values) - statistics.median(base), decile(values) - decile(base)) for name, values in times.items()}
    for name, exposed in list(exposed_of.items())[1:]:
        ratios = [each / gloos for each, gloos in zip(exposed, exposed_of["torch DDP, gloo"])]
        print(f"{name}: median {exposed[0]:.1f} ms exposed ({ratios[0]:.2f}), first decile {exposed[1]:.1f} ms ({ratios[1]:.2f})")


def decile(values):
    return statistics.quantiles(values, n=10)[0]


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "gpt"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    torch.set_num_threads(1)
    world = dsc.init_distributed()
    file = pathlib.Path(tempfile.gettempdir(), f"gloo-{os.getppid()}")
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=world.rank, world_size=world.size)
    group = dist.new_group(backend="dsc")
    wraps = {
        "without averaging": lambda module: module,
        "only a barrier": lambda module: Met(module, world),
        "torch DDP, gloo": lambda module: Stock(module, gradient_as_bucket_view=True),
        "torch DDP, dsc": lambda module: Stock(module, process_group=group, gradient_as_bucket_view=True),
        "libdsc.torch DDP": lambda module: Ours(module, process_group=group, gradient_as_bucket_view=True),
    }
    runs = {way: Trained(wrap) if name == "gpt" else Listed(name, world.rank, wrap) for way, wrap in wraps.items()}
    times = {way: [] for way in runs}
    for number in range(steps + 5):
        for way, run in runs.items():
            world.barrier()
            spent = run.step()
            if number >= 5:
                times[way].append(spent * 1e3)
    if world.rank == 0:
        report(times, sum(p.numel() for p in runs["without averaging"].model.parameters()), world.size)
    dist.destroy_process_group()
    file.unlink(missing_ok=True)
    dsc.finalize()


if __name__ == "__main__":
    main()
