"""Mistakes that would silently give wrong gradients: counted twice, lost, or present only on other ranks."""

import numpy as np
import pytest

import libdsc as dsc
from test_ranks import ranks


class Tensor(np.ndarray):
    """An array that counts in-place writes, as torch does."""

    _version = 0

    def add_(self, other):
        self[...] += other
        self._version += 1

    def zero_(self):
        self[...] = 0
        self._version += 1


def tensor(*values):
    return np.array(values, np.float32).view(Tensor)


def iterate(reducer, grad):
    reducer.begin()
    reducer.mark_ready(0, grad)
    reducer.finish()


def accumulates(world, zeroed):
    """Three micro-batches with the gradients 1, 2 and 3.

    A framework adds them to one array, as torch does with p.grad.
    """
    with dsc.BucketReducer(world, [tensor(0, 0)], ["w"]) as reducer:
        grad = tensor(1, 1)
        with reducer.no_sync():
            iterate(reducer, grad)
            if zeroed:
                grad.zero_()
            grad.add_(2)
            reducer.begin()
            if not zeroed:
                with pytest.raises(dsc.StateError, match=r"the array of w \(index 0\) still contains .* Set the array to zero before each iteration"):
                    reducer.mark_ready(0, grad)
            reducer.accumulate(0, tensor(2, 2)) if not zeroed else None
            reducer.mark_ready(0, None if not zeroed else grad)
            reducer.finish()
        last = tensor(3, 3)
        iterate(reducer, last)
        return last.tolist()


@pytest.mark.parametrize("zeroed", [True, False])
def test_an_array_that_was_added_to_under_no_sync_would_count_twice(zeroed):
    assert ranks(2, accumulates, zeroed) == [[6, 6]] * 2


def overwrites(world):
    """New arrays in place of old ones, and arrays that were overwritten, are used as they are."""
    with dsc.BucketReducer(world, [np.zeros(2, np.float32)]) as reducer:
        grad = np.ones(2, np.float32)
        with reducer.no_sync():
            iterate(reducer, grad)
            grad[:] = 2
            iterate(reducer, grad)
            for value in (3, 4):
                iterate(reducer, tensor(value, value))
        last = tensor(5, 5)
        iterate(reducer, last)
        last.add_(1)  # no earlier sums are left
        iterate(reducer, last)
        return last.tolist()


def test_other_arrays_under_no_sync_are_taken():
    assert ranks(2, overwrites) == [[16, 16]] * 2


def zeroes_a_view(world):
    with dsc.BucketReducer(world, [np.zeros(2, np.float32)], ["w"]) as reducer:
        view, found = reducer.grad_view(0), []
        for again in (False, True):
            with reducer.no_sync():
                reducer.begin()
                view[:] = 1
                reducer.mark_ready(0)
                reducer.finish()
            if again:
                view[:] = 0
                with pytest.raises(dsc.StateError, match=r"begin: the gradient view of w \(index 0\) was set to zero, which deleted the sum"):
                    reducer.begin()
            reducer.begin()  # after the error the sum is gone
            view += 5
            reducer.mark_ready(0)
            reducer.finish()
            found.append(view.tolist())
        return found


def test_a_view_that_was_zeroed_under_no_sync_has_lost_its_sum():
    assert ranks(2, zeroes_a_view) == [[[6, 6], [5, 5]]] * 2


def uses_one_of_two(world, way):
    """Rank 0 uses only w, the other ranks use only b. In torch p.grad stays None for the unused parameter."""
    params = [np.zeros(2, np.float32), np.zeros(3, np.float32), np.zeros(1, np.float32)]
    with dsc.BucketReducer(world, params, ["w", "b", "nobody's"], find_unused=True) as reducer:
        mine = int(world.rank > 0)
        grad = np.full(2 + mine, world.size, np.float32)
        other = 1 - mine
        if way == "view held":
            reducer.grad_view(other)
        reducer.begin()
        reducer.mark_ready(mine, grad)
        reducer.finish()
        assert reducer.unused() == [(2, "nobody's")]
        if way == "list":
            assert reducer.used_elsewhere() == [(other, "wb"[other])]
        if way == "view":
            assert (reducer.grad_view(other) > 0).all()
        if way == "nothing":
            text = rf"begin: {'wb'[other]} \(index {other}\) had a gradient on other ranks only.*grad_view\({other}\)"
            with pytest.raises(dsc.StateError, match=text):
                reducer.begin()
        reducer.begin()
        for i in range(3):
            reducer.mark_ready(i, np.ones_like(params[i]))
        reducer.finish()
        assert reducer.used_elsewhere() == []
        reducer.begin()
        return True


@pytest.mark.parametrize("way", ["nothing", "list", "view", "view held"])
def test_a_gradient_that_only_other_ranks_had_must_be_taken(way):
    assert ranks(2, uses_one_of_two, way) == [True] * 2


def drifts(world):
    same, mine = np.ones(3, np.float32), np.ones(4)
    arrays, names = [same, mine, np.zeros(0), bytearray(b"abc")], ["same", "mine", "empty", "text"]
    world.verify_params(arrays, names, values=True)
    mine[3] += world.rank == 2
    dsc.verify_params(world, arrays, names)
    said = []
    for given in (names, None):
        with pytest.raises(dsc.MismatchError) as caught:
            dsc.verify_params(world, arrays, given, values=True)
        said.append((str(caught.value), caught.value.ranks))
    mine[:], same[0] = world.rank, -0.0 if world.rank else 0.0
    with pytest.raises(dsc.MismatchError) as caught:
        world.verify_params(arrays, names, values=True)
    with pytest.raises(TypeError, match="values is 'yes'; expected True or False"):
        world.verify_params(arrays, names, values="yes")
    return [*said, (str(caught.value), caught.value.ranks)]


def test_values_are_compared_when_asked():
    expected = "verify_params: expected the same values on all ranks, but "
    for first, unnamed, several in ranks(3, drifts):
        assert first == (expected + "mine (index 1) on rank 2 differs from that of rank 0", (2,))
        assert unnamed == (expected + "parameter 1 on rank 2 differs from that of rank 0", (2,))
        assert several == (expected + "same (index 0) on ranks 1, 2 differs from that of rank 0; 2 of 4 parameters differ", (1, 2))


def read_only(world):
    """All ranks refuse, so none waits for the others. Then the communicator still works."""
    params = np.zeros(3, np.float32)
    params.flags.writeable = False
    with pytest.raises(ValueError, match=r"^params\[0\] is read-only; expected .*sync=False"):
        dsc.BucketReducer(world, [params])
    strided = np.zeros((2, 3, 4), np.float32).transpose(0, 2, 1)
    with pytest.raises(ValueError, match=r"pass the view params\[0\].transpose\(0, 2, 1\), whose elements are consecutive, and not a copy$"):
        dsc.BucketReducer(world, [strided])
    with pytest.raises(ValueError, match=r"pass a copy \(numpy.ascontiguousarray\(params\[0\]\)\) and then copy the result back$"):
        dsc.BucketReducer(world, [np.zeros((4, 4), np.float32)[::2]])
    with pytest.raises(ValueError, match=r"^x is not .* \(a copy: numpy.ascontiguousarray\(x\)\)$"):
        world.all_gather(np.zeros(4 * world.size), np.zeros((4, 2))[:, 0])
    with pytest.raises(TypeError, match=r"^params\[1\] is None; expected an array$"):
        dsc.BucketReducer(world, [np.zeros(1), None])
    with pytest.raises(TypeError, match=r"^params\[0\] is None; expected an array$"):
        dsc.Sharded(world, [None])
    dsc.BucketReducer(world, [params], sync=False).close()
    own = np.full((2, 3, 4), world.rank, np.float32).transpose(0, 2, 1)
    dsc.BucketReducer(world, [own.transpose(0, 2, 1)]).close()
    return own.max()


def test_wrong_parameters_are_refused_on_all_ranks():
    assert ranks(2, read_only) == [0, 0]


def runs_out(world, joined):
    """Rank 0 has one batch more than the others."""
    world.set_timeout(10)
    grad = np.ones(2, np.float32)
    with dsc.BucketReducer(world, [np.zeros(2, np.float32)]) as reducer:
        iterate(reducer, grad)
        if world.rank:
            return ""
        with pytest.raises(dsc.PeerLeftError) as caught:
            iterate(reducer, grad)
    return str(caught.value)


def test_a_rank_that_has_run_out_of_batches_leads_to_join():
    said = ranks(2, runs_out, False)[0]
    assert said.endswith("; ranks that run out of batches early need `with libdsc.Join(reducer, params):` around the loop")


class Sparse:
    """The gradient of an embedding in torch's form."""

    is_sparse = True

    def __dlpack__(self, **_):
        raise BufferError("Can't export tensors with layout other than torch.strided")


def test_a_sparse_gradient_leads_to_mark_sparse(world):
    with dsc.BucketReducer(world, [np.zeros((4, 2))]) as reducer:
        reducer.begin()
        with pytest.raises(ValueError, match=r"sparse=\[i\]\) and call mark_sparse\(i, grad._indices\(\)\[0\], grad._values\(\)\)"):
            reducer.mark_ready(0, Sparse())


def accumulates_in_torch(world, zeroes):
    """A loop as PyTorch users write it. `zeroes` is passed to zero_grad(set_to_none=); None means no call."""
    import torch

    torch.set_num_threads(1)
    weight = torch.nn.Parameter(torch.zeros(3))
    with dsc.BucketReducer(world, [weight.detach()], ["weight"]) as reducer:

        def step(value):
            reducer.begin()
            (weight * value).sum().backward()
            reducer.mark_ready(0, weight.grad)
            reducer.finish()
            if zeroes is not None and not reducer._synced:
                torch.optim.SGD([weight]).zero_grad(set_to_none=zeroes)

        try:
            with reducer.no_sync():
                step(1)
                step(2)
            step(3)
        except dsc.StateError as error:
            return str(error)
    return weight.grad.tolist()


def test_what_torch_does_with_gradients():
    pytest.importorskip("torch", minversion="2.14")
    assert ranks(2, accumulates_in_torch, False) == ranks(2, accumulates_in_torch, True) == [[6, 6, 6]] * 2
    for said in ranks(2, accumulates_in_torch, None):
        assert "mark_ready: the array of weight (index 0) still contains the gradient that was marked" in said
