"""Replays runs that were recorded with PyTorch's DistributedDataParallel: gradients, buckets, hooks, logs and joins."""

import contextlib
import json
import pathlib

import numpy as np
import pytest

import libdsc as dsc

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 120
MIB = 1 << 20
DTYPES = {"f32": np.float32, "f64": np.float64}
# PyTorch orders these buckets by a hash map, libdsc by their first tensors
UNDEFINED_ORDER = ("mixed_dtype", "mixed_dtype_first")
# DDP logs what it knew at the beginning of an iteration. stats() returns what is known at its end.
SAME_IN_STATS = ("num_parameter_tensors", "total_parameter_size_bytes", "bucket_cap_bytes", "bucket_sizes")
LATE_IN_LOGS = ("prev_iteration_grad_ready_order_indices", "rebuilt_bucket_sizes", "rebuilt_per_bucket_param_indices")


def rows(name, **wanted):
    lines = (ROOT / "tests" / "vectors" / f"{name}.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [row for row in found if "_meta" not in row and all(row.get(key) == value for key, value in wanted.items())]


def start():
    return dsc.init_distributed(init_timeout=60, timeout=60)


class Replay:
    """Replays a recorded run on one rank."""

    def __init__(self, world, run):
        self.world, self.run, self.calls, self.collects = world, run, [], False
        self.in_view = bool(run["kw"].get("gradient_as_bucket_view"))
        find_unused = bool(run["kw"].get("find_unused_parameters"))
        cap = run["cap_bytes"] or 25 * MIB
        first = run["first_bytes"] or (MIB if run["cap_bytes"] is None else cap)
        params = [np.zeros(size, DTYPES[dtype]) for size, dtype in zip(run["sizes"], run["dtypes"])]
        self.reducer = dsc.BucketReducer(
            world,
            params,
            bucket_bytes=cap,
            first_bucket_bytes=first,
            average="pytorch",
            sync=False,
            single_first_bucket=not find_unused,
            find_unused=find_unused,
            static_graph=bool(run["kw"].get("static_graph")),
            small_bucket_first=not run.get("last_bucket_cap"),
            hook=self.hook if any(step["hook"] for step in run["steps"]) else None,
        )
        self.grads = [None] * len(params)
        self.shapes = [(p.size, p.dtype) for p in params]

    def hook(self, bucket):
        """Does what the recorded hook did: divides, then sums."""
        self.calls.append([bucket.index, len(bucket.buffer), bucket.is_last, [len(g) for g in bucket.gradients()]])
        bucket.buffer /= bucket.divisor
        return bucket.comm.all_reduce(bucket.buffer, async_op=True)

    def uses(self, step, i):
        if self.run["use"] is None:
            return True
        of_rank = self.run["use"][self.world.rank]
        return of_rank[step % len(of_rank)][i] == 1

    def play(self):
        for number, step in enumerate(self.run["steps"]):
            if step["err"]:
                return  # DDP raises the error here that libdsc's finish() raised in the iteration before
            self.calls.clear()
            with self.reducer.no_sync() if step["no_sync"] else contextlib.nullcontext():
                self.iterate(number, step)
            self.compare(number, step)
        self.reducer.close()

    def iterate(self, number, step):
        values = self.run["grad"][self.world.rank]
        value = values[number % len(values)]
        kept = step.get("kept", False)
        before = list(self.grads) if kept else [None] * len(self.grads)
        self.reducer.begin()
        for i in reversed(self.run["order"]):
            if not self.uses(number, i):
                self.grads[i] = before[i]
                continue
            new = np.full(*self.shapes[i][:1], value, self.shapes[i][1])
            self.give(i, new, before[i], step)
        self.collects = step["no_sync"]
        if not step["no_sync"] and self.expects_failure(number):
            with pytest.raises(dsc.StateError, match="did not receive a gradient"):
                self.reducer.finish()
            return
        self.reducer.finish()
        if not step["no_sync"]:
            self.take_results()

    def expects_failure(self, number):
        later = self.run["steps"][number + 1 :]
        return bool(later) and later[0]["err"]

    def give(self, i, new, before, step):
        """Stores a gradient as PyTorch accumulates it: in .grad, which may be the view."""
        total = new if before is None else before + new
        self.grads[i] = total.copy()
        if self.in_view and (step.get("kept") or step.get("zeroed_view")):
            self.reducer.grad_view(i)[...] = total
            self.reducer.mark_ready(i)
        elif step["no_sync"] or self.collects:
            self.reducer.mark_ready(i, new)
        else:
            self.reducer.mark_ready(i, self.grads[i])

    def take_results(self):
        unused = {i for i, _ in self.reducer.unused()}
        for i in range(len(self.grads)):
            if i not in unused:
                self.grads[i] = self.reducer.grad_view(i, copy=True)

    def compare(self, number, step):
        grads = step["grads"]
        if isinstance(grads[0], list):
            grads = grads[self.world.rank]
        for i, bits in enumerate(grads):
            got = self.grads[i]
            if bits is None:
                assert got is None, (self.run["name"], number, i, got)
            else:
                expected = np.array([bits], np.uint32).view(np.float32)[0]
                assert (got.astype(np.float32).view(np.uint32) == bits).all(), (self.run["name"], number, i, got, expected)
        calls = self.calls
        if self.run["name"] in UNDEFINED_ORDER:
            calls = self.in_recorded_order(calls, step["hook"])
        assert calls == step["hook"], (self.run["name"], number, calls, step["hook"])
        self.compare_log(number, step)

    @staticmethod
    def in_recorded_order(calls, recorded):
        """Sorts the buckets in the recorded order. The order of buckets that were not filled may differ."""
        sizes = [call[3] for call in recorded]
        ordered = sorted(calls, key=lambda call: sizes.index(call[3]))
        return [[i, call[1], i == len(calls) - 1, call[3]] for i, call in enumerate(ordered)]

    def compare_log(self, number, step):
        log = step["log"][self.world.rank] if isinstance(step["log"], list) else step["log"]
        stats = self.reducer.stats()
        for key in SAME_IN_STATS:
            assert stats[key] == log[key], (self.run["name"], number, key, stats[key], log[key])
        assert [{"f32": "float", "f64": "double"}[name] for name in stats["dtypes"].split(", ")] == sorted(
            log["dtypes"].split(", "), reverse=True
        )
        if number + 1 < len(self.run["steps"]):
            following = self.run["steps"][number + 1]
            later = following["log"][self.world.rank] if isinstance(following["log"], list) else following["log"]
            self.compare_late(number, stats, later, following)

    def compare_late(self, number, stats, later, following):
        if self.run["steps"][number]["no_sync"] or following["no_sync"] or following["err"]:
            return
        order = LATE_IN_LOGS[0]
        assert stats[order] == later.get(order, stats[order]), (self.run["name"], number)
        # With views in .grad the buckets are not rebuilt here, and a single bucket with one parameter does not change.
        for key in LATE_IN_LOGS[1:]:
            if key in later and not self.in_view and len(self.run["sizes"]) > 1:
                got, recorded = stats[key], later[key]
                if self.run["name"] in UNDEFINED_ORDER:
                    got, recorded = sorted(got.split(", ")), sorted(recorded.split(", "))
                assert got == recorded, (self.run["name"], number, key, got, recorded)


def replay(rank, n):
    world = start()
    names = []
    for run in rows("pt_ddp_runs", ws=n):
        Replay(world, run).play()
        names.append(run["name"])
    dsc.finalize()
    return names


@pytest.mark.parametrize("n, runs", [(2, 23), (3, 4)])
def test_recorded_runs(n, runs):
    for names in dsc.spawn(replay, n, args=(n,), timeout=SECONDS):
        assert len(names) == runs, names


def hooked(rank, n):
    """Reduces one bucket of random numbers with each hook and without a hook."""
    world = start()
    (mine,) = rows("pt_join_hooks", kind="hook", hook="none", ws=n, rank=rank)
    found = {}
    for hook in (None, "allreduce", "fp16"):
        x = np.array(mine["inp"], np.uint32).view(np.float32)
        with dsc.BucketReducer(world, [np.zeros_like(x)], average="pytorch", hook=hook) as reducer:
            reducer(grads := [x])
        found[hook or "none"] = grads[0].view(np.uint32).tolist()
    dsc.finalize()
    return found


def floats(bits):
    return np.array(bits, np.uint32).view(np.float32)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_recorded_hooks(n):
    """Results of two ranks are equal bit for bit. With more ranks Gloo adds in another order and rounds f16 sums after
    each addition.

    libdsc's rule is explained in docs/buckets.md: it adds in rank order, and adds 16-bit types in f32 with one
    rounding.
    """
    expected = {row["hook"]: row["out"] for row in rows("pt_join_hooks", kind="hook", ws=n)}
    inputs = floats([row["inp"] for row in rows("pt_join_hooks", kind="hook", hook="none", ws=n)]).astype(np.float64)
    for found in dsc.spawn(hooked, n, args=(n,), timeout=SECONDS):
        for hook, unit in (("none", 2.0**-23), ("allreduce", 2.0**-23), ("fp16", 2.0**-10)):
            if n == 2:
                assert found[hook] == expected[hook], hook
                continue
            got, wanted = floats(found[hook]), floats(expected[hook])
            both = np.isfinite(got) & np.isfinite(wanted)
            # bounds the rounding errors of n additions of the inputs divided by n
            bound = unit * np.abs(inputs).sum(axis=0) + 2.0**-24
            assert (np.abs(got - wanted)[both] <= bound[both]).all(), hook
            assert both.all() or hook == "fp16"


def joined(rank, n):
    """Trains with r + 1 batches on rank r."""
    world = start()
    found = {}
    for initial in (True, False):
        params = [np.full(1, rank, np.float32)]
        with dsc.BucketReducer(world, params, average="pytorch", sync=False) as reducer:
            got = []
            with dsc.Join(reducer, params, divide_by_initial_world_size=initial) as join:
                for _ in range(rank + 1):
                    gradient = np.full(1, 10 * (rank + 1), np.float32)
                    reducer.begin()
                    reducer.mark_ready(0, gradient)
                    reducer.finish()
                    got.append(float(gradient[0]))
        (row,) = rows("pt_join_hooks", kind="join", ws=n, rank=rank, initial=initial)
        found[initial] = got, row["grads"]
        assert join.last_rank == n - 1 and params[0][0] == n - 1
    dsc.finalize()
    return found


@pytest.mark.parametrize("n", [2, 3, 4])
def test_recorded_joins(n):
    for found in dsc.spawn(joined, n, args=(n,), timeout=SECONDS):
        for got, expected in found.values():
            assert got == pytest.approx(expected, rel=1e-6)


def compress(rank, n):
    """Repeats three recorded rounds of DeepSpeed's compressed_allreduce. Its state must equal that of the hook."""
    world = start()
    done = 0
    for row in rows("ds_compressed_allreduce", n=n):
        with dsc.BucketReducer(world, [np.zeros(row["numel"], np.float32)], hook="onebit") as reducer:
            for number, step in enumerate(row["rounds"]):
                x = np.array(step["x"][rank], np.float32)
                reducer(grads := [x])
                expected = np.array(step["y"], np.float32)
                settled = np.abs(expected) > 1e-6
                assert np.allclose(grads[0][settled], expected[settled], rtol=1e-5), (n, number)
                done += 1
    dsc.finalize()
    return done


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_recorded_compression(n):
    rounds = 3 * len(rows("ds_compressed_allreduce", n=n))
    assert rounds > 0 and dsc.spawn(compress, n, args=(n,), timeout=SECONDS) == [rounds] * n
