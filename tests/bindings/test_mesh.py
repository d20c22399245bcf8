"""Meshes through the Python package. The library's own tests have the recorded vectors."""

import numpy as np
import pytest

import libdsc as dsc

SECONDS = 60


def mesh(**more):
    return dsc.Mesh({"tp": 2, "cp": 1, "ep": 1, "dp": 2, "pp": 2}, order="tp-cp-ep-dp-pp", **more)


def test_the_example_of_the_design():
    it = mesh()
    assert it.groups("tp-dp") == it.groups("dp-tp") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (it.size, it.order, it.axes["dp"]) == (8, "tp-cp-ep-dp-pp", 2)
    assert it.group(6, "tp-dp") == [4, 5, 6, 7]


def test_without_an_order_the_last_axis_is_the_fastest():
    it = dsc.Mesh({"pipe": 2, "data": 2, "model": 2})
    assert it.groups("pipe") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert it.groups("model") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert it.filter(pipe=0, data=1) == [2, 3]
    assert it.rank_name(3, omit=("data", "pipe")) == "model_01"
    assert it.rank_name(3, inner="+", outer=", ") == "pipe+00, data+01, model+01"


def test_ranks_and_coordinates():
    it = mesh(rank_offset=10)
    for rank in range(10, 18):
        assert it.rank(**it.coord(rank)) == rank
    assert it.coord(15) == {"tp": 1, "cp": 0, "ep": 0, "dp": 0, "pp": 1}
    assert [it.neighbor(10, "pp"), it.neighbor(10, "pp", -1), it.neighbor(10, "dp", 2)] == [14, 14, 10]
    assert [it.first(15, "pp"), it.last(11, "pp"), it.peer(11, "dp", 1)] == [11, 15, 13]


def test_what_the_world_leaves():
    assert dsc.Mesh({"tp": 2, "dp": -1}, "tp-dp", world_size=12).axes == {"tp": 2, "dp": 6}
    grids = [tuple(dsc.Mesh.default_grid(size).axes.items()) for size in (1, 7, 24, 36)]
    assert grids == [(("pipe", pipe), ("data", data)) for pipe, data in ((1, 1), (7, 1), (4, 6), (6, 6))]
    with pytest.raises(ValueError, match="^world_size is 0; expected 1 to"):
        dsc.Mesh.default_grid(0)


def test_parts_of_groups():
    it = dsc.Mesh({"dp": 8})
    assert it.levels("dp", (2, 4)) == [[[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 2, 4, 6], [1, 3, 5, 7]]]
    assert it.hybrid_groups("dp") == {2: [[0, 1], [2, 3], [4, 5], [6, 7]], 4: [[0, 1, 2, 3], [4, 5, 6, 7]]}
    assert [list(dsc.Mesh({"dp": n}).hybrid_groups("dp")) for n in (1, 2, 6, 12)] == [[], [], [2], [2, 4]]
    for n, size in ((3, 2), (10, 4)):
        with pytest.raises(dsc.InvalidArgError, match=f"^a group of axes .* has {n} ranks; expected a multiple of {size}"):
            dsc.Mesh({"dp": n}).hybrid_groups("dp")
    assert mesh().embedding_groups() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert mesh().position_embedding_groups() == [[0], [1], [2], [3]]


def test_plans():
    dense = mesh()
    experts = dense.experts(2, expert_tp=1)
    assert experts.axes == {"tp": 1, "cp": 1, "ep": 2, "dp": 2, "pp": 2}
    assert experts.groups("pp") == dense.groups("pp")
    whole = dense.plan(experts=experts)
    assert [group for group in whole if 3 in group.ranks] == dense.plan(experts=experts, rank=3)
    assert dsc.MeshGroup("mp", [0, 1, 4, 5]) in whole
    grid = dsc.Mesh({"pipe": 2, "data": 2})
    assert [name for name, _ in grid.plan("deepspeed", rank=0)] == ["ds_model", "dp", "pp", "slice"]


def refused(kind, words, call, *arguments, **more):
    with pytest.raises(kind) as caught:
        call(*arguments, **more)
    assert words in str(caught.value)


def test_refusals():
    it = mesh()
    refused(dsc.InvalidArgError, 'did you mean "tp"? (known: tp, cp, ep, dp, pp)', it.groups, "tq-dp")
    refused(dsc.InvalidArgError, 'did you mean "dp"?', it.filter, dpp=1)
    refused(dsc.InvalidArgError, "rank is 8, expected 0 to 7", it.coord, 8)
    refused(dsc.InvalidArgError, 'order leaves out the axis "pp"', dsc.Mesh, {"tp": 2, "pp": 2}, "tp")
    refused(dsc.OverflowError, "is too large", dsc.Mesh, {"tp": 2**30, "pp": 2**30})
    refused(dsc.InvalidArgError, "expected 1 to 32", dsc.Mesh, {})
    refused(dsc.InvalidArgError, "expected below the number of levels", it.levels, "dp", ())
    refused(ValueError, "the coordinate of cp, ep, dp, pp is missing", it.rank, tp=0)
    refused(ValueError, "dp is 2; expected 0 to 1", it.filter, dp=2)
    refused(TypeError, "axes is 3; expected a string", it.groups, 3)
    refused(ValueError, "position is 'middle'; expected 'first', 'last' or a number", it.broadcast_from, "pp", "middle", 0)


def tells_from(rank):
    world = dsc.init_distributed(init_timeout=30, timeout=30)
    it = dsc.Mesh({"tp": 2, "pp": 2}, order="tp-pp")
    told = [np.array([rank]) for _ in range(4)]
    for x, position in zip(told, ("first", "last", -2, 1)):
        assert it.broadcast_from("pp", position, x) is None
    it.broadcast_from("tp-pp", "last", both := np.array([rank]))
    assert it.comm("pp") is it.comm("pp", world) and it.comm("tp-pp") is it.comm("pp-tp")
    assert (it.comm("pp").name, it.comm("pp-tp").size) == ("pp", 4)
    it.comm("pp").close()
    again = it.comm("pp", timeout=20)
    again.barrier()
    dsc.finalize()
    return [int(x[0]) for x in told] + [int(both[0])]


def test_broadcast_from():
    assert dsc.spawn(tells_from, 4, timeout=SECONDS) == [
        [0, 2, 0, 2, 3],
        [1, 3, 1, 3, 3],
        [0, 2, 0, 2, 3],
        [1, 3, 1, 3, 3],
    ]


def gets_arrays(rank):
    world = dsc.init_distributed(init_timeout=30, timeout=30)
    it = dsc.Mesh({"tp": 2, "pp": 2}, order="tp-pp")
    x = np.arange(6, dtype=np.int64).reshape(2, 3) * (rank + 1) if rank >= 2 else None
    last = it.broadcast_array_from("pp", "last", x)
    assert (last is x) == (rank >= 2) and last.dtype == np.int64
    half = np.array([1, 2], np.uint16)
    first = world.broadcast_array(half if rank == 1 else "ignored", 1, "bf16")
    scalar = world.broadcast_array(np.array(2.5, np.float32))
    assert (scalar.shape, scalar[()], first.dtype, list(first)) == ((), 2.5, np.uint16, [1, 2])
    nothing = world.broadcast_array(np.empty((3, 0), bool), empty=lambda shape, dtype: np.ones(shape, dtype))
    assert (nothing.shape, nothing.dtype) == ((3, 0), bool)
    asked = []
    flat = world.broadcast_array(np.ones((2, 2)), 3, empty=lambda *call: asked.append(call) or np.empty(4))
    assert flat.sum() == 4 and asked == ([] if rank == 3 else [((2, 2), "float64")])
    dsc.finalize()
    return last.tolist()


def test_receivers_get_arrays_of_a_size_that_they_did_not_know():
    low, high = [[0, 3, 6], [9, 12, 15]], [[0, 4, 8], [12, 16, 20]]
    assert dsc.spawn(gets_arrays, 4, timeout=SECONDS) == [low, high, low, high]


def differs(rank):
    world = dsc.init_distributed(init_timeout=30, timeout=30)
    it = dsc.Mesh({"tp": 2, "dp": 1} if rank == 0 else {"tp": 1, "dp": 2}, order="tp-dp")
    try:
        it.comm("dp")
    except dsc.MismatchError as error:
        text = str(error)
    world.barrier()  # the communicator still works
    dsc.finalize()
    return text


def test_meshes_that_differ():
    words = 'expected the same mesh on all ranks, but it is "tp=2-dp=1 from rank 0" on rank 0 and "tp=1-dp=2'
    assert all(words in text for text in dsc.spawn(differs, 2, timeout=SECONDS))
