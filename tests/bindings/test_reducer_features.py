"""Features of reducers other than plain iterations, on one host and on two."""

import json
import math
import time
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import libdsc as dsc
from reducer_ranks import SIZES, bfloat16, close, compare, everywhere, gradients, iterate, means, reducer_of, same, wide


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
    with reducer_of(world) as reducer:  # only one rank uses a view
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
        old[...] = 7  # the reducer must no longer read this memory
        reducer.begin()
        for i, grad in enumerate(gradients(world.rank, 2)):
            reducer.mark_ready(i, grad)
        reducer.finish()
        compare(world, [reducer.grad_view(0)], means(world.size, 2)[:1])


def closing_is_told_at_once(world):
    """Closing is reported immediately, even though a view of the reducer's memory still exists.

    The view stays readable.
    """
    reducer = reducer_of(world)
    grads = gradients(world.rank, 0)
    iterate(reducer, grads)
    view = reducer.grad_view(0)
    leaver = world.size - 1
    if world.rank == leaver:
        reducer.close()
        reducer.close()
        with pytest.raises(dsc.BadHandleError, match="begin: the reducer was closed"):
            reducer.begin()
    elif world.size > 1:
        began = time.monotonic()
        with pytest.raises(dsc.PeerLeftError, match=f"rank {leaver}"):
            iterate(reducer, gradients(world.rank, 1))
        assert time.monotonic() - began < 20  # well below the time-out of 60 s
    compare(world, [view], means(world.size, 0)[:1] if world.rank == leaver else [view])
    del reducer
    view[...] = 7
    world.barrier()


def finds_unused_parameters(world):
    with reducer_of(world, find_unused=True) as reducer:
        for step in range(3):
            grads = gradients(world.rank, step)
            kept = grads[3].copy()
            reducer.begin()
            used = [0, 2, 4] if world.rank % 2 == 0 else [0, 2]  # some ranks use parameter 4, no rank uses 1 and 3
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
    marks = (4, 2, 2, 1, 0, 2, 0)  # parameter 2 is used three times, parameter 3 never

    def backward(reducer, step):
        """Each use adds its part of the gradient. The last use completes it."""
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
            if step == 2 and world.size > 1:  # some marks have already started buckets
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
        with pytest.raises(dsc.StateError, match="graph has changed.*parameter 2 was marked once more, expected 3 marks, as"):
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
        for i in (4, 2, 2, 1, 0, 0):  # one use less than before
            reducer.mark_ready(i, grads[i])
        with pytest.raises(dsc.StateError, match="parameter 2"):
            reducer.finish()


def static_graphs_without_communication(world):
    """Iterations without communication run before, between and after the reduced iterations."""
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
        iterate(reducer, grads)  # no old sums are left
        compare(world, grads, means(world.size, 4))
        reducer.begin()
        with pytest.raises(dsc.StateError, match="an iteration is open"):
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
                reducer.mark_unused(i)  # unused here, but its sums of earlier iterations are reduced
            else:
                reducer.mark_ready(i)
        reducer.finish()
        close(views, [a + b for a, b in zip(means(world.size, 0), means(world.size, 1))], 1e-5)


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
        with pytest.raises(dsc.StateError, match="no longer exists"):
            reducer.clip(1.0)
        iterate(reducer, grads := gradients(world.rank, 0))
        assert reducer.clip(1e9, norm="max") == np.abs(flat).max()
        # Another group has the other half of the model. Parameter 2 is tied and counted there.
        shards = world.split(0, world.rank, name="shards")
        counted = [i != 2 for i in range(len(SIZES))]
        rest = np.concatenate([g for i, g in enumerate(expected) if i != 2]).astype(np.float64)
        many = math.sqrt(world.size * (rest**2).sum())
        assert reducer.clip(shards=shards, counted=counted) == pytest.approx(many, rel=1e-12)
        iterate(reducer, grads)
        if world.size > 1:
            with pytest.raises(dsc.DscError, match="clip to"):
                reducer.clip(1.0 + world.rank)
    with reducer_of(world) as reducer:
        bad = gradients(world.rank, 1)
        bad[2][3] = np.nan
        iterate(reducer, bad)
        assert math.isnan(reducer.clip(norm="max"))
        views = np.zeros(100, np.float32)
        with dsc.BucketReducer(world, [np.zeros(50, np.float32)]) as sliced:
            iterate(sliced, [views[10:60]])
            assert sliced.clip(1.0) == 0  # the array that was sliced still exists
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


def wrong_arguments_can_be_put_right(world):
    """A collective call that fails on one rank changes nothing there, and the other ranks wait for the corrected
    call."""
    floats = np.full(4, world.rank, np.float32)
    last = world.rank == world.size - 1
    with reducer_of(world, buffers=[floats]) as reducer:
        grads = gradients(world.rank, 0)
        iterate(reducer, grads)
        wrong = (
            (lambda: reducer.clip(0), 'max_norm is 0, expected more than 0'),
            (lambda: reducer.clip(1.0, norm="tow"), 'norm is "tow"; expected one of "two", "max"'),
            (lambda: reducer.clip("1"), "max_norm is '1'; expected a number"),
            (lambda: reducer.clip(norm=7), 'norm is 7; expected "two" or 2, or "max"'),
            (lambda: reducer.sync_buffers("avg"), 'how is "avg"; expected one of "broadcast", "mean"'),
            (lambda: reducer.set_hook(3), "hook is a int"),
            (lambda: dsc.Join([reducer, None]), r"reducers is \[.*\]; expected a BucketReducer, or a list of one or more"),
            (lambda: dsc.Join(reducer, throw_on_early_termination="no"), "throw_on_early_termination is 'no'; expected True or False"),
            (lambda: reducer_of(world, find_unused="no"), "find_unused is 'no'; expected True or False"),
        )
        for call, text in wrong if last else ():
            with pytest.raises((TypeError, ValueError), match=text):
                call()
        assert reducer.clip(1.0) > 1
        reducer.sync_buffers("mean")
        assert np.allclose(floats, (world.size - 1) / 2)
        reducer.set_hook("fp16")
        reducer.set_hook(None)
        with dsc.Join(reducer):
            iterate(reducer, gradients(world.rank, 1))


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
        # The relations that hold for PyTorch's times too.
        overlap = stats["backward_compute_comm_overlap_time"]
        assert 0 <= overlap <= stats["backward_compute_time"] and overlap <= stats["backward_comm_time"]
        assert stats["backward_compute_time_end"] >= stats["backward_compute_time_start"] >= stats["forward_compute_time_start"]
        assert stats["backward_comm_time_end"] >= stats["backward_comm_time_start"] >= stats["backward_compute_time_start"]
        assert stats["avg_backward_comm_time"] > 0
        picture = ElementTree.fromstring(reducer.draw())
        titles = [node.text for node in picture.iter() if node.tag.endswith("title")]
        texts = [node.text for node in picture.iter() if node.tag.endswith("text")]
        assert {"gradient ready", "bucket being reduced", "exposed: after the last gradient"} <= set(texts)
        assert any(text.endswith(" ms") for text in texts) and not any(" us" in text for text in texts + titles)
        assert len(titles) == len(SIZES) + len(reducer.buckets) and reducer._repr_html_().startswith("<svg")
        reducer.begin()
        with pytest.raises(dsc.StateError, match="an iteration is open"):
            reducer.stats()
        for i, grad in enumerate(gradients(world.rank, 0)):
            reducer.mark_ready(i, grad)
        reducer.finish()


def sparse_gradients(world):
    """A sparse embedding of 10 rows of 3 elements, between two plain parameters."""
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
                stats = reducer.stats()
                assert stats["num_sparse_parameter_tensors"] == 1 and stats["total_parameter_size_bytes"] == 4 * (4 + 30 + 5)
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
    with dsc.BucketReducer(world, params, sparse=[1], static_graph=True) as reducer:
        for step in range(3):
            reducer.begin()
            if step == 0:
                with pytest.raises(dsc.InvalidArgError, match="is 11"):  # this gradient does not count
                    reducer.mark_sparse(1, [2, 11], np.ones((2, 3), np.float32))
            reducer.mark_sparse(1, [2], np.ones((1, 3), np.float32))
            reducer.mark_sparse(1, [5], np.ones((1, 3), np.float32))
            for i in (0, 2):
                reducer.mark_ready(i, np.zeros(params[i].shape, np.float32))
            reducer.finish()
            close(reducer.sparse(1), [[2, 5], np.ones((2, 3))])
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
        assert reducer.rebuilds == 0
        indices, values = reducer.sparse(1)
        close([indices, values], [[3, 4], [[2] * 3, [1] * 3]])
        reducer.begin()
        reducer.finish()
        assert len(reducer.sparse(1)[0]) == 0 and [i for i, _ in reducer.unused()] == [0, 1, 2]


test_rebuilds = everywhere(rebuilds_in_ready_order)
test_rebuilds_again = everywhere(rebuilds_again_when_the_order_stays_another)
test_old_views = everywhere(views_of_before_a_rebuild_stay_readable)
test_close = everywhere(closing_is_told_at_once)
test_put_right = everywhere(wrong_arguments_can_be_put_right)
test_unused = everywhere(finds_unused_parameters)
test_static_graph = everywhere(static_graphs_count_marks)
test_static_graph_no_sync = everywhere(static_graphs_without_communication)
test_no_sync = everywhere(no_sync_collects)
test_no_sync_in_views = everywhere(no_sync_in_views)
test_grad_dtype = everywhere(gradients_of_16_bits_are_summed_in_f32)
test_clip = everywhere(clips_by_the_norm_of_all)
test_buffers = everywhere(buffers_become_equal)
test_stats = everywhere(tells_and_draws)
test_sparse = everywhere(sparse_gradients)
