"""Tied layers through the Python package."""

import gc

import numpy as np
import pytest

import libdsc as dsc
from test_ranks import ranks

STAGES = {"norm": [0, 1, 2], "embed": [0, 2], "alone": [1]}


def test_stages_of_keys():
    partition = dsc.partition_layers([1] * 6, 3)
    assert dsc.tied_stages(partition, {"head": [5], "embed": [0, 5, 1]}) == {"embed": [0, 2], "head": [2]}
    assert list(dsc.tied_stages(partition, {"b": [0], "a": [1], "c": [2]})) == ["a", "b", "c"]
    assert dsc.tied_stages([0, 2, 2, 4], {"x": [1, 2]}) == {"x": [0, 2]}
    assert dsc.tied_stages([0, 2], {}) == {}


@pytest.mark.parametrize(
    "boundaries, layers, error, text",
    [
        ([0, 2, 4], {"x": [4]}, dsc.InvalidArgError, r"layers\[0\] is 4, expected less than 4"),
        ([0, 2, 4], {"x": [1, 1]}, dsc.InvalidArgError, "layer 1 has key 'x' twice"),
        ([0, 2, 1], {"x": [0]}, dsc.InvalidArgError, r"boundaries\[2\] is 1"),
        ([0, 2], {"": [0]}, dsc.InvalidArgError, r"keys\[0\] is empty"),
        ([0], {"x": [0]}, dsc.InvalidArgError, "parts has 0 entries"),
        ([], {"x": [0]}, dsc.InvalidArgError, "parts has 0 entries"),
        ([0, 2], {"x": [-1]}, ValueError, r"layers\['x'\] is -1"),
        ([0, 2], {5: [0]}, TypeError, "a key of layers is 5; expected a string"),
    ],
)
def test_stages_are_refused(boundaries, layers, error, text):
    with pytest.raises(error, match=text):
        dsc.tied_stages(boundaries, layers)


def arrays(stage, dtype=np.float32):
    """Returns the weights of this stage, in an order that differs by stage."""
    keys = [key for key in STAGES if stage in STAGES[key]]
    made = {key: np.full((3, 2), 10 * stage + len(key), dtype) for key in (keys if stage % 2 else keys[::-1])}
    if "norm" in made:
        made["norm"] = [np.full(5, stage, dtype), np.full(7, -stage, np.float64)]
    return made


def ties(world):
    weights = arrays(world.rank)
    with dsc.TiedLayers(world, STAGES, weights) as tied:
        owners = {key: (tied.owner(key), tied.counts(key)) for key in STAGES}
        for _ in range(2):
            grads = arrays(world.rank)
            tied.reduce(grads)
    with pytest.raises(dsc.BadHandleError, match="reduce: the tied layers were closed"):
        tied.reduce(grads)
    tied.close()
    flat = {key: np.ravel(value[1] if key == "norm" else value)[0] for key, value in weights.items()}
    sums = {key: np.ravel(value[1] if key == "norm" else value)[0] for key, value in grads.items()}
    return owners, flat, sums


def test_weights_are_copied_and_gradients_summed():
    found = ranks(3, ties)
    for rank, (owners, weights, sums) in enumerate(found):
        assert owners == {"norm": (0, rank == 0), "embed": (0, rank == 0), "alone": (1, rank == 1)}
        assert weights["norm"] == 0 and sums["norm"] == -3
        if rank != 1:
            assert weights["embed"] == 5 and sums["embed"] == (0 + 5) + (20 + 5)
    assert found[1][1]["alone"] == found[1][2]["alone"] == 15


def ties_pipelines(world):
    """Two pipelines: ranks 3 and 1, and ranks 0 and 2."""
    stage = {3: 0, 1: 1, 0: 0, 2: 1}[world.rank]
    weight = np.full(4, float(world.rank))
    tied = dsc.TiedLayers(world, {"x": [0, 1]}, {"x": weight}, ranks=[[3, 1], [0, 2]])
    grad = np.full(4, 1.0 + world.rank)
    tied.reduce({"x": grad})
    assert tied.counts("x") == (stage == 0)
    del tied
    gc.collect()
    world.barrier()
    return weight[0], grad[0]


def test_pipelines():
    assert ranks(4, ties_pipelines) == [(0, 4), (3, 6), (0, 4), (3, 6)]


def disagrees(world):
    stages = dict(STAGES)
    if world.rank == 2:
        stages["embed"] = [1, 2]
    texts = []
    cases = [
        (stages, arrays(world.rank), {}),
        (STAGES, arrays(world.rank, np.float32 if world.rank else np.float64), {}),
        (STAGES, arrays(world.rank), {"sync": world.rank != 1}),
        (STAGES, {**arrays(world.rank), **({"extra": np.zeros(2)} if world.rank == 1 else {})}, {}),
        (STAGES, arrays(world.rank), {"ranks": [[0, 1, 1]]}),
    ]
    for given, weights, options in cases:
        with pytest.raises(dsc.DscError) as raised:
            dsc.TiedLayers(world, given, weights, **options)
        texts.append((type(raised.value).__name__, str(raised.value).split(": ", 1)[1]))
    with pytest.raises(ValueError, match="pipelines of \\[1, 2\\] stages"):
        dsc.TiedLayers(world, STAGES, arrays(world.rank), ranks=[[0], [1, 2]])
    tied = dsc.TiedLayers(world, STAGES, arrays(world.rank))
    with pytest.raises(ValueError, match="grads has {} arrays per key; expected {"):
        tied.reduce({})
    with pytest.raises(dsc.InvalidArgError, match="unknown key 'nothing'"):
        tied.owner("nothing")
    tied.reduce(arrays(world.rank))
    world.barrier()
    return texts


def test_ranks_that_disagree():
    found = ranks(3, disagrees)
    assert found[0] == found[1] == found[2]
    kinds, texts = zip(*found[0])
    assert kinds == ("MismatchError", "MismatchError", "MismatchError", "InvalidArgError", "InvalidArgError")
    assert "rank 0 passed key 'embed' on stages 0, 2, and rank 2 passed key 'embed' on stages 1, 2" in texts[0]
    assert "weights of key 'embed', but they are f64 [3, 2] on rank 0 and f32 [3, 2] on rank 2" in texts[1]
    assert "rank 1 passed sync = false" in texts[2]
    assert "rank 1: key 'extra' is on no stage" in texts[3]
    assert "rank 0: ranks has rank 1 twice" in texts[4]
