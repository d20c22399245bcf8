"""What reducers do beside plain iterations, on one host and over two."""

import json
import math
import os
import socket
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import libdsc as dsc

SECONDS = 120
SIZES = [30, 5, 70, 12, 1]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def on_rank(rank, n, port, name):
    """Runs a function of this file on one rank; with a port, half of the ranks are on another host."""
    if port:
        per_host = n // 2
        local = {"LOCAL_RANK": rank % per_host, "LOCAL_WORLD_SIZE": per_host, "MASTER_PORT": port}
        os.environ.update({key: str(number) for key, number in local.items()})
        os.environ.update(DSC_HOST_ID=f"host-{rank // per_host}", DSC_TOKEN="ab" * 32, MASTER_ADDR="127.0.0.1")
    world = dsc.init_distributed(init_timeout=60, timeout=60)
    found = globals()[name](world)
    dsc.finalize()
    return found


def everywhere(function):
    """On one rank, on three of one host, and on four of two hosts."""

    @pytest.mark.parametrize("n, hosts", [(1, 1), (3, 1), (4, 2)])
    def test(n, hosts):
        port = free_port() if hosts > 1 else 0
        for found in dsc.spawn(on_rank, n, args=(n, port, function.__name__), timeout=SECONDS):
            assert found is None or found, found

    test.__doc__ = function.__doc__
    return test


def gradients(rank, step, sizes=None, dtype=np.float32):
    random = np.random.default_rng(1000 * step + rank)
    return [random.standard_normal(size).astype(dtype) for size in sizes or SIZES]


def means(n, step, sizes=None):
    """Each gradient times 1 / n, in rank order, in f32."""
    total = None
    for rank in range(n):
        scaled = [np.float32(1 / n) * g for g in gradients(rank, step, sizes)]
        total = scaled if total is None else [a + b for a, b in zip(total, scaled)]
    return total


def same(got, expected):
    assert all(np.array_equal(a, b) for a, b in zip(got, expected)), (got, expected)


def close(got, expected, rtol=1e-6):
    assert all(np.allclose(a, b, rtol=rtol, atol=rtol) for a, b in zip(got, expected)), (got, expected)


def reducer_of(world, sizes=None, **options):
    options.setdefault("bucket_bytes", 200)
    options.setdefault("first_bucket_bytes", 40)
    return dsc.BucketReducer(world, [np.zeros(size, np.float32) for size in sizes or SIZES], **options)


def iterate(reducer, grads, order=None):
    reducer.begin()
    for i in order or reversed(range(len(grads))):
        reducer.mark_ready(i, grads[i])
    reducer.finish()


# Sums between hosts are made by host first, so that only one host gives the bits of the reference.
def compare(world, got, expected):
    (same if world.local_size == world.size else close)(got, expected)


def rebuilds_in_ready_order(world):
    order = [2, 0, 4, 1, 3]
    with reducer_of(world) as reducer:
        planned = reducer.buckets
        for step in range(3):
            grads = gradients(world.rank, step)
            iterate(reducer, grads, order)
            compare(world, grads, means(world.size, step))
        assert planned == [[3, 4], [2], [1], [0]] or planned != reducer.buckets
        assert [i for bucket in reducer.buckets for i in sorted(bucket, key=order.index)] == order and reducer.rebuilds == 1
        stats = reducer.stats()
        assert stats["has_rebuilt_buckets"] == 1
        assert stats["prev_iteration_grad_ready_order_indices"] == ", ".join(map(str, order))
    for kept in ({"rebuild": "never"}, {"buckets": [[4, 3], [2, 1, 0]]}, {"find_unused": True}):
        with reducer_of(world, **kept) as reducer:
            for step in range(2):
                iterate(reducer, gradients(world.rank, step), order)
            assert reducer.rebuilds == 0
    with reducer_of(world) as reducer:  # one rank has a view
        view = reducer.grad_view(1) if world.rank == 0 else None
        for step in range(2):
            iterate(reducer, gradients(world.rank, step), order)
        assert reducer.rebuilds == 0 and (view is None or view is reducer.grad_view(1))


def rebuilds_again_when_the_order_stays_another(world):
    first, second = [2, 0, 4, 1, 3], [0, 1, 2, 3, 4]
    with reducer_of(world, rebuild="repeated") as reducer:
        for step, order in enumerate([first, first, second, first, second, second, second, second]):
            grads = gradients(world.rank, step)
            iterate(reducer, grads, order)
            compare(world, grads, means(world.size, step))
            assert reducer.rebuilds == (1 if step < 6 else 2), step


def views_of_before_a_rebuild_stay_readable(world):
    with reducer_of(world) as reducer:
        iterate(reducer, gradients(world.rank, 0), [2, 0, 4, 1, 3])
        old = reducer.grad_view(0)
        compare(world, [old], means(world.size, 0)[:1])
        grads = gradients(world.rank, 1)
        iterate(reducer, grads)
        new = reducer.grad_view(0)
        assert new.__array_interface__["data"] != old.__array_interface__["data"]
        compare(world, [new], means(world.size, 1)[:1])
        old[...] = 7  # memory that nobody reads any more
        reducer.begin()
        for i, grad in enumerate(gradients(world.rank, 2)):
            reducer.mark_ready(i, grad)
        reducer.finish()
        compare(world, [reducer.grad_view(0)], means(world.size, 2)[:1])


def finds_unused_parameters(world):
    with reducer_of(world, find_unused=True) as reducer:
        for step in range(3):
            grads = gradients(world.rank, step)
            kept = grads[3].copy()
            reducer.begin()
            used = [0, 2, 4] if world.rank % 2 == 0 else [0, 2]  # 4 on some ranks, 1 and 3 on none
            for i in used:
                reducer.mark_ready(i, grads[i])
            if step == 1:
                reducer.mark_unused(3)
            reducer.finish()
            expected = means(world.size, step)
            compare(world, [grads[0], grads[2]], [expected[0], expected[2]])
            assert np.array_equal(grads[3], kept)
            assert reducer.unused() == [(1, "parameter 1"), (3, "parameter 3")]
            some = sum(np.float32(1 / world.size) * gradients(r, step)[4] for r in range(0, world.size, 2))
            close([reducer.grad_view(4)], [some])
        unused = [1, 3] if world.rank % 2 == 0 else [1, 3, 4]
        assert reducer.stats()["unused_parameter_size"] == 4 * sum(SIZES[i] for i in unused)


def static_graphs_count_marks(world):
    marks = (4, 2, 2, 1, 0, 2, 0)  # parameter 2 is used three times, 3 never

    def backward(reducer, step):
        """Each use adds its part of the gradient, which is complete with the last one."""
        whole = gradients(world.rank, step)
        grads = [np.zeros_like(g) for g in whole]
        reducer.begin()
        for at, i in enumerate(marks):
            last = i not in marks[at + 1 :]
            grads[i][...] = whole[i] if last else 99
            reducer.mark_ready(i, grads[i])
        return grads

    def check(grads, step):
        compare(world, [grads[i] for i in (0, 1, 2, 4)], [means(world.size, step)[i] for i in (0, 1, 2, 4)])
        assert not grads[3].any()

    with reducer_of(world, static_graph=True) as reducer:
        for step in range(4):
            grads = backward(reducer, step)
            if step == 2 and world.size > 1:  # the marks so far have started buckets
                assert sum(s.count for s in reducer.op_stats() if s.op == "all_reduce") > 0
            reducer.finish()
            check(grads, step)
            assert reducer.unused() == [(3, "parameter 3")]
            assert reducer.rebuilds == (0 if step == 0 else 1)  # one iteration later than without static_graph
        assert reducer.stats()["prev_iteration_grad_ready_order_indices"] == "4, 1, 2, 0"
        grads = backward(reducer, 9)
        with pytest.raises(dsc.StateError, match="graph has changed.*parameter 3 has a gradient"):
            reducer.mark_ready(3, gradients(world.rank, 0)[3])
        with pytest.raises(dsc.StateError, match="graph has changed.*parameter 2 is unused, expected 3 marks"):
            reducer.mark_unused(2)
        with pytest.raises(dsc.StateError, match="ready only once"):
            reducer.mark_ready(2, grads[2])
        reducer.finish()
        check(grads, 9)
        grads = gradients(world.rank, 10)
        reducer.begin()
        reducer.mark_ready(2, grads[2])
        with pytest.raises(dsc.InvalidArgError, match="expected the same memory"):
            reducer.mark_ready(2, grads[2].copy())
        for i in (4, 2, 1, 0, 2, 0):
            reducer.mark_ready(i, grads[i])
        reducer.finish()
        reducer.begin()
        for i in (4, 2, 2, 1, 0, 0):  # a use less
            reducer.mark_ready(i, grads[i])
        with pytest.raises(dsc.StateError, match="parameter 2"):
            reducer.finish()


def static_graphs_without_communication(world):
    """Iterations that are not reduced come before, between and after those that count."""
    with reducer_of(world, static_graph=True) as reducer:
        for step in range(4):
            with reducer.no_sync():
                collected = gradients(world.rank, step)
                reducer.begin()
                for i in (4, 2, 2, 1, 0, 3):
                    reducer.mark_ready(i, collected[i])
                reducer.finish()
            grads = gradients(world.rank, step + 10)
            reducer.begin()
            for i in (4, 2, 2, 1, 0, 3):
                reducer.mark_ready(i, grads[i])
            reducer.finish()
            close(grads, [a + b for a, b in zip(means(world.size, step), means(world.size, step + 10))], 1e-5)


def no_sync_collects(world):
    with reducer_of(world) as reducer:
        sums = [np.zeros(size, np.float32) for size in SIZES]
        for step in range(3):
            operations = sum(s.count for s in reducer.op_stats())
            with reducer.no_sync():
                grads = gradients(world.rank, step)
                kept = [g.copy() for g in grads]
                iterate(reducer, grads)
            same(grads, kept)
            assert sum(s.count for s in reducer.op_stats()) == operations
            sums = [a + b for a, b in zip(sums, grads)]
        last = gradients(world.rank, 3)
        iterate(reducer, last)
        expected = [sum(x) for x in zip(*(means(world.size, step) for step in range(4)))]
        close(last, expected, 1e-5)
        grads = gradients(world.rank, 4)
        iterate(reducer, grads)  # nothing is left of the sums
        compare(world, grads, means(world.size, 4))
        reducer.begin()
        with pytest.raises(dsc.StateError, match="an iteration runs"):
            with reducer.no_sync():
                pass
        for i, grad in enumerate(gradients(world.rank, 5)):
            reducer.mark_ready(i, grad)
        reducer.finish()


def no_sync_in_views(world):
    with reducer_of(world) as reducer:
        views = [reducer.grad_view(i) for i in range(len(SIZES))]
        for step in range(2):
            with reducer.no_sync():
                reducer.begin()
                for i, grad in enumerate(gradients(world.rank, step)):
                    if step == 0:
                        views[i][...] = grad
                    else:
                        views[i] += grad
                    reducer.mark_ready(i)
                reducer.finish()
        reducer.begin()
        for i in range(len(SIZES)):
            if i == 1:
                reducer.mark_unused(i)  # what was collected counts
            else:
                reducer.mark_ready(i)
        reducer.finish()
        close(views, [a + b for a, b in zip(means(world.size, 0), means(world.size, 1))], 1e-5)


def bfloat16(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def wide(values):
    return (values.astype(np.uint32) << 16).view(np.float32)


def gradients_of_16_bits_are_summed_in_f32(world):
    params = [np.zeros(size, np.uint16) for size in SIZES]
    with dsc.BucketReducer(world, params, bucket_bytes=200, dtype="bf16", grad_dtype="f32") as reducer:
        steps = []
        for step in range(3):
            grads = [bfloat16(g) for g in gradients(world.rank, step)]
            steps.append([[wide(bfloat16(g)) for g in gradients(r, step)] for r in range(world.size)])
            if step < 2:
                with reducer.no_sync():
                    iterate(reducer, grads)
        iterate(reducer, grads)
        for i in range(len(SIZES)):
            total = None
            for rank in range(world.size):
                own = (steps[0][rank][i] + steps[1][rank][i]) + steps[2][rank][i]
                scaled = own * np.float32(1 / world.size)
                total = scaled if total is None else total + scaled
            assert reducer.grad_view(i).dtype == np.float32
            compare(world, [reducer.grad_view(i)], [total])
            compare(world, [grads[i]], [bfloat16(reducer.grad_view(i))])
    with pytest.raises(dsc.UnsupportedError, match="cannot be kept as grad_dtype"):
        dsc.BucketReducer(world, params, dtype="bf16", grad_dtype="i32")


def clips_by_the_norm_of_all(world):
    with reducer_of(world) as reducer:
        with pytest.raises(dsc.StateError, match="no gradients to clip"):
            reducer.clip(1.0)
        grads = gradients(world.rank, 0)
        iterate(reducer, grads)
        expected = [g.copy() for g in grads]
        flat = np.concatenate(expected).astype(np.float64)
        norm = np.sqrt((flat**2).sum())
        assert reducer.clip() == pytest.approx(norm, rel=1e-12)
        same(grads, expected)
        assert reducer.clip(1.0, scale=0.5) == pytest.approx(norm / 2, rel=1e-12)
        close(grads, [g * (0.5 / (norm / 2 + 1e-6)) for g in expected])
        close([reducer.grad_view(0)], [grads[0]])
        iterate(reducer, gradients(world.rank, 0))
        with pytest.raises(dsc.StateError, match="no longer exist"):
            reducer.clip(1.0)
        iterate(reducer, grads := gradients(world.rank, 0))
        assert reducer.clip(1e9, norm="max") == np.abs(flat).max()
        # Another group holds the other half of the model; parameter 2 is tied and counted there.
        shards = world.split(0, world.rank, name="shards")
        counted = [i != 2 for i in range(len(SIZES))]
        rest = np.concatenate([g for i, g in enumerate(expected) if i != 2]).astype(np.float64)
        many = math.sqrt(world.size * (rest**2).sum())
        assert reducer.clip(shards=shards, counted=counted) == pytest.approx(many, rel=1e-12)
        bad = gradients(world.rank, 1)
        if world.rank == world.size - 1:
            bad[3][5] = np.inf
        iterate(reducer, bad)
        kept = [g.copy() for g in bad]
        assert not math.isfinite(reducer.clip(1.0))
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(bad, kept))


def buffers_become_equal(world):
    ints, floats = np.full(3, world.rank, np.int64), np.full(4, world.rank, np.float32)
    with reducer_of(world, buffers={"seen": ints, "mean": floats}) as reducer:
        reducer.sync_buffers("mean")
        assert (ints == 0).all() and np.allclose(floats, (world.size - 1) / 2)
        ints += world.rank
        floats[...] = world.rank
        reducer.sync_buffers()
        assert (ints == 0).all() and (floats == 0).all()
        assert reducer.stats()["broadcast_buffers"] == 1
    with reducer_of(world) as reducer:
        with pytest.raises(dsc.StateError, match="no buffers"):
            reducer.sync_buffers()
        if world.size > 1:
            with pytest.raises(dsc.MismatchError, match=r"buffers\['a'\]"):
                reducer.set_buffers({"a": np.zeros(2 + world.rank, np.float32)})


def hooks_of_functions(world):
    seen = []

    def hook(bucket):
        seen.append((bucket.index, bucket.params, bucket.is_last))
        for gradient in bucket.gradients():
            gradient /= bucket.divisor
        yield bucket.comm.all_reduce(bucket.buffer, async_op=True)
        seen.append(bucket.index)
        bucket.buffer *= 2
        yield bucket.comm.all_reduce(np.zeros(1, np.float32), async_op=True)

    with reducer_of(world, hook=hook, rebuild="never") as reducer:
        grads = gradients(world.rank, 0)
        iterate(reducer, grads)
        close(grads, [2 * m for m in means(world.size, 0)])
        buckets = reducer.buckets
        assert [s for s in seen if isinstance(s, tuple)] == [
            (b, bucket, b == len(buckets) - 1) for b, bucket in enumerate(buckets)
        ]
        assert sorted(s for s in seen if isinstance(s, int)) == list(range(len(buckets)))
        assert reducer.stats()["comm_hook"].endswith("hook")
        reducer.set_hook(None)
        grads = gradients(world.rank, 1)
        iterate(reducer, grads)
        compare(world, grads, means(world.size, 1))


def a_hook_that_raises_ends_the_reducer_everywhere(world):
    def hook(bucket):
        if world.rank == world.size - 1 and bucket.index == 1:
            raise ZeroDivisionError("of the hook")
        bucket.buffer /= bucket.divisor
        return bucket.comm.all_reduce(bucket.buffer, async_op=True)

    with reducer_of(world, hook=hook) as reducer:
        grads = gradients(world.rank, 0)
        expected = ZeroDivisionError if world.rank == world.size - 1 else dsc.DscError
        with pytest.raises(expected) as told:
            iterate(reducer, grads)
        if world.rank != world.size - 1 and world.local_size == world.size:
            assert "hook" in str(told.value) and f"rank {world.size - 1}" in str(told.value), told.value
        with pytest.raises((dsc.DscError, ZeroDivisionError)):
            reducer.begin()
    world.barrier()


def built_in_hooks(world):
    n = world.size
    for name, bound in {
        "allreduce": 1e-6,
        "fp16": 2e-3,
        "bf16": 2e-2,
        "fp8": 0.15,
        "fp8(exponent_bits=5, block=16)": 0.3,
        "int8": 0.03,
        "int4(block=8)": 0.4,
        "topk(ratio=1)": 1e-6,
        "bf16(topk(ratio=1))": 2e-2,
        "powersgd": 1e-6,
        "local_sgd(start_iteration=5)": 1e-6,
    }.items():
        with reducer_of(world, hook=name) as reducer:
            for step in range(3):
                grads = gradients(world.rank, step)
                iterate(reducer, grads)
                for got, expected in zip(grads, means(n, step)):
                    assert np.abs(got - expected).max() <= bound * max(1, np.abs(expected).max()), (name, step)
            copies = world.all_gather_object([g.tobytes() for g in grads])
            assert all(copy == copies[0] for copy in copies), name  # the same bits on all ranks
    with pytest.raises(dsc.InvalidArgError, match='did you mean "powersgd"'):
        reducer_of(world, hook="powersdg")
    if n > 1:
        with pytest.raises(dsc.ConfigError, match="the hook is"):
            reducer_of(world, hook="fp16" if world.rank == 0 else "bf16")


def error_feedback_sums_up(world):
    """What a hook leaves out comes later: the mean over many steps of equal gradients converges."""
    for name in ("onebit", "topk(ratio=0.2)", "powersgd(start_iteration=0)", "int4(error_feedback=1)"):
        params = [np.zeros((8, 10), np.float32), np.zeros(6, np.float32)]
        with dsc.BucketReducer(world, params, hook=name) as reducer:
            total, steps = [np.zeros_like(p, np.float64) for p in params], 60
            own = [np.random.default_rng(world.rank).standard_normal(p.shape).astype(np.float32) for p in params]
            exact = world.all_gather_object(own)
            exact = [sum(np.float64(g[i]) for g in exact) / world.size for i in range(2)]
            for _ in range(steps):
                grads = [g.copy() for g in own]
                iterate(reducer, grads)
                total = [t + g for t, g in zip(total, grads)]
            for t, e in zip(total, exact):
                assert np.abs(t / steps - e).max() < 0.25 * np.abs(e).max() + 0.05, name


def states_of_hooks_go_on(world):
    params = [np.zeros((8, 10), np.float32), np.zeros(6, np.float32)]

    def step_of(reducer, step):
        random = np.random.default_rng(10 * step + world.rank)
        grads = [random.standard_normal(p.shape).astype(np.float32) for p in params]
        iterate(reducer, grads)
        return grads

    for name in ("onebit", "topk", "powersgd(start_iteration=1)", "int8(error_feedback=1)", "local_sgd(start_iteration=3)"):
        with dsc.BucketReducer(world, params, hook=name, rebuild="never") as reducer:
            for step in range(3):
                step_of(reducer, step)
            state = reducer.save_hook()
            expected = [step_of(reducer, step) for step in (3, 4)]
        with dsc.BucketReducer(world, params, hook=name, rebuild="never") as reducer:
            reducer.load_hook(state)
            for step, wanted in zip((3, 4), expected):
                same(step_of(reducer, step), wanted)
            with pytest.raises(dsc.InvalidArgError):
                reducer.load_hook(state[:-1])
    with dsc.BucketReducer(world, params, hook="onebit") as reducer:
        with pytest.raises(dsc.InvalidArgError, match="expected one of onebit"):
            reducer.load_hook(state)


def tells_and_draws(world):
    with reducer_of(world) as reducer:
        with pytest.raises(dsc.StateError, match="nothing to draw"):
            reducer.draw()
        assert reducer._repr_html_() is None
        for step in range(4):
            iterate(reducer, gradients(world.rank, step))
        stats = reducer.stats()
        assert stats["iteration"] == 4 and stats["num_parameter_tensors"] == len(SIZES)
        assert stats["total_parameter_size_bytes"] == 4 * sum(SIZES) and json.dumps(stats)
        # The invariants of PyTorch's own times.
        overlap = stats["backward_compute_comm_overlap_time"]
        assert 0 <= overlap <= stats["backward_compute_time"] and overlap <= stats["backward_comm_time"]
        assert stats["backward_compute_time_end"] >= stats["backward_compute_time_start"] >= stats["forward_compute_time_start"]
        assert stats["backward_comm_time_end"] >= stats["backward_comm_time_start"] >= stats["backward_compute_time_start"]
        assert stats["avg_backward_comm_time"] > 0
        picture = ElementTree.fromstring(reducer.draw())
        titles = [node.text for node in picture.iter() if node.tag.endswith("title")]
        assert len(titles) == len(SIZES) + len(reducer.buckets) and reducer._repr_html_().startswith("<svg")
        reducer.begin()
        with pytest.raises(dsc.StateError, match="an iteration runs"):
            reducer.stats()
        for i, grad in enumerate(gradients(world.rank, 0)):
            reducer.mark_ready(i, grad)
        reducer.finish()


def sparse_gradients(world):
    """An embedding of 10 rows of 3, and a plain parameter before and behind it."""
    n = world.size
    params = [np.zeros(4, np.float32), np.zeros((10, 3), np.float32), np.zeros(5, np.float32)]

    def rows_of(rank, step):
        random = np.random.default_rng(100 * step + rank)
        count = 0 if step == 2 and rank == 0 else rank + 2
        return random.integers(0, 10, count), random.standard_normal((count, 3)).astype(np.float32)

    for coalesce in (True, False):
        with dsc.BucketReducer(world, params, sparse=[1], coalesce_sparse=coalesce) as reducer:
            assert [1] in reducer.buckets
            for step in range(3):
                reducer.begin()
                grads = [np.full(4, world.rank, np.float32), None, np.full(5, world.rank, np.float32)]
                reducer.mark_ready(2, grads[2])
                reducer.mark_sparse(1, *rows_of(world.rank, step))
                reducer.mark_ready(0, grads[0])
                reducer.finish()
                indices, values = reducer.sparse(1)
                every = [rows_of(rank, step) for rank in range(n)]
                all_indices = np.concatenate([i for i, _ in every])
                all_values = np.concatenate([v * np.float32(1 / n) for _, v in every])
                if not coalesce:
                    assert np.array_equal(indices, all_indices) and np.array_equal(values, all_values)
                    continue
                assert np.array_equal(indices, np.unique(all_indices))
                for index, value in zip(indices, values):
                    total = None
                    for row in all_values[all_indices == index]:
                        total = row if total is None else total + row
                    assert np.array_equal(value, total)
                close([grads[0][:1]], [[(n - 1) / 2]])
    with dsc.BucketReducer(world, params, sparse=[1], find_unused=True) as reducer:
        with reducer.no_sync():
            reducer.begin()
            reducer.mark_sparse(1, [3], np.ones((1, 3), np.float32))
            reducer.finish()
        reducer.begin()
        with pytest.raises(dsc.InvalidArgError, match=r"indices\[1\] is 10, expected 0 to 9"):
            reducer.mark_sparse(1, [0, 10], np.ones((2, 3), np.float32))
        with pytest.raises(ValueError, match="expected 6 of f32: 2 rows of 3"):
            reducer.mark_sparse(1, [0, 1], np.ones((2, 4), np.float32))
        with pytest.raises(dsc.InvalidArgError, match="parameter 0 has no sparse gradients|no sparse"):
            reducer.mark_sparse(0, [0], np.ones(1, np.float32))
        with pytest.raises(dsc.InvalidArgError, match="has sparse gradients"):
            reducer.mark_ready(1, np.zeros((10, 3), np.float32))
        reducer.mark_sparse(1, [3, 4], np.ones((2, 3), np.float32))
        reducer.finish()
        indices, values = reducer.sparse(1)
        close([indices, values], [[3, 4], [[2] * 3, [1] * 3]])
        reducer.begin()
        reducer.finish()
        assert len(reducer.sparse(1)[0]) == 0 and [i for i, _ in reducer.unused()] == [0, 1, 2]


def ranks_with_fewer_batches(world):
    """Rank r has r + 1 batches; two reducers, of which one has unused parameters, buffers, and a hook."""
    n, params = world.size, [np.full(size, world.rank, np.float32) for size in SIZES]
    buffer = np.zeros(2, np.float32)
    with reducer_of(world, find_unused=True, buffers=[buffer]) as first, reducer_of(world, hook="bf16") as second:
        with dsc.Join([first, second], params) as join:
            for step in range(world.rank + 1):
                buffer[...] = world.rank
                first.sync_buffers()
                assert (buffer == step).all(), buffer  # of the lowest rank that has batches
                grads = gradients(world.rank, step)
                first.begin()
                for i in (0, 2, 4):
                    first.mark_ready(i, grads[i])
                first.finish()
                active = range(step, n)
                expected = [sum(np.float32(1 / n) * gradients(r, step)[i] for r in active) for i in range(len(SIZES))]
                close([grads[i] for i in (0, 2, 4)], [expected[i] for i in (0, 2, 4)])
                assert [i for i, _ in first.unused()] == [1, 3]
                grads = gradients(world.rank, step)
                iterate(second, grads)
                close(grads, expected, 3e-2)
        assert join.last_rank == n - 1 and all((p == n - 1).all() for p in params)
        grads = gradients(world.rank, 7)
        iterate(second, grads)  # all ranks again, without a join
        close(grads, means(n, 7), 3e-2)


def joins_divide_by_who_is_there(world):
    n = world.size
    with reducer_of(world) as reducer:
        with dsc.Join(reducer, divide_by_initial_world_size=False):
            for step in range(world.rank + 1):
                grads = gradients(world.rank, step)
                iterate(reducer, grads)
                there = range(step, n)
                expected = [
                    sum(np.float32(1 / len(there)) * gradients(r, step)[i] for r in there) for i in range(len(SIZES))
                ]
                close(grads, expected)


def joins_that_end_all_ranks_early(world):
    n = world.size
    with reducer_of(world) as reducer:
        join = dsc.Join(reducer, throw_on_early_termination=True)
        steps = 0
        try:
            with join:
                for step in range(2 + (world.rank > 0)):
                    iterate(reducer, gradients(world.rank, step))
                    steps += 1
        except dsc.StateError as error:
            assert n > 1 and "rank 0 has no more batches" in str(error)
        else:
            assert n == 1
        assert steps == 2 + (n == 1 and world.rank > 0)
        grads = gradients(world.rank, 9)
        iterate(reducer, grads)  # nothing is broken
        compare(world, grads, means(n, 9))
        with dsc.Join(reducer) as again:
            with pytest.raises(dsc.StateError, match="another join"):
                dsc.Join(reducer)
            iterate(reducer, gradients(world.rank, 1))
        assert again.last_rank == n - 1


test_rebuilds = everywhere(rebuilds_in_ready_order)
test_rebuilds_again = everywhere(rebuilds_again_when_the_order_stays_another)
test_old_views = everywhere(views_of_before_a_rebuild_stay_readable)
test_unused = everywhere(finds_unused_parameters)
test_static_graph = everywhere(static_graphs_count_marks)
test_static_graph_no_sync = everywhere(static_graphs_without_communication)
test_no_sync = everywhere(no_sync_collects)
test_no_sync_in_views = everywhere(no_sync_in_views)
test_grad_dtype = everywhere(gradients_of_16_bits_are_summed_in_f32)
test_clip = everywhere(clips_by_the_norm_of_all)
test_buffers = everywhere(buffers_become_equal)
test_hooks_of_functions = everywhere(hooks_of_functions)
test_hook_that_raises = everywhere(a_hook_that_raises_ends_the_reducer_everywhere)
test_built_in_hooks = everywhere(built_in_hooks)
test_error_feedback = everywhere(error_feedback_sums_up)
test_hook_states = everywhere(states_of_hooks_go_on)
test_stats = everywhere(tells_and_draws)
test_sparse = everywhere(sparse_gradients)
test_join = everywhere(ranks_with_fewer_batches)
test_join_divisor = everywhere(joins_divide_by_who_is_there)
test_join_early_end = everywhere(joins_that_end_all_ranks_early)
