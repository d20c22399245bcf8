"""broadcast_data(): named arrays of one rank are sent to all ranks."""

import numpy as np
import pytest

import libdsc as dsc
from test_ranks import ranks

KEYS = ["text", "mask", "scalar", "deep"]
SHAPES = [(2, 300), (4, 0, 3), (), (1,) * 15 + (3,)]


def batch():
    made = {key: np.arange(np.prod(shape), dtype=np.int64).reshape(shape) for key, shape in zip(KEYS, SHAPES)}
    return made | {"others": np.zeros(3, np.float32)}


def gets(world, root):
    sent = batch() if world.rank == root else None
    got = world.broadcast_data(KEYS, sent, "int64", root)
    expected = batch()
    for key in KEYS:
        assert got[key].dtype == np.int64 and got[key].shape == expected[key].shape, key
        assert np.array_equal(got[key], expected[key]), key
    assert list(got) == KEYS
    is_own = all(got[key] is sent[key] for key in KEYS) if sent else None
    is_one_block = got["text"].base is got["deep"].base is not None and got["text"].flags.writeable
    return is_own if world.rank == root else is_one_block


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_batch_reaches_all_ranks(n):
    assert ranks(n, gets, 0) == [True] * n
    assert ranks(n, gets, n - 1) == [True] * n


def gets_floats(world):
    """Sends bf16 as uint16, a transposed array, and no key at all; receives into arrays of a custom allocator."""
    root, made = 1, []

    def empty(shape, dtype):
        made.append((shape, dtype))
        return np.empty(shape, np.uint16)

    halves = {"x": np.arange(6, dtype=np.uint16).reshape(2, 3).T}
    got = world.broadcast_data(["x"], halves if world.rank == root else {}, "bf16", root, empty=empty)
    assert world.broadcast_data([], None, np.float32) == {}
    return got["x"].tolist(), made


def test_other_types_and_memory():
    columns = [[0, 3], [1, 4], [2, 5]]
    assert ranks(2, gets_floats) == [(columns, [((3, 2), "bfloat16")]), (columns, [])]


WRONG = {
    "no data": (None, "rank 0: key 'a' has no tensor, expected a tensor of f32"),
    "no key": ({"a": np.zeros(2, np.float32)}, "rank 0: key 'b' has no tensor, expected a tensor of f32"),
    "another type": (
        {"a": np.zeros(2, np.float32), "b": np.zeros((2, 2))},
        "rank 0: key 'b' is f64 [2, 2], expected elements of f32",
    ),
    "too deep": (
        {"a": np.zeros(2, np.float32), "b": np.zeros((1,) * 17, np.float32)},
        "rank 0: key 'b' has 17 dimensions, expected at most 16",
    ),
}


def refuses(world):
    """All ranks get the error for the root's wrong data, and the communicator still works."""
    texts = []
    for data, _ in WRONG.values():
        with pytest.raises(dsc.InvalidArgError) as caught:
            world.broadcast_data(["a", "b"], data if world.rank == 0 else None, "float32")
        texts.append(str(caught.value))
    good = {key: np.full(3, 7, np.float32) for key in "ab"}
    return texts, float(world.broadcast_data(["a", "b"], good if world.rank == 0 else None, "f32")["b"].sum())


def test_the_root_s_data_is_wrong():
    for texts, total in ranks(3, refuses):
        for text, (_, expected) in zip(texts, WRONG.values()):
            assert expected in text
        assert total == 21


def refuses_lists(world):
    kind, texts = TypeError if world.rank == 0 else dsc.InvalidArgError, []
    for data in ({"a": [1.0, 2.0]}, 5):
        with pytest.raises(kind) as caught:
            world.broadcast_data(iter("a"), data, "float32")
        texts.append(str(caught.value))
    return texts


def test_what_only_python_refuses_is_told_to_all():
    here, there = ranks(2, refuses_lists)
    assert "data['a'] is a list; expected an array" in here[0] and "'int' is not iterable" in here[1]
    assert all("rank 0: key 'a' has no tensor" in text for text in there)


def differs(world):
    texts = []
    data = {key: np.zeros(1, np.float32) for key in "abc"}
    for keys, dtype, root in (
        (["a", "c" if world.rank == 1 else "b"], "f32", 0),
        (["a", "b"][: 2 - world.rank], "f32", 0),
        (["a"], ["f32", "f16"][world.rank], 0),
        (["a"], "f32", world.rank),
    ):
        with pytest.raises(dsc.MismatchError) as caught:
            world.broadcast_data(keys, data, dtype, root)
        texts.append(str(caught.value))
    world.barrier()
    return texts


def test_different_keys_are_named():
    words = [
        "key 1 is 'b' on rank 0 and 'c' on rank 1",
        "key 1 is 'b' on rank 0 and missing on rank 1",
        "dtype is f32 on rank 0 and f16 on rank 1",
        "root is 0 on rank 0 and 1 on rank 1",
    ]
    for texts in ranks(2, differs):
        assert all(word in text for word, text in zip(words, texts)), texts


def test_wrong_arguments():
    with dsc.init_distributed() as world:
        for keys, dtype, root, error, text in (
            ("text", "f32", 0, TypeError, "keys is one string, 'text'; expected a list of strings"),
            ([1], "f32", 0, TypeError, r"keys\[0\] is 1; expected a string"),
            (["a", "a"], "f32", 0, ValueError, "keys contains 'a' twice; expected each key once"),
            (["a"], "f31", 0, TypeError, "^dtype is 'f31'; expected one of bool"),
            (["a"], "f32", 1, ValueError, "root is 1"),
        ):
            with pytest.raises(error, match=text):
                world.broadcast_data(keys, {"a": np.zeros(1, np.float32)}, dtype, root)
