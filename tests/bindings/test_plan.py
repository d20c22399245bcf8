"""Planning functions through the Python package. The library's own tests have the recorded vectors."""

import numpy as np
import pytest

import libdsc as dsc

MIB = 1 << 20


def test_four_small_tensors_share_a_bucket():
    assert dsc.plan_buckets([100, 10, 50, 5], ["float32"] * 4, [MIB, 25 * MIB]) == [[0, 1, 2, 3]]
    half = [MIB // 8] * 5  # two fill the first bucket, and all others the second
    assert dsc.plan_buckets(half, ["float32"] * 5) == [[0, 1], [2, 3, 4]]


def test_limits_move_on_and_stay_at_the_last():
    assert dsc.plan_buckets([10] * 6, ["f32"] * 6, [40, 80]) == [[0], [1, 2], [3, 4], [5]]


def test_types_and_devices_are_kept_apart():
    dtypes = [np.float32, np.dtype("float64"), "float32", "float64"]
    assert dsc.plan_buckets([1, 1, 1, 1], dtypes, [MIB]) == [[0, 2], [1, 3]]
    devices = ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert dsc.plan_buckets([1] * 4, ["f32"] * 4, [MIB], devices=devices) == [[0, 2], [1, 3]]


def test_sparse_tensors_stand_alone_and_order_is_kept():
    sparse = [False, True, False]
    assert dsc.plan_buckets([1, 1, 1], ["f32"] * 3, [MIB], expect_sparse=sparse) == [[0, 2], [1]]
    assert dsc.plan_buckets([10, 10, 10], ["f32"] * 3, [80], order=[2, 0, 1]) == [[2, 0], [1]]


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        (([1, 2], ["f32"], [MIB]), ValueError, "dtypes has 1 entries; expected 2"),
        (([1], ["complex64"], [MIB]), TypeError, r"^dtypes\[0\] is 'complex64'"),
        (([-1], ["f32"], [MIB]), ValueError, r"numels\[0\] is -1; expected 0 to"),
        (([], [], [MIB]), dsc.InvalidArgError, ""),
        (([1], ["f32"], []), dsc.InvalidArgError, ""),
        (([2**61] * 2, ["f64"] * 2, [MIB]), dsc.OverflowError, ""),
    ],
)
def test_refusals(arguments, error, text):
    with pytest.raises(error, match=text):
        dsc.plan_buckets(*arguments)


@pytest.mark.parametrize("shards", [1, 3, 4])
def test_shards_cover_every_sample_once(shards):
    parts = [dsc.shard_indices(24, shards, shard, seed=5) for shard in range(shards)]
    assert all(part.dtype == np.int64 for part in parts)
    assert sorted(np.concatenate(parts)) == list(range(24))


def test_a_global_batch_does_not_depend_on_the_number_of_shards():
    alone = dsc.shard_indices(24, 1, 0, seed=7)
    four = np.stack([dsc.shard_indices(24, 4, shard, seed=7) for shard in range(4)])
    assert (four.T.reshape(-1) == alone).all()
    assert (alone != np.arange(24)).any()
    assert (dsc.shard_indices(24, 1, 0, seed=8) != alone).any()


def test_shards_of_equal_length():
    assert [len(dsc.shard_indices(10, 4, s, drop_last=True)) for s in range(4)] == [2] * 4
    assert [len(dsc.shard_indices(10, 4, s)) for s in range(4)] == [3] * 4
    assert list(dsc.shard_indices(5, 2, 1, shuffle=False)) == [1, 3, 0]


def test_shard_refusals():
    with pytest.raises(dsc.InvalidArgError):
        dsc.shard_indices(10, 4, 4)
    with pytest.raises(ValueError, match="count is -1; expected 0 to"):
        dsc.shard_indices(-1, 4, 0)


def test_without_numpy_it_is_a_list(monkeypatch):
    import sys

    expected = list(dsc.shard_indices(10, 2, 0))
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert dsc.shard_indices(10, 2, 0) == expected


def test_version_and_features():
    assert dsc.version()[:2] == (0, 1)
    assert dsc.feature("host") is True
    with pytest.raises(dsc.InvalidArgError, match="host"):
        dsc.feature("telepathy")
