"""Communicator.tensor_map() and split_range(): every backward step is the adjoint of its forward step."""

import numpy as np
import pytest

import libdsc as dsc

SECONDS = 120
# For each mapping: whether its input is equal on all ranks, and whether its output is equal on all ranks.
ONE_FOR_ALL = {
    "copy": (True, False),
    "reduce": (False, True),
    "scatter": (True, False),
    "gather": (False, True),
    "gather_reduce": (False, False),
    "reduce_scatter": (False, False),
    "all_to_all": (False, False),
    "sequence_to_hidden": (False, False),
    "hidden_to_sequence": (False, False),
}
IN_OF_PART = ("gather", "gather_reduce", "hidden_to_sequence")


def start(rank, n):
    world = dsc.init_distributed(init_timeout=60, timeout=60)
    assert (world.rank, world.size) == (rank, n)
    return world


def inner_product(world, a, b, is_one):
    """Sums the inner products of all ranks. A tensor that is equal on all ranks counts once."""
    total = np.array([np.vdot(a, b)])
    if not is_one:
        world.all_reduce(total)
    return total[0]


def draw(world, shape, is_one, seed):
    return np.random.default_rng((seed, 0 if is_one else world.rank + 1)).standard_normal(shape)


def shape_in(world, mapping, whole, dim, parts, sequence):
    shape = list(whole)
    if mapping in IN_OF_PART:
        shape[dim] = parts[world.rank]
    if mapping == "sequence_to_hidden":
        shape[0] = sequence[world.rank]
    return shape


def check_adjoint(world, mapping, dim, uneven, seed):
    n = world.size
    parts = [2 * r + 1 for r in range(n)] if uneven else [4] * n
    sequence = [3 * r + 2 for r in range(n)] if uneven else [3] * n
    whole = [sum(sequence), 3, 5]
    whole[dim] = sum(parts)
    lists = {}
    if uneven:
        lists = {"parts": parts}
        if "sequence" in mapping:
            lists["other_parts"] = sequence
    one_in, one_out = ONE_FOR_ALL[mapping]
    x = draw(world, shape_in(world, mapping, whole, dim, parts, sequence), one_in, seed)
    y = world.tensor_map(x, mapping, dim, **lists)
    gy = draw(world, y.shape, one_out, seed + 1)
    gx = world.tensor_map(gy, mapping, dim, direction="backward", **lists)
    assert gx.shape == x.shape
    forward = inner_product(world, y, gy, one_out)
    backward = inner_product(world, x, gx, one_in)
    assert abs(forward - backward) < 1e-9 * max(1, abs(forward)), (mapping, dim, uneven, forward, backward)


def check_adjoints(rank, n):
    world = start(rank, n)
    cases = [
        (mapping, dim, uneven)
        for mapping in ONE_FOR_ALL
        for dim in (0, 1, 2)
        for uneven in (False, True)
        if not ("sequence" in mapping and dim == 0) and not (mapping == "all_to_all" and uneven)
    ]
    for seed, case in enumerate(cases):
        check_adjoint(world, *case, 2 * seed)
    dsc.finalize()
    return len(cases)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_backward_is_the_adjoint_of_forward(n):
    counts = dsc.spawn(check_adjoints, n, args=(n,), timeout=SECONDS)
    assert counts[0] == 47 and counts == [counts[0]] * n


def exchange_unevenly(rank, n):
    world = start(rank, n)
    sent = [[(2 * a + b) % 3 for b in range(n)] for a in range(n)]
    received = [list(column) for column in zip(*sent)]
    x = np.arange(sum(sent[rank]) * 2, dtype=np.float32).reshape(-1, 2) + 100 * rank
    lists = {"parts": sent[rank], "other_parts": received[rank]}
    y = world.tensor_map(x, "all_to_all", 0, **lists)
    back = world.tensor_map(y, "all_to_all", 0, direction="backward", **lists)
    wide = np.stack([x, x + 0.5])  # two rows of columns
    columns = world.tensor_map(wide, "all_to_all", 1, **lists)
    assert np.array_equal(columns, np.stack([y, y + 0.5]))
    assert np.array_equal(world.tensor_map(columns, "all_to_all", 1, direction="backward", **lists), wide)
    starts = [sum(sent[s][:rank]) for s in range(n)]
    expected = [100 * s + 2 * (starts[s] + k) + c for s in range(n) for k in range(sent[s][rank]) for c in range(2)]
    assert y.ravel().tolist() == expected and np.array_equal(back, x)
    dsc.finalize()


def take_chunks(rank, n):
    world = start(rank, n)
    for mapping in ("copy", "reduce", "scatter", "gather", "gather_reduce", "reduce_scatter"):
        for dim, direction in ((0, "forward"), (1, "backward"), (0, "backward"), (1, "forward")):
            takes_part = mapping in IN_OF_PART if direction == "forward" else mapping in ("scatter", "reduce_scatter")
            shape = [4 * n, 6 * n]
            shape[dim] //= n if takes_part else 1
            x = draw(world, shape, False, 7)
            whole = world.tensor_map(x, mapping, dim, direction=direction)
            out = np.full(whole.shape, np.nan)
            works = [
                world.tensor_map(x, mapping, dim, direction=direction, out=out, chunk=(chunk, 3), async_op=True)
                for chunk in range(3)
            ]
            for work in works:
                work.wait()
            assert np.array_equal(out, whole), (mapping, dim, direction)
    dsc.finalize()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_chunks_add_up_to_the_whole(n):
    dsc.spawn(take_chunks, n, args=(n,), timeout=SECONDS)


def test_an_exchange_of_unequal_parts_and_back():
    dsc.spawn(exchange_unevenly, 3, args=(3,), timeout=SECONDS)


def use_every_form(rank, n):
    world = start(rank, n)
    x = np.full((4, 2), rank, np.float32)
    assert world.tensor_map(x, "copy") is x
    assert world.tensor_map(x, "reduce", direction="backward") is x
    out = np.empty((4, 4), np.float32)
    assert world.tensor_map(x, "gather", out=out) is out and out.tolist() == [[0, 0, 1, 1]] * 4
    work = world.tensor_map(x, "reduce_scatter", 0, out=(half := np.empty((2, 2), np.float32)), async_op=True)
    work.wait()
    assert half.tolist() == [[1, 1]] * 2
    made = []

    def empty(shape, dtype):
        made.append((shape, dtype))
        return np.empty(shape, dtype)

    world.tensor_map(x, "gather", 0, empty=empty)
    assert made == [((8, 2), "float32")]
    shared = world.empty((4, 2), "float32")
    np.asarray(shared)[:] = rank
    assert np.asarray(world.tensor_map(shared, "gather")).tolist() == [[0, 0, 1, 1]] * 4
    raised = 0
    for error, words, arguments, options in WRONG:
        with pytest.raises(error, match=words):
            world.tensor_map(x, *arguments, **options)
        raised += 1
    assert world.tensor_map(x, "gather").shape == (4, 4)  # the ranks still run the same operations
    dsc.finalize()
    return raised


WRONG = [
    (ValueError, r"mapping is 'gathr'; expected one of copy, reduce, .* \(did you mean 'gather'\?\)", ("gathr",), {}),
    (ValueError, "direction is 'backwards'; expected one of forward, backward", ("gather",), {"direction": "backwards"}),
    (ValueError, "dim is 2; expected -2 to 1", ("gather", 2), {}),
    (TypeError, "dim is 1.5; expected an integer", ("gather", 1.5), {}),
    (ValueError, "parts has 3 sizes; expected 2, one per rank", ("gather",), {"parts": [1, 1, 1]}),
    (ValueError, r"parts\[1\] is -1", ("gather",), {"parts": [3, -1]}),
    (ValueError, "x has 2 elements along dimension 1; expected [13], the part of rank", ("gather",), {"parts": [1, 3]}),
    (ValueError, "x has 4 elements along dimension 0; expected 5, the sum of the parts", ("scatter", 0), {"parts": [2, 3]}),
    (ValueError, "other_parts is given; expected None, except for all_to_all", ("gather",), {"other_parts": [1, 1]}),
    (ValueError, "only one of parts and other_parts is given", ("all_to_all",), {"parts": [1, 1]}),
    (ValueError, "dim is 0, the sequence dimension", ("sequence_to_hidden", 0), {}),
    (ValueError, "out is None; expected an array, because with async_op", ("gather",), {"async_op": True}),
    (ValueError, r"out has shape \(2, 8\); expected \(4, 4\)", ("gather",), {"out": np.empty((2, 8), np.float32)}),
    (ValueError, "out is None; expected an array, because chunk is given", ("gather",), {"chunk": (0, 2)}),
    (TypeError, "chunk is 3; expected a pair", ("gather",), {"chunk": 3, "out": np.empty((4, 4), np.float32)}),
    (dsc.InvalidArgError, "chunk is 2, expected 0 to 1", ("gather",), {"chunk": (2, 2), "out": np.empty((4, 4), np.float32)}),
    (ValueError, "out has 8 elements; expected 16", ("gather",), {"out": np.empty((2, 4), np.float32)}),
    (ValueError, "out has element type f64; expected f32", ("gather",), {"out": np.empty((4, 4), np.float64)}),
]


def test_every_form_and_every_wrong_argument():
    assert dsc.spawn(use_every_form, 2, args=(2,), timeout=SECONDS) == [len(WRONG)] * 2


def ask_for_three(rank, n):
    world = start(rank, n)
    with pytest.raises(ValueError, match="x has 4 elements along dimension 0; expected a multiple of 3, the number of ranks"):
        world.tensor_map(np.zeros((4, 2)), "scatter", 0)
    dsc.finalize()


def test_a_size_that_the_ranks_do_not_divide():
    dsc.spawn(ask_for_three, 3, args=(3,), timeout=SECONDS)


def test_ranges():
    assert [dsc.split_range(10, 4, part) for part in range(4)] == [range(0, 3), range(3, 6), range(6, 8), range(8, 10)]
    assert dsc.split_range(12, 4, 1) == range(3, 6)
    with pytest.raises(dsc.InvalidArgError, match="part is 4, expected 0 to 3"):
        dsc.split_range(10, 4, 4)
