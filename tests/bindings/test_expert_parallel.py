"""The exchange of tokens for mixture-of-experts layers, through the Python package."""

import asyncio
import os
import socket

import numpy as np
import pytest

import libdsc as dsc

SECONDS = 60


def ranks(n, body, *args, hosts=1):
    """Runs body(world, *args) on n ranks, which are spread over simulated hosts, and returns the results."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    return dsc.spawn(_in_world, n, (n, hosts, port, body, args), timeout=SECONDS)


def _in_world(rank, n, hosts, port, body, args):
    if hosts > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "DSC_TOKEN": "cd" * 32}
        local = [other for other in range(n) if other * hosts // n == rank * hosts // n]
        os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"] = str(local.index(rank)), str(len(local))
        os.environ["DSC_HOST_ID"] = f"host-{rank * hosts // n}"
    world = dsc.init_distributed(init_timeout=30, timeout=30)
    result = body(world, *args)
    dsc.finalize()
    return result


class Layer:
    """The inputs of one rank. Every process creates the same inputs for a rank."""

    def __init__(self, rank, experts, top_k, hidden, dtype):
        random = np.random.default_rng((rank, experts, top_k))
        count = 0 if rank == 2 else int(random.integers(1, 12))
        self.ids = random.integers(-1, experts, (count, top_k)).astype(np.int32)
        self.tokens = random.normal(size=(count, hidden)).astype(dtype)
        self.weights = random.uniform(0.1, 1, (count, top_k)).astype(np.float64 if dtype == np.float64 else np.float32)
        self.gradient = random.normal(size=(count, hidden)).astype(dtype)

    def kept(self, capacity, drop):
        """Returns which slots are sent."""
        kept = self.ids >= 0
        for expert in np.unique(self.ids[kept]) if capacity else []:
            slots = np.flatnonzero(self.ids == expert)
            if drop == "lightest":
                slots = slots[np.argsort(-self.weights.ravel()[slots], kind="stable")]
            kept.ravel()[slots[capacity:]] = False
        return kept


def received(layers, rank, experts, capacity, drop, padded):
    """Returns (source, slot) for each row of a rank, or None for padding, and rows[expert][source]."""
    rows, counts = [], []
    for expert in dsc.split_range(experts, len(layers), rank):
        counts.append([])
        for source, layer in enumerate(layers):
            slots = np.flatnonzero(layer.kept(capacity, drop) & (layer.ids == expert))
            rows += [(source, slot) for slot in slots]
            rows += [None] * (capacity - len(slots)) if padded else []
            counts[-1].append(len(slots))
    return rows, counts


def combined(layer, kept, rows_of_slot, weights):
    """Combines in the order of the slots and rounds after each step, as the library promises."""
    out = np.zeros_like(layer.tokens)
    for token in range(len(out)):
        terms = [rows_of_slot[token, k] * weights[token, k] for k in np.flatnonzero(kept[token])]
        for number, term in enumerate(terms):
            out[token] = term if number == 0 else out[token] + term
    return out


def exchanges(world, experts, top_k, capacity, drop, padded, dtype):
    hidden = 5
    layers = [Layer(rank, experts, top_k, hidden, dtype) for rank in range(world.size)]
    own, kept = layers[world.rank], layers[world.rank].kept(capacity, drop)
    light = own.weights.astype(np.float32)
    plan = world.moe_plan(own.ids, experts, capacity=capacity or None, drop=drop, padded=padded, weights=light)
    rows, counts = received(layers, world.rank, experts, capacity, drop, padded)
    assert plan.source_rows == counts and plan.expert_rows == [sum(of) for of in counts]
    assert plan.experts == dsc.split_range(experts, world.size, world.rank)
    assert (plan.tokens, plan.top_k, plan.rows) == (*own.ids.shape, len(rows))
    assert plan.sent == kept.sum() and plan.dropped == (own.ids >= 0).sum() - kept.sum()
    assert ((plan.positions >= 0) == kept).all() and len(np.unique(plan.positions[kept])) == plan.sent

    expected = np.zeros((len(rows), hidden), dtype)
    scales = np.zeros((len(rows), 1), dtype)
    for at, row in enumerate(rows):
        if row is not None:
            expected[at] = layers[row[0]].tokens[row[1] // top_k]
            scales[at] = 1.5 + layers[row[0]].ids.ravel()[row[1]]
    found = plan.dispatch(own.tokens)
    assert found.dtype == dtype and found.tobytes() == expected.tobytes()

    returned = np.empty((*own.ids.shape, hidden), dtype)
    out = plan.combine(found * scales, own.weights, returned=returned)
    slots = np.where(kept[..., None], own.tokens[:, None] * (1.5 + own.ids[..., None]).astype(dtype), 0).astype(dtype)
    assert returned.tobytes() == slots.tobytes()
    assert out.tobytes() == combined(own, kept, slots, own.weights).tobytes()

    grad_rows, grad_weights = plan.combine_backward(own.gradient, own.weights, returned)
    for at, row in enumerate(rows):
        wanted = 0 if row is None else layers[row[0]].weights.ravel()[row[1]] * layers[row[0]].gradient[row[1] // top_k]
        assert (grad_rows[at] == wanted).all()
    exact = (slots.astype(np.float64) * own.gradient[:, None]).sum(-1)
    np.testing.assert_allclose(grad_weights, exact, 1e-6 if dtype == np.float32 else 1e-13, 1e-13)
    grad_tokens = plan.dispatch_backward(grad_rows * scales)
    ones = np.ones_like(own.weights)
    slopes = (own.weights[..., None] * own.gradient[:, None]) * (1.5 + own.ids[..., None]).astype(dtype)
    assert grad_tokens.tobytes() == combined(own, kept, slopes, ones).tobytes()
    return [out.tobytes(), grad_tokens.tobytes()]


CASES = [(4, 2, 0, "latest", False), (5, 1, 0, "latest", False), (3, 8, 2, "latest", False), (7, 2, 1, "lightest", False),
         (4, 2, 3, "latest", True), (5, 3, 2, "lightest", True), (1, 2, 4, "lightest", True)]


def all_cases(world):
    return [exchanges(world, *case, dtype) for case in CASES for dtype in (np.float32, np.float64)]


@pytest.mark.parametrize("n, hosts", [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (4, 2)])
def test_as_in_numpy(n, hosts):
    assert all(ranks(n, all_cases, hosts=hosts))


def shapes(world):
    ids = np.array([[[0, 1], [1, -1], [0, 0]], [[1, 1], [-1, -1], [0, 1]]], np.int32)
    tokens = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    with world.moe_plan(ids, 2) as plan:
        rows = plan.dispatch(tokens)
        assert rows.shape == (plan.rows, 4) and plan.positions.shape == ids.shape
        assert (plan.combine(rows) == tokens * (ids >= 0).sum(-1)[..., None]).all()
        out, kept = np.empty_like(tokens), np.empty((2, 3, 2, 4), np.float32)
        weights = np.full((2, 3, 2), 0.5, np.float32)
        assert plan.combine(rows, weights, out, returned=kept) is out
        place = np.empty((2, 3, 2), np.float32)
        _, found = plan.combine_backward(np.ones_like(tokens), weights, kept, grad_weights=place)
        assert found is place and (found == kept.sum(-1)).all()
        assert plan.combine_backward(np.ones_like(tokens), weights)[1] is None
    plan.close()
    with pytest.raises(dsc.StateError, match="moe_dispatch: the plan was closed"):
        plan.dispatch(tokens)
    return True


def test_shapes():
    assert ranks(1, shapes) == [True] and ranks(2, shapes) == [True] * 2


def works(world):
    layer = Layer(world.rank, 3, 2, 6, np.float32)
    plan = world.moe_plan(layer.ids, 3)
    rows, out = np.empty((plan.rows, 6), np.float32), np.empty_like(layer.tokens)
    work = plan.dispatch(layer.tokens, rows, async_op=True)
    if world.size > 1:
        with pytest.raises(dsc.StateError, match="the previous call on this plan is not complete"):
            plan.dispatch(layer.tokens)
    work.wait()
    assert rows.tobytes() == plan.dispatch(layer.tokens).tobytes()

    async def combines():
        await plan.combine(rows, layer.weights, out, async_op=True)

    asyncio.run(combines())
    assert out.tobytes() == plan.combine(rows, layer.weights).tobytes()
    gradient = np.empty_like(out)
    plan.dispatch_backward(rows, gradient, async_op=True).wait()
    assert gradient.tobytes() == plan.dispatch_backward(rows).tobytes()
    grads = np.empty_like(rows)
    plan.combine_backward(layer.gradient, layer.weights, None, grads, async_op=True).wait()
    assert grads.tobytes() == plan.combine_backward(layer.gradient, layer.weights)[0].tobytes()
    plan.dispatch(layer.tokens, rows, async_op=True)  # the work is dropped: the operation goes on and keeps its arrays
    world.barrier()
    return True


def dropped_works(world):
    """The progress of a dropped operation differs between ranks. The result of the next call must not."""
    layer = Layer(world.rank, 3, 2, 6, np.float32)
    plan = world.moe_plan(layer.ids, 3)
    expected = plan.dispatch(layer.tokens).tobytes()
    for _ in range(100):
        rows = np.zeros((plan.rows, 6), np.float32)
        plan.dispatch(layer.tokens, rows, async_op=True)
        assert plan.dispatch(layer.tokens).tobytes() == rows.tobytes() == expected
    return True


def test_dropped_works():
    assert ranks(1, dropped_works) == [True] and ranks(3, dropped_works) == [True] * 3


def test_works():
    assert ranks(1, works) == [True] and ranks(3, works) == [True] * 3


def very_many(world):
    def resident():
        with open("/proc/self/statm") as numbers:
            return int(numbers.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before, experts = resident(), 2**20
    plan = world.moe_plan(np.full((3, 1), experts - 1, np.int32), experts)
    assert plan.rows == (6 if world.rank == 1 else 0)
    return (resident() - before) / experts


def test_very_many_experts():
    assert max(ranks(2, very_many)) < 30, "bytes per expert that a plan keeps"


def narrow(world):
    layer = Layer(world.rank, 3, 2, 40, np.float32)
    plan = world.moe_plan(layer.ids, 3)
    count = (layer.ids >= 0).sum(-1)[:, None]
    for dtype, bits in (("f16", layer.tokens.astype(np.float16)), ("bf16", (layer.tokens.view(np.uint32) >> 16).astype(np.uint16))):
        rows = plan.dispatch(bits, dtype=dtype)
        out = plan.combine(rows, dtype=dtype)
        assert rows.dtype == out.dtype == bits.dtype
        wide = [x.astype(np.float32) if dtype == "f16" else (x.astype(np.uint32) << 16).view(np.float32) for x in (out, bits)]
        np.testing.assert_allclose(wide[0], wide[1] * count, 0.01)
        assert (out[count[:, 0] == 1] == bits[count[:, 0] == 1]).all()
    return True


def test_sixteen_bits():
    assert ranks(2, narrow) == [True] * 2


def eight_bits(world, dtype):
    hidden = 300
    random = np.random.default_rng(5)
    tokens = (random.normal(size=(9, hidden)) * np.exp(random.normal(size=(9, hidden)))).astype(dtype)
    ids = np.repeat(np.arange(9, dtype=np.int32)[:, None] % world.size, 2, 1)
    plan = world.moe_plan(ids, world.size)
    rows = plan.dispatch(tokens, payload="f8e4m3").astype(np.float64)
    sent = np.concatenate([np.repeat(tokens[np.flatnonzero(ids[:, 0] == world.rank)], 2, 0)] * world.size).astype(np.float64)
    worst = 0.0
    for begin in range(0, hidden, 128):
        x, y = sent[:, begin : begin + 128], rows[:, begin : begin + 128]
        scale = np.maximum(abs(x).max(-1, keepdims=True), 2.0**-100) / 448
        bound = np.maximum(abs(x) / 16, scale / 1024) * (1 + 2.0**-20) + abs(y) * np.finfo(dtype).eps
        assert (abs(y - x) <= bound).all()
        worst = max(worst, (abs(y - x) / bound).max())
    assert worst > 0.9, "the bound is not tight"
    return True


def test_eight_bit_payload():
    for dtype in (np.float32, np.float16):
        assert ranks(2, eight_bits, dtype) == [True] * 2


def refused(error, text, function, *arguments, **named):
    with pytest.raises(error, match=text):
        function(*arguments, **named)


def refuses(world):
    ids, tokens = np.zeros((3, 2), np.int32), np.zeros((3, 4), np.float32)
    refused(TypeError, r"^expert_ids has .* int64; expected int32 \(use expert_ids.astype\(numpy.int32\)\)$", world.moe_plan, ids.astype(np.int64), 2)
    refused(ValueError, r"expert_ids has shape \(\); expected \[..., top_k\]$", world.moe_plan, np.array(1, np.int32), 2)
    refused(ValueError, r"expert_ids has shape \(3,\).*use expert_ids\[:, None\] for one", world.moe_plan, ids[:, 0].copy(), 2)
    refused(ValueError, "experts is -1; expected 1 to 16777216", world.moe_plan, ids, -1)
    refused(dsc.InvalidArgError, 'weights is None and drop is "lightest", expected 6 router weights', world.moe_plan, ids, 2, capacity=1, drop="lightest")
    refused(ValueError, "capacity is 0, expected 1 or more|capacity is 0", world.moe_plan, ids, 2, capacity=0)
    refused(ValueError, 'drop is "lightest" and capacity is None, expected a capacity', world.moe_plan, ids, 2, drop="lightest")
    refused(ValueError, "padded is True and capacity is None, expected a capacity", world.moe_plan, ids, 2, padded=True)
    refused(ValueError, "drop is 'lightes'; expected one of latest, lightest .did you mean 'lightest'", world.moe_plan, ids, 2, drop="lightes")
    refused(ValueError, r"weights has shape \(3,\); expected \(3, 2\)", world.moe_plan, ids, 2, weights=np.zeros(3, np.float32))
    refused(dsc.InvalidArgError, r"expert_ids\[2\]\[1\] is 2, expected 0 to 1, or -1 for no expert", world.moe_plan, np.array([[0, 0], [0, 0], [0, 2]], np.int32), 2)
    plan = world.moe_plan(ids, 2)
    refused(ValueError, r"tokens has shape \(4, 4\); expected \(3, hidden\)", plan.dispatch, np.zeros((4, 4)))
    refused(ValueError, r"tokens has shape \(3,\); expected \(3, hidden\)", plan.dispatch, np.zeros(3))
    refused(ValueError, r"out has shape \(1, 4\); expected", plan.dispatch, tokens, np.zeros((1, 4), np.float32))
    refused(TypeError, "out has element type float64; expected float32", plan.dispatch, tokens, np.zeros((plan.rows, 4)))
    refused(ValueError, "out is None; expected an array, because with async_op", plan.dispatch, tokens, async_op=True)
    refused(dsc.UnsupportedError, "dtype is i32", plan.dispatch, tokens.view(np.int32))
    rows = plan.dispatch(tokens)
    refused(TypeError, "weights has element type float64; expected float32", plan.combine, rows, np.ones((3, 2)))
    refused(ValueError, "returned is None; expected the array that combine.. wrote", plan.combine_backward, tokens, grad_weights=np.ones((3, 2), np.float32))
    refused(ValueError, "grad_weights is None; expected an array, because returned is given", plan.combine_backward, tokens,
            returned=np.ones((3, 2, 4), np.float32), out=np.empty((plan.rows, 4), np.float32), async_op=True)
    # rank 1 gets no rows, so its empty array may have any address
    to_first = world.moe_plan(np.zeros((3, 1), np.int32), 2)
    out = tokens[1:1] if world.rank == 1 else np.empty((to_first.rows, 4), np.float32)
    assert to_first.dispatch(tokens, out).shape == (0 if world.rank == 1 else 6, 4)
    with world.batch():
        refused(dsc.StateError, "moe_combine: called inside batch", plan.combine, rows)
    group = world.split(0)
    refused(dsc.MismatchError, f"experts {2 + world.rank}, top_k 2", group.moe_plan, ids, 2 + world.rank)
    assert (plan.combine(rows) == tokens).all()
    return True


def test_refusals_name_the_argument_and_end_nothing():
    assert ranks(2, refuses) == [True] * 2


def differs_from_slope(world):
    """Checks the gradients of a nonlinear layer by central differences in one random direction at a time."""
    layer = Layer(world.rank, 5, 2, 4, np.float64)
    plan = world.moe_plan(layer.ids, 5)

    def loss(tokens, weights):
        rows = plan.dispatch(tokens)
        returned = np.empty((*layer.ids.shape, 4))
        out = plan.combine(np.tanh(rows), weights, returned=returned)
        return (np.sin(out) * layer.gradient).sum(), rows, out, returned

    _, rows, out, returned = loss(layer.tokens, layer.weights)
    grad_rows, grad_weights = plan.combine_backward(np.cos(out) * layer.gradient, layer.weights, returned)
    grad_tokens = plan.dispatch_backward(grad_rows / np.cosh(rows) ** 2)
    random, worst = np.random.default_rng(world.rank), 0.0
    for _ in range(5):
        tokens, weights = random.normal(size=layer.tokens.shape), random.normal(size=layer.weights.shape)
        h = 1e-5
        sides = [loss(layer.tokens + side * tokens, layer.weights + side * weights)[0] for side in (-h, h)]
        slope = (grad_tokens * tokens).sum() + (grad_weights * weights).sum()
        worst = max(worst, abs((sides[1] - sides[0]) / (2 * h) - slope))
    return worst


def test_gradients_are_slopes():
    assert all(worst < 1e-6 for n in (1, 2, 4) for worst in ranks(n, differs_from_slope))


def tensors(world):
    import torch

    torch.manual_seed(world.rank)
    ids = torch.randint(-1, 3, (6, 2), dtype=torch.int32)
    plan = world.moe_plan(ids, 3)

    class Dispatch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tokens):
            return plan.dispatch(tokens.detach())

        @staticmethod
        def backward(ctx, gradient):
            return plan.dispatch_backward(gradient.contiguous())

    class Combine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, rows, weights):
            returned = rows.new_empty(*ids.shape, rows.shape[-1])
            out = plan.combine(rows.detach(), weights.detach(), returned=returned)
            ctx.save_for_backward(weights, returned)
            return out

        @staticmethod
        def backward(ctx, gradient):
            weights, returned = ctx.saved_tensors
            found = torch.empty_like(weights)
            rows, _ = plan.combine_backward(gradient.contiguous(), weights.detach(), returned, grad_weights=found)
            return rows, found

    tokens = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(6, 2, dtype=torch.float64, requires_grad=True)
    out = Combine.apply(torch.tanh(Dispatch.apply(tokens)), weights)
    (out * out).sum().backward()
    found = tokens.grad.clone(), weights.grad.clone()
    tokens.grad = weights.grad = None
    dense = (torch.tanh(tokens)[:, None] * (weights * (ids >= 0))[..., None]).sum(1)
    (dense * dense).sum().backward()
    for one, other in zip(found, (tokens.grad, weights.grad)):
        torch.testing.assert_close(one, other)
    assert plan.dispatch(torch.zeros(6, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16
    long_ids = torch.zeros(6, 2, dtype=torch.int64)
    refused(TypeError, r"expected int32 \(use expert_ids.to\(torch.int32\)\)$", world.moe_plan, long_ids, 2)
    return True


def test_tensors():
    pytest.importorskip("torch", minversion="2.14")
    assert ranks(2, tensors) == [True] * 2
