"""Recorded numbers of DeepSpeed, Megatron-LM and PyTorch, computed again with libdsc's operations."""

import itertools
import json

import numpy as np
import pytest
from conftest import ROOT

import libdsc as dsc

SECONDS = 120
HIGH_HALF = 16  # a bfloat16 is the upper half of a float


def rows(name, **wanted):
    lines = (ROOT / "tests" / "vectors" / f"{name}.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [row for row in found if "_meta" not in row and all(row.get(key) == value for key, value in wanted.items())]


def same(got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape and got.tobytes() == expected.astype(got.dtype).tobytes(), (got, expected)


def start(rank, n):
    world = dsc.init_distributed(init_timeout=60, timeout=60)
    assert (world.rank, world.size) == (rank, n)
    return world


# ---- DeepSpeed: reduce_scatter_coalesced() -----------------------------------------------------------------------


def average_parts(rank, n):
    """Part r of a tensor begins at element r * ceil(numel / n). The last parts may be shorter or empty."""
    world, done = start(rank, n), 0
    for row in rows("ds_reduce_scatter_coalesced", n=n):
        parts = []
        with world.batch():
            for numel, x in zip(row["numels"], row["x"][rank]):
                chunk = -(-numel // n)
                counts = [max(0, min(chunk, numel - r * chunk)) for r in range(n)]
                parts.append(np.empty(counts[rank], np.float32))
                world.reduce_scatter(parts[-1], np.array(x, np.float32), "avg", counts=counts)
        for part, expected in zip(parts, row["out"][rank]):
            same(part, np.array(expected, np.float32))
            done += 1
    dsc.finalize()
    return done


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_parts_of_several_tensors_are_averaged_together(n):
    tensors = sum(len(row["numels"]) for row in rows("ds_reduce_scatter_coalesced", n=n))
    assert tensors > 0 and dsc.spawn(average_parts, n, args=(n,), timeout=SECONDS) == [tensors] * n


# ---- Megatron-LM: vocab_parallel_cross_entropy() ------------------------------------------------------------------


def lose_words(rank, n):
    world, done = start(rank, n), 0
    for row in rows("mg_vocab_ce", n=n):
        whole = np.array(row["logits_full"], np.float32).reshape(row["T"], row["V"])
        logits = np.ascontiguousarray(np.split(whole, n, -1)[rank])
        targets, grads = np.array(row["target"]), np.array(row["grad_output"], np.float32)
        loss, entropy = world.vocab_cross_entropy(logits, targets, label_smoothing=row["label_smoothing"])
        np.testing.assert_allclose(loss, row["loss"], 1e-6, 1e-6)
        expected = np.array(row["grad"][rank]).reshape(logits.shape)
        np.testing.assert_allclose(entropy.backward(grads), expected, 1e-5, 2e-7)
        if row["label_smoothing"] == 0:
            np.testing.assert_allclose(loss, row["dense_loss"], 1e-6, 1e-6)
        done += 1
    dsc.finalize()
    return done


@pytest.mark.parametrize("n, count", [(1, 4), (2, 2), (4, 2)])
def test_cross_entropy_of_a_split_vocabulary(n, count):
    """With smoothing only on one rank, because Megatron-LM smooths over the rank's part of the vocabulary."""
    assert dsc.spawn(lose_words, n, args=(n,), timeout=SECONDS) == [count] * n


# ---- Megatron-LM: the mappings of tensor parallelism --------------------------------------------------------------


LAST, FIRST = -1, 0
MAPPINGS = {
    "_CopyToModelParallelRegion": ("copy", LAST),
    "_ReduceFromModelParallelRegion": ("reduce", LAST),
    "_ScatterToModelParallelRegion": ("scatter", LAST),
    "_GatherFromModelParallelRegion": ("gather", LAST),
    "_ScatterToSequenceParallelRegion": ("scatter", FIRST),
    "_GatherFromSequenceParallelRegion": ("gather_reduce", FIRST),
    "_ReduceScatterToSequenceParallelRegion": ("reduce_scatter", FIRST),
    "_AllGatherFromTensorParallelRegion": ("gather_reduce", LAST),
    "_ReduceScatterToTensorParallelRegion": ("reduce_scatter", LAST),
    "_AllToAll": ("all_to_all", FIRST),
    "all_to_all_sp2hp": ("sequence_to_hidden", LAST),
    "all_to_all_hp2sp": ("hidden_to_sequence", LAST),
}
TYPES = {"f32": np.float32, "f64": np.float64, "bf16": None}


def mapping_of(row, rank):
    """Returns the mapping, the dimension and the sizes of unequal parts."""
    mapping, dim = MAPPINGS[row["fn"]]
    if row["fn"] == "_GatherFromSequenceParallelRegion" and row["args"] != [True]:
        mapping = "gather"
    parts, other = row.get("output_split_sizes") or row.get("input_split_sizes"), None
    if row["fn"] == "_AllToAll" and row["input_splits"]:
        parts, other = row["input_splits"][rank], row["output_splits"][rank]
    return mapping, dim, {"parts": parts, "other_parts": other}


def array(described, dtype="f32"):
    values = np.array(described["data"], np.float32).reshape(described["shape"])
    return bfloat16(values) if dtype == "bf16" else values.astype(TYPES[dtype])


def map_all(rank, n):
    world, names = start(rank, n), set()
    for row, dtype in itertools.product(rows("mg_mappings", n=n), TYPES):
        mapping, dim, lists = mapping_of(row, rank)
        for source, result, direction in (("x", "y", "forward"), ("gy", "gx", "backward")):
            if source in row:
                x = array(row[source][rank], dtype)
                kept = x.copy()
                same(world.tensor_map(x, mapping, dim, direction=direction, dtype=dtype, **lists), array(row[result][rank], dtype))
                same(x, kept)
        names.add(row["fn"])
    dsc.finalize()
    return sorted(names)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_mappings_of_tensor_parallelism(n):
    found = dsc.spawn(map_all, n, args=(n,), timeout=SECONDS)
    assert found == [sorted({row["fn"] for row in rows("mg_mappings", n=n)})] * n and len(found[0]) == len(MAPPINGS)


# ---- Megatron-LM: sums of bfloat16 in f32, rounded once -----------------------------------------------------------


def bfloat16(values):
    bits = np.array(values, np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> HIGH_HALF).astype(np.uint16)


def sum_halves(rank, n):
    world = start(rank, n)
    for row in rows("mg_rs_fp32acc", n=n):
        out = np.empty(len(row["y"][rank]), np.uint16)
        world.reduce_scatter(out, bfloat16(row["x"][rank]), dtype="bf16")
        same(out, bfloat16(row["y"][rank]))
    dsc.finalize()


@pytest.mark.parametrize("n", [2, 4, 8])
def test_bfloat16_is_summed_in_f32_and_rounded_once(n):
    assert rows("mg_rs_fp32acc", n=n)
    dsc.spawn(sum_halves, n, args=(n,), timeout=SECONDS)


# ---- Megatron-LM: buckets without padding -------------------------------------------------------------------------


def test_buckets_of_megatron():
    """Gradients are taken from the last to the first. The parameter that exceeds the limit closes the bucket."""
    layouts = rows("mg_bucket_layout")
    assert len(layouts) >= 50
    for row in layouts:
        numels = row["numels"]
        limit = 4 * (row["bucket_size"] or sum(numels))
        buckets = dsc.plan_buckets(numels, ["float32"] * len(numels), [limit], order=list(reversed(range(len(numels)))))
        params, ends = [None] * len(numels), list(itertools.accumulate(sum(numels[i] for i in b) for b in buckets))
        for number, (bucket, begin) in enumerate(zip(buckets, [0, *ends])):
            for i in bucket:
                params[i] = [begin, begin + numels[i], number]
                begin += numels[i]
        assert params == row["default"]["params"], row["tag"]
        assert [[begin, end] for begin, end in zip([0, *ends], ends)] == row["default"]["buckets"]
