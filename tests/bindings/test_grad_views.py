"""Gradient views: a view that was not written in an iteration is never reduced, and one that was written is never
refused."""

import numpy as np
import pytest

import libdsc as dsc

FLOATS = ["f8", "f4", "f2"]


class Parameter:
    """A parameter that handles its gradient as PyTorch does."""

    def __init__(self, grad):
        self.grad = grad

    def backward(self, gradient):
        if self.grad is None:
            self.grad = np.array(gradient)
        else:
            self.grad += gradient

    def zero_grad(self, set_to_none=True):
        if set_to_none:
            self.grad = None
        else:
            self.grad[...] = 0


def train(world, step, iterations=3, size=5, dtype="f4"):
    """Returns the averages of one parameter after each iteration."""
    averages = []
    with dsc.BucketReducer(world, [np.zeros(size, dtype)], names=["weight"]) as reducer:
        p = Parameter(reducer.grad_view(0))
        for iteration in range(iterations):
            step(reducer, p, np.full(size, iteration + 1, dtype))
            averages.append(reducer.grad_view(0).copy() if p.grad is None else p.grad.copy())
    return [float(average[0]) for average in averages if (average == average[0]).all()]


def detached(reducer, p, gradient, before, clip=1.0):
    """Runs an iteration with the default of zero_grad(), which is called before or after begin()."""
    if before:
        p.zero_grad()
    reducer.begin()
    if not before:
        p.zero_grad()
    p.backward(gradient)
    reducer.mark_ready(0)
    reducer.finish()
    p.grad *= clip


SAYS = r"view of weight \(index 0\) since begin\(\)\. Call mark_ready\(0, grad\) if the gradient is in another array, or mark_unused"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("before", [True, False])
def test_a_gradient_that_left_its_view_is_not_reduced(world, before, dtype):
    with pytest.raises(dsc.StateError, match=SAYS):
        train(world, lambda *args: detached(*args, before), 1, dtype=dtype)


@pytest.mark.parametrize("clip", [1.0, 0.5])
def test_also_after_good_iterations(world, clip):
    def step(reducer, p, gradient):
        reducer.begin()
        p.backward(gradient)
        reducer.mark_ready(0)
        reducer.finish()
        p.grad *= clip  # the view now differs from what finish() has left in it
        p.zero_grad()

    with pytest.raises(dsc.StateError, match=SAYS):
        train(world, step, 2)


def passed(reducer, p, gradient):
    p.zero_grad()
    reducer.begin()
    p.backward(gradient)
    reducer.mark_ready(0, p.grad)
    reducer.finish()


def zeroed_before(reducer, p, gradient):
    p.zero_grad(set_to_none=False)
    reducer.begin()
    p.backward(gradient)
    reducer.mark_ready(0)
    reducer.finish()


def zeroed_after(reducer, p, gradient):
    reducer.begin()
    p.zero_grad(set_to_none=False)
    p.backward(gradient)
    reducer.mark_ready(0)
    reducer.finish()


def micro_batches(reducer, p, gradient):
    p.zero_grad(set_to_none=False)
    reducer.begin()
    for _ in range(4):
        p.backward(gradient / 4)
    reducer.mark_ready(0)
    reducer.finish()


def accumulated(reducer, p, gradient):
    reducer.begin()
    reducer.accumulate(0, gradient / 2)
    reducer.accumulate(0, gradient / 2)
    reducer.mark_ready(0)
    reducer.finish()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 3, 70])
@pytest.mark.parametrize("step", [passed, zeroed_before, zeroed_after, micro_batches, accumulated])
def test_gradients_that_are_there_are_reduced(world, step, size, dtype):
    assert train(world, step, size=size, dtype=dtype) == [1, 2, 3]


@pytest.mark.parametrize("size", [1, 2, 70])
def test_zeros_are_gradients(world, size):
    def step(write):
        def iteration(reducer, p, _):
            p.zero_grad(set_to_none=False)
            reducer.begin()
            write(p)
            reducer.mark_ready(0)
            reducer.finish()

        return iteration

    def set_zero(p):
        p.grad[...] = 0

    zeros = np.zeros(size, "f4")
    for write in (set_zero, lambda p: p.backward(zeros)):
        assert train(world, step(write), size=size) == [0, 0, 0]


def test_the_same_gradient_twice_is_a_gradient(world):
    def step(reducer, p, _):
        reducer.begin()
        p.grad[...] = 7
        reducer.mark_ready(0)
        reducer.finish()

    assert train(world, step) == [7, 7, 7]


def test_what_is_added_to_an_old_average_is_refused(world):
    def step(reducer, p, gradient):
        reducer.begin()
        p.backward(gradient)
        reducer.mark_ready(0)
        reducer.finish()

    with pytest.raises(dsc.StateError, match="nothing was written"):
        train(world, step, 2)


def test_nothing_at_all_is_refused_and_the_iteration_goes_on(world):
    with dsc.BucketReducer(world, [np.zeros(3), np.zeros(0), np.zeros(2)]) as reducer:
        for _ in range(2):
            reducer.begin()
            with pytest.raises(dsc.StateError, match=r"parameter 0 has no gradient; pass the gradient to mark_ready\(0, grad\)"):
                reducer.mark_ready(0)
            gradient = np.ones(3)
            reducer.mark_ready(0, gradient)
            with pytest.raises(dsc.StateError, match="already marked as ready"):
                reducer.mark_ready(0)
            reducer.mark_ready(1)  # parameter 1 has no elements
            reducer.mark_unused(2)
            reducer.finish()
            assert (gradient == 1).all()


def test_a_view_of_this_iteration_is_followed_too(world):
    with dsc.BucketReducer(world, [np.zeros(3), np.zeros(3)], average="none") as reducer:
        reducer.begin()
        view = reducer.grad_view(0)
        with pytest.raises(dsc.StateError, match="nothing was written"):
            reducer.mark_ready(0)
        view[:] = 2
        reducer.accumulate(1, np.full(3, 4.0))
        assert (reducer.grad_view(1) == 4).all()  # a marker value written by the library now would be visible here
        reducer.mark_ready(0)
        reducer.mark_ready(1)
        reducer.finish()
        assert (view == 2).all() and (reducer.grad_view(1) == 4).all()


@pytest.mark.parametrize("spelled", ["bf16", "f8e4m3", "f8e5m2"])
def test_small_floats(world, spelled):
    kind = np.uint16 if spelled == "bf16" else np.uint8
    with dsc.BucketReducer(world, [np.zeros(9, kind)], dtype=spelled) as reducer:
        view = reducer.grad_view(0)
        for value in (0, 8, 8):
            reducer.begin()
            with pytest.raises(dsc.StateError, match="nothing was written"):
                reducer.mark_ready(0)
            view[:] = value
            reducer.mark_ready(0)
            reducer.finish()
            assert (view == value).all()


def test_torch(world):
    torch = pytest.importorskip("torch", minversion="2.14")
    model = torch.nn.Linear(3, 2)
    params = list(model.parameters())
    optimizer = torch.optim.SGD(params, lr=0.1)
    with pytest.raises(ValueError, match=r"params\[0\].*detach\(\)"):
        dsc.BucketReducer(world, params)
    with dsc.BucketReducer(world, [p.detach() for p in params], names=["weight", "bias"]) as reducer:

        def iteration(zero, mark):
            reducer.begin()
            zero()
            model(torch.ones(4, 3)).sum().backward()
            for i, p in enumerate(params):
                mark(i, p)
            reducer.finish()
            assert all((p.grad == 4).all() for p in params)

        for i, p in enumerate(params):
            p.grad = torch.from_numpy(reducer.grad_view(i))
        for _ in range(2):
            iteration(lambda: optimizer.zero_grad(set_to_none=False), lambda i, p: reducer.mark_ready(i))
        for _ in range(2):
            iteration(optimizer.zero_grad, lambda i, p: reducer.mark_ready(i, p.grad))
        with pytest.raises(dsc.StateError, match=r"view of weight \(index 0\).*zero_grad\(set_to_none=True\)"):
            iteration(optimizer.zero_grad, lambda i, p: reducer.mark_ready(i))


def test_a_gradient_that_was_computed_before_begin_is_not_reduced(world):
    """begin() has invalidated the view. Passing the view itself is refused in the same way as passing None."""
    with dsc.BucketReducer(world, [np.zeros(6)]) as reducer:
        view = reducer.grad_view(0)
        view[:] = 3
        reducer.begin()
        with pytest.raises(dsc.StateError, match="computed after begin"):
            reducer.mark_ready(0, view)
        view[:] = 3
        reducer.mark_ready(0, view)
        reducer.finish()
        assert view.tolist() == [3] * 6


def test_a_copy_of_an_average_stays_as_it_is(world):
    with dsc.BucketReducer(world, [np.zeros(3)]) as reducer:
        copies = []
        for value in (1, 2):
            reducer.begin()
            reducer.accumulate(0, np.full(3, float(value)))
            reducer.mark_ready(0)
            reducer.finish()
            copies.append(reducer.grad_view(0, copy=True))
        assert copies[0].tolist() == [1, 1, 1] and copies[1].tolist() == [2, 2, 2]
        assert not any(np.shares_memory(array, reducer.grad_view(0)) for array in copies)


def test_accumulated_and_not_marked_is_said(world):
    with dsc.BucketReducer(world, [np.zeros(3), np.zeros(2)], names=["weight", "bias"]) as reducer:
        reducer.begin()
        reducer.accumulate(0, np.ones(3))
        with pytest.raises(dsc.StateError, match=r"accumulated, but not marked ready: weight \(index 0\); call mark_ready"):
            reducer.finish()
        reducer.begin()
        with pytest.raises(dsc.StateError) as caught:
            reducer.finish()
        assert "accumulated" not in str(caught.value)


def after_the_end(rank, closed):
    world = dsc.init_distributed()
    reducer, gradient, said = dsc.BucketReducer(world, [np.ones(3)]), np.ones(3), []
    view = reducer.grad_view(0)
    reducer.begin()
    if closed:
        reducer.close()
    dsc.finalize()
    calls = [
        reducer.begin,
        lambda: reducer.accumulate(0, gradient),
        lambda: reducer.mark_ready(0, gradient),
        lambda: reducer.mark_ready(0),
        lambda: reducer.mark_unused(0),
        lambda: reducer.grad_view(0),
        lambda: reducer.grad_view(0, copy=True),
        reducer.finish,
    ]
    for call in calls:
        try:
            said.append(call() and None)
        except dsc.DscError as error:
            said.append(type(error))
    view[:] = 3  # crashes the process if the memory was freed
    reducer.close()
    del reducer, calls, call
    return said, view.tolist()


@pytest.mark.parametrize("closed, error", [(False, dsc.StateError), (True, dsc.BadHandleError)])
def test_after_the_end_calls_are_errors_and_views_are_memory(closed, error):
    assert dsc.spawn(after_the_end, 2, (closed,), timeout=60) == [([error] * 8, [3, 3, 3])] * 2


def test_a_rank_beyond_a_world_of_one(world):
    with pytest.raises(dsc.InvalidArgError, match="root is 99, expected 0, the only one"):
        world.broadcast(np.ones(1), root=99)


def test_what_was_accumulated_and_marked_is_not_named_as_unmarked(world):
    with dsc.BucketReducer(world, [np.zeros(3), np.zeros(3)], names=["marked", "missing"]) as reducer:
        reducer.begin()
        reducer.accumulate(0, np.ones(3))
        reducer.mark_ready(0)
        with pytest.raises(dsc.StateError, match="missing") as caught:
            reducer.finish()
        assert "accumulated" not in str(caught.value)
