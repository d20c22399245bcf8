"""A small network and its optimizers in numpy, trained with replicas or with shards, to compare the bits."""

from __future__ import annotations

import numpy as np

import libdsc as dsc

SIZES = [(13, 31), (31,), (31, 17), (17,), (17, 3), (3,)]
NAMES = ["w0", "b0", "w1", "b1", "w2", "b2"]
UNITS = [0, 2, 4]
BATCH = 8
STEPS = 20


def initial(seed=3):
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(size) * 0.4).astype(np.float32) for size in SIZES]


def batch(rank, step, micro=0):
    rng = np.random.default_rng([rank, step, micro])
    return rng.standard_normal((BATCH, 13)).astype(np.float32), rng.standard_normal((BATCH, 3)).astype(np.float32)


def forward(layer, x, w, b):
    """Returns the activations after a layer. Works on copies, so that the alignment of a parameter does not matter."""
    y = x @ w.copy() + b
    return y if layer == 2 else np.tanh(y)


def backward(layer, x, y, w, gradient):
    """Returns the gradients of a layer's input, weight and bias."""
    if layer != 2:
        gradient = gradient * (1 - y * y)
    return gradient @ w.copy().T, x.T @ gradient, gradient.sum(0)


class Sgd:
    def __init__(self, counts):
        self.state = {"momentum": [np.zeros(count, np.float32) for count in counts]}

    def step(self, number, i, params, grads):
        momentum = self.state["momentum"][i]
        momentum *= np.float32(0.9)
        momentum += grads
        params -= np.float32(0.05) * momentum


class Adam:
    def __init__(self, counts):
        self.state = {name: [np.zeros(count, np.float32) for count in counts] for name in ("first", "second")}

    def step(self, number, i, params, grads):
        first, second = self.state["first"][i], self.state["second"][i]
        first += np.float32(0.1) * (grads - first)
        second += np.float32(0.001) * (grads * grads - second)
        bias1, bias2 = np.float32(1 - 0.9**number), np.float32(1 - 0.999**number)
        params -= np.float32(0.01) * (first / bias1) / (np.sqrt(second / bias2) + np.float32(1e-8))


OPTIMIZERS = {"sgd": Sgd, "adam": Adam}


def all_gradients(params, x, target):
    """Returns the gradient of each parameter of a replica."""
    activations = [x]
    for layer in range(3):
        activations.append(forward(layer, activations[-1], params[2 * layer], params[2 * layer + 1]))
    gradient = (activations[-1] - target) / np.float32(BATCH)
    grads = [None] * 6
    for layer in reversed(range(3)):
        x, y = activations[layer], activations[layer + 1]
        gradient, grads[2 * layer], grads[2 * layer + 1] = backward(layer, x, y, params[2 * layer], gradient)
    return grads


def replicated(world, optimizer, shard_size=0, steps=STEPS):
    """Returns the parameters after training with BucketReducer.

    With a shard_size, sums are made inside groups and then between groups.
    """
    params = initial()
    rule = OPTIMIZERS[optimizer]([p.size for p in params])
    inner = outer = None
    if shard_size:
        inner, outer = world.split(world.rank // shard_size), world.split(world.rank % shard_size)
    with dsc.BucketReducer(world, params, bucket_bytes=1000, first_bucket_bytes=500) as reducer:
        for step in range(steps):
            grads = all_gradients(params, *batch(world.rank, step))
            if inner is not None:
                for gradient in grads:
                    gradient *= np.float32(1 / world.size)
                    inner.all_reduce(gradient)
                    outer.all_reduce(gradient)
            else:
                reducer.begin()
                for i in reversed(range(6)):
                    reducer.mark_ready(i, grads[i])
                reducer.finish()
            for i, (p, gradient) in enumerate(zip(params, grads)):
                rule.step(step + 1, i, p.reshape(-1), gradient.reshape(-1))
    return params


def one_pass(sharded, x, target):
    """Runs forward and backward, unit by unit. A layer is gathered only while it computes."""
    activations = [x]
    for layer in range(3):
        with sharded.unit(layer) as (w, b):
            activations.append(forward(layer, activations[-1], w, b))
    gradient = (activations[-1] - target) / np.float32(BATCH)
    yield
    for layer in reversed(range(3)):
        with sharded.unit(layer) as (w, _):
            gradient, of_w, of_b = backward(layer, activations[layer], activations[layer + 1], w, gradient)
        sharded.mark_ready(2 * layer + 1, of_b)
        sharded.mark_ready(2 * layer, of_w)
    yield


def train_sharded(world, sharded, optimizer, steps=STEPS, rule=None, first=0, at_step=lambda step: None):
    rule = rule or OPTIMIZERS[optimizer]([shard.count for shard in sharded.shards])
    for step in range(first, first + steps):
        at_step(step)
        work = one_pass(sharded, *batch(world.rank, step))
        next(work)
        sharded.begin()
        next(work)
        sharded.finish()
        for i, shard in enumerate(sharded.shards):
            rule.step(step + 1, i, shard.params, shard.grads)
        sharded.step_done()
    return rule


def full_params(sharded):
    """Returns copies of all parameters."""
    found = {}
    for unit, indices in enumerate(sharded.units):
        with sharded.unit(unit) as arrays:
            found.update({i: array.copy() for i, array in zip(indices, arrays)})
    return [found[i] for i in sorted(found)]


def same(got, expected):
    for i, (a, b) in enumerate(zip(got, expected)):
        assert a.shape == b.shape and a.tobytes() == b.tobytes(), (NAMES[i], np.abs(a - b).max())


def compare(world, optimizer, shard_size=0, **options):
    """Trains in both ways and checks that the bits are equal."""
    expected = replicated(world, optimizer, shard_size)
    params = initial() if world.rank == 0 else [np.full(size, np.nan, np.float32) for size in SIZES]
    rules = {"units": UNITS} | options
    with dsc.Sharded(world, params, NAMES, shard_size=shard_size, **rules) as sharded:
        train_sharded(world, sharded, optimizer)
        same(full_params(sharded), expected)
        return sharded.memory
