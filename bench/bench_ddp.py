#!/usr/bin/env python3
"""One rank of ddp.py: runs training steps in several ways, in turn, and writes how long each step took.

bench_ddp.py JOB. JOB is JSON with model, hook, ways, steps, budget_s, meeting (a file that all ranks map) and store (a
folder).
"""

import datetime
import gc
import json
import math
import mmap
import os
import sys
import time
from pathlib import Path

WARM_UP = 4  # steps for warming up; buckets are rebuilt after the first one, and PowerSGD begins after the second
FEWEST_STEPS = 5
TIMEOUT_S = 60  # for one reduction
HOOKS = {  # names of libdsc's hook and of torch's
    "plain": (None, None),
    "fp16": ("fp16", "fp16"),
    "powersgd": ("powersgd(rank=1, start_iteration=2)", "powersgd"),
}


def convolution(wide, narrow, side):
    """Returns the shapes of a convolution without bias, and of the two vectors of its batch normalization."""
    return [(wide, narrow, side, side), (wide,), (wide,)]


def resnet50():
    shapes, narrow = convolution(64, 3, 7), 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += convolution(width, narrow, 1) + convolution(width, width, 3) + convolution(4 * width, width, 1)
            if block == 0:
                shapes += convolution(4 * width, narrow, 1)
            narrow = 4 * width
    return [*shapes, (1000, narrow), (1000,)]


def gpt2(width=768):
    """Returns the shapes of GPT-2. The head shares the memory of the word embedding."""
    norm = [(width,), (width,)]
    attention = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    block = [*norm, *attention, *norm, (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(50257, width), (1024, width), *block * 12, *norm]


MODELS = {  # function for the shapes, number of tensors, number of parameters
    "resnet50": (resnet50, 161, 25_557_032),
    "gpt2": (gpt2, 148, 124_439_808),
    "small": (lambda: [(256, 256), (256,)] * 8, 16, 526_336),
}


def shapes_of(model):
    make, tensors, parameters = MODELS[model]
    shapes = make()
    found = len(shapes), sum(map(math.prod, shapes))
    assert found == (tensors, parameters), f"{model}: expected {(tensors, parameters)}, got {found}"
    return shapes


def factor(i, rank):
    """Returns the value of each element in the gradient of parameter i."""
    return float((1 + i % 7) * (rank + 1))


class Meeting:
    """A barrier in shared memory. It belongs to no engine, so that no engine influences the start of its own steps.

    A rank sleeps until all ranks have arrived, so that it does not slow down those that still work. Then it spins.
    """

    def __init__(self, path, rank, ranks):
        with open(path, "r+b") as file:
            self.words = memoryview(mmap.mmap(file.fileno(), 8 * (1 + 2 * ranks))).cast("Q")
        self.rank, self.ranks, self.count = rank, ranks, 0

    def meet(self, stop=False):
        """Waits for all ranks. Returns whether rank 0 says to stop."""
        self.count += 1
        if self.rank == 0:
            self.words[0] = stop
        for first, wait in ((1, lambda: time.sleep(200e-6)), (1 + self.ranks, os.sched_yield)):
            self.words[first + self.rank] = self.count
            while min(self.words[first : first + self.ranks]) < self.count:
                wait()
        return bool(self.words[0])


class NumpyModel:
    """Gradients as numpy arrays that are filled one after another, for a Python without torch."""

    def __init__(self, shapes, rank):
        import numpy

        self.numpy = numpy
        self.arrays = [numpy.ones(shape, numpy.float32) for shape in shapes]
        self.factors = [factor(i, rank) for i in range(len(shapes))]

    def libdsc(self, reducer, views):
        return NumpyWay(self, reducer, views)

    def alone(self):
        return NumpyWay(self, None, False)


class NumpyWay:
    def __init__(self, model, reducer, views):
        self.model, self.reducer, self.views = model, reducer, views
        self.grads = [None] * len(model.arrays)

    def step(self):
        full_like, arrays = self.model.numpy.full_like, self.model.arrays
        if self.reducer:
            self.reducer.begin()
        for i in reversed(range(len(arrays))):
            if self.views:
                self.grads[i] = self.reducer.grad_view(i)
                self.grads[i].fill(self.model.factors[i])
            else:
                self.grads[i] = full_like(arrays[i], self.model.factors[i])
            if self.reducer:
                self.reducer.mark_ready(i, None if self.views else self.grads[i])
        if self.reducer:
            self.reducer.finish()

    def clear(self):
        if not self.views:
            self.grads = [None] * len(self.grads)


class TorchModel:
    """Parameters of torch, and a loss whose backward pass makes their gradients from the last to the first."""

    def __init__(self, shapes, rank):
        import torch

        self.torch = torch
        torch.set_num_threads(1)
        self.arrays = [torch.ones(shape) for shape in shapes]
        self.factors = [factor(i, rank) for i in range(len(shapes))]

    def module(self):
        """Returns a module with separate parameters in the same memory, so that the hooks of one way are not called in
        steps of another.
        """
        torch, factors = self.torch, self.factors

        class Module(torch.nn.Module):
            def __init__(self, arrays):
                super().__init__()
                self.leaves = torch.nn.ParameterList(torch.nn.Parameter(array) for array in arrays)
                self.listed = list(self.leaves)

            def forward(self):
                loss = 0.0
                for leaf, c in zip(self.listed, factors):
                    loss = loss + leaf.sum() * c
                return loss

        return Module(self.arrays)

    def alone(self):
        return TorchWay(self.module())

    def libdsc(self, reducer, views):
        return (LibdscViews if views else Libdsc)(self.module(), reducer, self.torch)

    def ddp(self, views, keep, hook):
        module = self.module()
        wrapped = self.torch.nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=views)
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

        if hook == "fp16":
            wrapped.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif hook == "powersgd":
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
            wrapped.register_comm_hook(state, waiting(powerSGD_hook.powerSGD_hook))
        return TorchWay(module, wrapped, keep)


def waiting(hook):
    """Returns the hook, changed to wait for each bucket. PowerSGD's all-reduces start in callbacks, on threads of gloo.
    With several buckets at a time, they would start in a different order on each rank, and hang.
    """

    def waits(state, bucket):
        future = hook(state, bucket)
        future.wait()
        return future

    return waits


class TorchWay:
    """Runs steps without communication, or with DistributedDataParallel."""

    def __init__(self, module, wrapped=None, keep=False):
        self.module, self.forward, self.keep = module, wrapped or module, keep

    def step(self):
        self.forward().backward()

    def clear(self):
        self.module.zero_grad(set_to_none=not self.keep)

    @property
    def grads(self):
        return [leaf.grad for leaf in self.module.listed]


class Libdsc(TorchWay):
    def __init__(self, module, reducer, torch):
        super().__init__(module)
        self.reducer, self.torch = reducer, torch
        for i, leaf in enumerate(module.listed):
            leaf.register_post_accumulate_grad_hook(self.hook(i))

    def hook(self, i):
        mark_ready = self.reducer.mark_ready
        return lambda leaf: mark_ready(i, leaf.grad)

    def step(self):
        loss = self.module()
        self.reducer.begin()
        loss.backward()
        self.reducer.finish()


class LibdscViews(Libdsc):
    """p.grad is always the view of the bucket, so that nothing is copied."""

    def __init__(self, module, reducer, torch):
        super().__init__(module, reducer, torch)
        self.keep, self.rebuilds = True, -1

    def hook(self, i):
        mark_ready = self.reducer.mark_ready
        return lambda leaf: mark_ready(i)

    def step(self):
        loss = self.module()
        self.reducer.begin()
        if self.rebuilds != self.reducer.rebuilds:  # the views have moved
            self.rebuilds = self.reducer.rebuilds
            for i, leaf in enumerate(self.module.listed):
                leaf.grad = self.torch.from_numpy(self.reducer.grad_view(i))
            self.clear()
        loss.backward()
        self.reducer.finish()


def make_ways(job, model, rank, ranks):
    """Returns the ways by name. "alone" does not communicate."""
    ours, theirs = HOOKS[job["hook"]]
    ways = {}
    for name in job["ways"]:
        if name == "alone":
            ways[name] = model.alone()
        elif name.startswith("libdsc"):
            import libdsc

            world = libdsc.init_distributed(rank=rank, world_size=ranks, job_id=job["id"], timeout=TIMEOUT_S)
            ways[name] = model.libdsc(libdsc.BucketReducer(world, model.arrays, hook=ours), name == "libdsc_views")
        else:
            ways[name] = model.ddp(name != "torch", name == "torch_kept", theirs)
    return ways


def join_torch(store, rank, ranks):
    import torch.distributed as dist

    limit = datetime.timedelta(seconds=TIMEOUT_S)
    dist.init_process_group("gloo", init_method=f"file://{store}/torch", rank=rank, world_size=ranks, timeout=limit)
    return dist


def check(name, hook, way, ranks):
    """Checks that the gradients are the mean over the ranks. Those of PowerSGD are approximations, so they must only be
    finite.
    """
    tolerance = {"plain": 1e-5, "fp16": 2e-3, "powersgd": math.inf}[hook]
    for i, grad in enumerate(way.grads):
        expected = sum(factor(i, rank) for rank in range(ranks)) / ranks
        low, high = float(grad.min()), float(grad.max())
        if not max(abs(low - expected), abs(high - expected)) <= tolerance * expected or not math.isfinite(low + high):
            sys.exit(f"{name}, {hook}: expected gradients of {expected} for parameter {i}, got {low} to {high}")


def timed(job, ways, meeting):
    """Returns the seconds of every step for each way. The ways take turns, and their order changes."""
    names, times = list(ways), {name: [] for name in ways}
    deadline, taken = time.monotonic() + job["budget_s"], 0
    while taken < job["steps"]:
        turn = taken % len(names)
        order = names[turn:] + names[:turn]
        for name in order if taken % 2 else reversed(order):
            meeting.meet()
            start = time.perf_counter()
            ways[name].step()
            ways[name].clear()
            times[name].append(time.perf_counter() - start)
        taken += 1
        if meeting.meet(taken >= FEWEST_STEPS and time.monotonic() > deadline):
            break
    return times


def main():
    job, rank, ranks = json.loads(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with_torch = job["torch"]
    dist = join_torch(job["store"], rank, ranks) if with_torch else None
    shapes = shapes_of(job["model"])
    ways = make_ways(job, (TorchModel if with_torch else NumpyModel)(shapes, rank), rank, ranks)
    meeting = Meeting(job["meeting"], rank, ranks)
    gc.collect()
    gc.disable()
    for step in range(WARM_UP):
        for name, way in ways.items():
            meeting.meet()
            way.step()
            if step == WARM_UP - 1 and name != "alone":
                check(name, job["hook"], way, ranks)
            way.clear()
    times = timed(job, ways, meeting)
    Path(job["store"], f"rank{rank}.json").write_text(json.dumps(times))
    meeting.meet()  # no rank ends while another one still works
    if "libdsc" in sys.modules:
        sys.modules["libdsc"].finalize()
    if dist:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
