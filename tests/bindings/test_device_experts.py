"""The exchange of tokens between experts with arrays on a GPU, by the fake driver or a real one.

Compared with numpy's results.
"""

import numpy as np
import pytest

import libdsc as dsc
from device_arrays import Interface, Stream, driver, work_on

SECONDS = 60
EXPERTS, HIDDEN = 5, 6


class Like(Interface):
    """An array whose library can create others like it, as torch does."""

    def new_empty(self, shape):
        return Like(np.full(shape, 77, self.dtype))


def ranks(n, body, *args):
    return dsc.spawn(_in_world, n, (body, args), timeout=SECONDS)


def _in_world(rank, body, args):
    work_on(rank)
    world = dsc.init_distributed(backend="device", device=rank, init_timeout=30, timeout=30)
    result = body(world, *args)
    dsc.finalize()
    assert getattr(driver(), "fake_gpu_misuses", lambda: 0)() == 0
    return result


class Layer:
    """The inputs of one rank and a plan for them."""

    def __init__(self, world, **options):
        random = np.random.default_rng(world.rank)
        count = 4 + world.rank
        self.ids = random.integers(-1, EXPERTS, (count, 2)).astype(np.int32)
        self.tokens = random.normal(size=(count, HIDDEN)).astype(np.float32)
        self.weights = random.uniform(0.1, 1, (count, 2)).astype(np.float32)
        self.plan = world.moe_plan(self.ids, EXPERTS, **options)

    def on_host(self):
        """Returns rows, out, returned, grad_rows, grad_weights, grad_tokens."""
        rows = self.plan.dispatch(self.tokens)
        returned = np.empty((*self.weights.shape, HIDDEN), np.float32)
        out = self.plan.combine(rows, self.weights, returned=returned)
        grad_rows, grad_weights = self.plan.combine_backward(self.tokens, self.weights, returned)
        return rows, out, returned, grad_rows, grad_weights, self.plan.dispatch_backward(grad_rows)


def same(found, expected):
    assert found.read().tobytes() == expected.tobytes()


def results_like_inputs(world, options):
    layer = Layer(world, **options)
    rows, out, returned, grad_rows, grad_weights, grad_tokens = layer.on_host()
    plan, tokens, weights = layer.plan, Like(layer.tokens), Like(layer.weights)
    given = plan.dispatch(tokens)
    assert type(given) is Like and given.shape == (plan.rows, HIDDEN)
    kept = Like(np.full(returned.shape, 5, np.float32))
    summed = plan.combine(given, weights, returned=kept)
    both = plan.combine_backward(tokens, weights, kept)
    back = plan.dispatch_backward(both[0])
    for found, expected in zip((given, summed, kept, *both, back), (rows, out, returned, grad_rows, grad_weights, grad_tokens)):
        same(found, expected)
    plan.close()
    return True


@pytest.mark.parametrize("options", [{}, {"capacity": 2}, {"capacity": 3, "padded": True}], ids=str)
@pytest.mark.parametrize("n", [1, 2])
def test_results_are_those_of_the_host(n, options):
    assert ranks(n, results_like_inputs, options) == [True] * n


def on_a_stream(world, async_op):
    """Later work on the stream sees the rows, and the exchange starts after the earlier work on the stream."""
    layer = Layer(world)
    rows = layer.on_host()[0]
    stream, empty = Stream(), np.zeros_like(layer.tokens)
    tokens, out = Interface(empty), Interface(np.zeros_like(rows))
    tokens.write(layer.tokens, stream.number)
    work = layer.plan.dispatch(tokens, out, async_op=async_op, stream=stream)
    if async_op:
        work.wait(stream=stream)
    assert out.read(stream.number).tobytes() == rows.tobytes()
    layer.plan.close()
    return True


@pytest.mark.parametrize("async_op", [False, True], ids=["in order", "async"])
def test_streams(async_op):
    assert ranks(2, on_a_stream, async_op) == [True, True]


def refusals(world):
    layer = Layer(world)
    plan, tokens = layer.plan, Interface(layer.tokens)
    said = []

    def refused(kind, call, *args, **options):
        with pytest.raises(kind) as error:
            call(*args, **options)
        said.append(str(error.value))

    rows = np.empty((plan.rows, HIDDEN), np.float32)
    refused(dsc.InvalidArgError, plan.dispatch, tokens, rows)
    refused(ValueError, plan.dispatch, tokens)
    there = Interface(rows)
    refused(dsc.UnsupportedError, plan.dispatch, tokens, there, payload="f8e4m3")
    refused(dsc.UnsupportedError, world.moe_plan, Interface(layer.ids), EXPERTS)
    kept = Interface(np.empty((*layer.weights.shape, HIDDEN), np.float32))
    refused(ValueError, plan.combine_backward, tokens, Interface(layer.weights), kept, there)
    plan.dispatch(tokens, there)
    same(there, layer.on_host()[0])
    plan.close()
    return said


def test_what_is_refused():
    for said in ranks(2, refusals):
        assert "tokens is in device memory and rows is in host memory, expected the same kind of memory" in said[0]
        assert "out is None; expected an array on the GPU, because x has no new_empty()" in said[1]
        assert "rows are in device memory, expected payload 1 (plain)" in said[2]
        assert "expert_ids is in memory of device" in said[3] and "expected host memory" in said[3]
        assert "grad_weights is None; expected an array on the GPU, because weights has no new_empty()" in said[4]


def unbound(rank):
    world = dsc.init_distributed(init_timeout=30, timeout=30)
    plan = world.moe_plan(np.zeros((3, 1), np.int32), 1)

    class OnGpu:
        __cuda_array_interface__ = {"shape": (3, 2), "typestr": "<f4", "data": (1 << 20, False), "version": 3}

    with pytest.raises(ValueError, match="is on a GPU, but this communicator is not bound to a GPU"):
        plan.dispatch(OnGpu(), OnGpu())
    plan.close()
    dsc.finalize()
    return True


def test_a_communicator_without_a_device():
    assert dsc.spawn(unbound, 1, timeout=SECONDS) == [True]
