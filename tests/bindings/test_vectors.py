"""Numbers that DeepSpeed, Megatron-LM and PyTorch gave, computed with this library's operations."""

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
    """Part r of a tensor is elements r * ceil(numel / n) on: the last parts may be short, or empty."""
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
    """With smoothing on one rank only: Megatron-LM smooths over the part of the vocabulary that a rank has."""
    assert dsc.spawn(lose_words, n, args=(n,), timeout=SECONDS) == [count] * n


# ---- Megatron-LM: the mappings of tensor parallelism --------------------------------------------------------------


class Mappings:
    """Those of one rank, on arrays; sizes along the first dimension may differ between ranks."""

    def __init__(self, world):
        self.world = world

    def same(self, x, sizes=None):
        return x

    def reduce(self, x, sizes=None):
        self.world.all_reduce(y := x.copy())
        return y

    def pieces(self, x, axis, sizes=None):
        at = self.world.size if sizes is None else np.cumsum(sizes)[:-1]
        return [np.ascontiguousarray(piece) for piece in np.split(x, at, axis)]

    def split(self, axis):
        return lambda x, sizes=None: self.pieces(x, axis, sizes)[self.world.rank]

    def gather(self, axis):
        def gathered(x, sizes=None):
            lengths = [x.shape[0]] * self.world.size if sizes is None else sizes
            parts = [np.empty((length, *x.shape[1:]), x.dtype) for length in lengths]
            self.world.all_gather(parts, np.ascontiguousarray(x))
            return np.concatenate(parts, axis)

        return gathered

    def reduce_scatter(self, axis):
        def scattered(x, sizes=None):
            pieces = self.pieces(x, axis, sizes)
            self.world.reduce_scatter(out := np.empty_like(pieces[self.world.rank]), pieces)
            return out

        return scattered

    def exchange(self, x, send, recv):
        """all_to_all() of rows: send[r] to rank r, recv[r] from it."""
        parts = [np.empty((length, *x.shape[1:]), x.dtype) for length in recv]
        self.world.all_to_all(parts, self.pieces(x, 0, send))
        return np.concatenate(parts, 0)

    def equal(self, x):
        return [len(x) // self.world.size] * self.world.size

    def to_hidden(self, x):
        """[tokens / n, hidden] to [tokens, hidden / n]."""
        stacked = np.concatenate(self.pieces(x, -1), 0)
        return self.exchange(stacked, self.equal(stacked), self.equal(stacked))

    def to_tokens(self, x):
        return np.concatenate(self.pieces(self.exchange(x, self.equal(x), self.equal(x)), 0), -1)

    def forward_and_backward(self, name, args):
        last, first = -1, 0
        by_name = {
            "_CopyToModelParallelRegion": (self.same, self.reduce),
            "_ReduceFromModelParallelRegion": (self.reduce, self.same),
            "_ScatterToModelParallelRegion": (self.split(last), self.gather(last)),
            "_GatherFromModelParallelRegion": (self.gather(last), self.split(last)),
            "_ScatterToSequenceParallelRegion": (self.split(first), self.gather(first)),
            "_GatherFromSequenceParallelRegion": (
                self.gather(first),
                self.reduce_scatter(first) if args == [True] else self.split(first),
            ),
            "_ReduceScatterToSequenceParallelRegion": (self.reduce_scatter(first), self.gather(first)),
            "_AllGatherFromTensorParallelRegion": (self.gather(last), self.reduce_scatter(last)),
            "_ReduceScatterToTensorParallelRegion": (self.reduce_scatter(last), self.gather(last)),
        }
        return by_name[name]

    def compute(self, row):
        """The result and, where the row has one, the gradient."""
        rank, name = self.world.rank, row["fn"]
        x, gradient = (array(row[key][rank]) if key in row else None for key in ("x", "gy"))
        if name == "all_to_all_sp2hp":
            return [self.to_hidden(x)]
        if name == "all_to_all_hp2sp":
            return [self.to_tokens(x)]
        if name == "_AllToAll":
            send = row["input_splits"][rank] if row["input_splits"] else self.equal(x)
            recv = row["output_splits"][rank] if row["output_splits"] else self.equal(x)
            return [self.exchange(x, send, recv), self.exchange(gradient, recv, send)]
        forward, backward = self.forward_and_backward(name, row["args"])
        sizes = row.get("output_split_sizes") or row.get("input_split_sizes")
        return [forward(x, sizes), backward(gradient, sizes)]


def array(described):
    return np.array(described["data"], np.float32).reshape(described["shape"])


def map_all(rank, n):
    mappings, names = Mappings(start(rank, n)), set()
    for row in rows("mg_mappings", n=n):
        for key, got in zip(("y", "gx"), mappings.compute(row)):
            same(got, array(row[key][rank]))
        names.add(row["fn"])
    dsc.finalize()
    return len(names)


@pytest.mark.parametrize("n", [2, 4])
def test_mappings_of_tensor_parallelism_from_plain_operations(n):
    assert dsc.spawn(map_all, n, args=(n,), timeout=SECONDS) == [12] * n


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
    """Gradients from the last to the first, each bucket closed by the parameter that crosses the limit."""
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
