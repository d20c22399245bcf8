"""One rank of the jobs for the pictures: job.py overlap|facts|timeline FOLDER, started by dscrun. See draw.py."""

import json
import pathlib
import sys
from typing import Any

import numpy as np

import libdsc as dsc

LAYERS = 8
WIDE, FEW_ROWS = 768, 2  # gradients that take long to reduce, compared with the time to compute them
WIDTH, ROWS = 96, 256
ITERATIONS = 20
STEPS = 8
SLOW_RANK, SLOW_FACTOR = 2, 3  # in the timeline, this rank has this many times the rows


class Model:
    """Layers y = tanh(x W), computed by numpy."""

    def __init__(self, rows: int, width: int = WIDTH, layers: int = LAYERS):
        random = np.random.default_rng(0)
        self.x = random.standard_normal((rows, width)).astype(np.float32)
        self.params = [random.standard_normal((width, width)).astype(np.float32) / 10 for _ in range(layers)]
        self.outputs: list[Any] = []

    def forward(self, after_layer: Any = None) -> None:
        self.outputs = [self.x]
        for weight in self.params:
            self.outputs.append(np.tanh(self.outputs[-1] @ weight))
            if after_layer:
                after_layer(self.outputs[-1])

    def backward(self, ready: Any) -> None:
        grad = self.outputs[-1]
        for i in reversed(range(len(self.params))):
            grad = grad * (1 - self.outputs[i + 1] ** 2)
            ready(i, self.outputs[i].T @ grad)
            grad = grad @ self.params[i].T


def overlap(world: dsc.Communicator, folder: pathlib.Path) -> None:
    """Trains, and writes a trace after each iteration, which contains the times of its gradients and buckets."""
    model = Model(FEW_ROWS, WIDE)
    size = model.params[0].nbytes
    reducer = dsc.BucketReducer(world, model.params, bucket_bytes=2 * size, first_bucket_bytes=size)
    for iteration in range(ITERATIONS):
        model.forward()
        world.barrier()
        reducer.begin()
        model.backward(reducer.mark_ready)
        reducer.finish()
        world.dump_trace(folder / f"{iteration:02}" / f"dsc_trace_rank_{world.rank}.json")
        world.barrier()


def timeline(world: dsc.Communicator, folder: pathlib.Path) -> None:
    """Trains two replicas of a model, each divided between two ranks. One rank has more to compute than the others."""
    tensor = world.split(world.rank // 2, name="tensor")
    data = world.split(world.rank % 2, name="data")
    assert tensor and data
    model = Model(ROWS * (SLOW_FACTOR if world.rank == SLOW_RANK else 1), layers=4)
    part = np.zeros(ROWS * WIDTH, np.float32)
    reducer = dsc.BucketReducer(data, model.params, bucket_bytes=2 * model.params[0].nbytes)
    for _ in range(STEPS):
        model.forward(lambda _: tensor.all_reduce(part))
        reducer.begin()
        model.backward(reducer.mark_ready)
        reducer.finish()
        world.barrier()
    world.dump_trace(folder / f"dsc_trace_rank_{world.rank}.json")


def memory_of(world: dsc.Communicator, stage: Any) -> dict[str, int]:
    """Returns the bytes on this rank after a step of Adam, which has two arrays of state for each shard."""
    model = Model(1)
    whole = sum(weight.nbytes for weight in model.params)
    if stage == 0:
        return {"params": whole, "grads": whole, "state": 2 * whole, "work": 0}
    with dsc.Sharded(world, model.params, stage=stage, units=list(range(LAYERS))) as sharded:
        sharded.begin()
        for i in reversed(range(LAYERS)):
            with sharded.unit(i) as (weight,):
                sharded.mark_ready(i, np.ones_like(weight))
            world.barrier()  # in place of computation, during which earlier units are reduced
        sharded.finish()
        sharded.step_done()
        bytes_of, shards = sharded.memory, sum(shard.grads.nbytes for shard in sharded.shards)
        world.barrier()
    own = {"params": bytes_of.param_shard_bytes, "grads": bytes_of.grad_shard_bytes, "state": 2 * shards, "work": 0}
    for kind, peak in ("params", bytes_of.peak_param_bytes), ("grads", bytes_of.peak_grad_bytes):
        own["work" if peak < whole else kind] += peak
    return own


def ring_sources(world: dsc.Communicator) -> list[int]:
    ring = dsc.Ring(world, 64)
    return [source for source, _ in ring(np.zeros(16, np.float32))]


def layer_shapes(world: dsc.Communicator, enter: Any, leave: Any) -> list[tuple[int, ...]]:
    """Returns the shapes on this rank in two divided layers, y = leave(relu(enter(x) W1) W2)."""
    tokens, width, hidden = 8, 4, 28
    divided = enter != "copy"
    x = np.ones((tokens // world.size if divided else tokens, width), np.float32)
    whole = world.tensor_map(x, enter, 0)
    w1, w2 = np.ones((width, hidden // world.size), np.float32), np.ones((hidden // world.size, width), np.float32)
    inside = np.maximum(whole @ w1, 0)
    part = inside @ w2
    return [array.shape for array in (x, whole, inside, part, world.tensor_map(part, leave, 0))]


def facts(world: dsc.Communicator, folder: pathlib.Path) -> None:
    """Writes numbers of all ranks for the pictures that show no times."""
    mine = {
        "memory": [memory_of(world, stage) for stage in range(4)],
        "ring": ring_sources(world),
        "copy": layer_shapes(world, "copy", "reduce"),
        "gather": layer_shapes(world, "gather_reduce", "reduce_scatter"),
    }
    ranks = world.all_gather_object(mine)
    if world.rank == 0:
        (folder / "facts.json").write_text(json.dumps(ranks))


if __name__ == "__main__":
    with dsc.init_distributed() as whole_world:
        {"overlap": overlap, "timeline": timeline, "facts": facts}[sys.argv[1]](whole_world, pathlib.Path(sys.argv[2]))
