"""The mappings of libdsc.megatron give the numbers that Megatron-LM gave, with arrays and with torch tensors."""

import importlib.util
import itertools
import sys

import numpy as np
import pytest

import libdsc as dsc
import libdsc.megatron as mpu
from test_ranks import ranks
from test_vectors import array, rows, same, start

SECONDS = 120
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
FUNCTIONS = {
    "_CopyToModelParallelRegion": mpu.copy_to_tensor_model_parallel_region,
    "_ReduceFromModelParallelRegion": mpu.reduce_from_tensor_model_parallel_region,
    "_ScatterToModelParallelRegion": mpu.scatter_to_tensor_model_parallel_region,
    "_GatherFromModelParallelRegion": mpu.gather_from_tensor_model_parallel_region,
    "_ScatterToSequenceParallelRegion": mpu.scatter_to_sequence_parallel_region,
    "_GatherFromSequenceParallelRegion": mpu.gather_from_sequence_parallel_region,
    "_ReduceScatterToSequenceParallelRegion": mpu.reduce_scatter_to_sequence_parallel_region,
    "_AllGatherFromTensorParallelRegion": mpu.all_gather_last_dim_from_tensor_parallel_region,
    "_ReduceScatterToTensorParallelRegion": mpu.reduce_scatter_last_dim_to_tensor_parallel_region,
    "_AllToAll": mpu.all_to_all,
    "all_to_all_sp2hp": mpu.all_to_all_sp2hp,
    "all_to_all_hp2sp": mpu.all_to_all_hp2sp,
}
KINDS = 13  # number of mappings; gather_from_sequence_parallel_region counts twice, because it has two modes


def kinds(n):
    return {(row["fn"], str(row.get("args"))) for row in rows("mg_mappings", n=n)}


def mapped(row, rank, x):
    """Returns the result of the function that a row names, over the tensor-parallel group."""
    function = FUNCTIONS[row["fn"]]
    if row["fn"] == "_AllToAll":
        outputs, inputs = row["output_splits"], row["input_splits"]
        return function(None, x, outputs and outputs[rank], inputs and inputs[rank])
    named = {name: row[name] for name in ("output_split_sizes", "input_split_sizes") if row.get(name)}
    return function(x, *row.get("args", []), **named)


def map_arrays(rank, n):
    start(rank, n)
    mpu.initialize_model_parallel(n)
    done = set()
    for row in rows("mg_mappings", n=n):
        x = array(row["x"][rank])
        same(mapped(row, rank, x), array(row["y"][rank]))
        done.add((row["fn"], str(row.get("args"))))
    dsc.finalize()
    return done, "torch" in sys.modules


@pytest.mark.parametrize("n", [1, 2, 4])
def test_arrays(n):
    found = dsc.spawn(map_arrays, n, args=(n,), timeout=SECONDS)
    assert len(kinds(n)) >= KINDS and found == [(kinds(n), False)] * n


def map_tensors(rank, n):
    import torch

    start(rank, n)
    mpu.initialize_model_parallel(n)
    done = 0
    for row, dtype in itertools.product(rows("mg_mappings", n=n), (torch.float32, torch.bfloat16)):
        x = torch.from_numpy(array(row["x"][rank])).to(dtype).requires_grad_()
        y = mapped(row, rank, x)
        same(y.detach().float(), array(row["y"][rank]))
        if "gy" in row:
            y.backward(torch.from_numpy(array(row["gy"][rank])).to(dtype))
            same(x.grad.float(), array(row["gx"][rank]))
            done += 1
    dsc.finalize()
    return done


@needs_torch
@pytest.mark.parametrize("n", [1, 2, 4])
def test_tensors_and_their_gradients(n):
    gradients = 2 * sum("gy" in row for row in rows("mg_mappings", n=n))
    assert gradients > 20 and dsc.spawn(map_tensors, n, args=(n,), timeout=SECONDS) == [gradients] * n


def plain_losses(n):
    return rows("mg_vocab_ce", n=n, label_smoothing=0.0)


def losses(rank, n, with_torch):
    start(rank, n)
    mpu.initialize_model_parallel(n)
    for row in plain_losses(n):
        tokens, columns = row["T"], row["V"] // n
        logits = np.array(row["logits_full"], np.float32).reshape(tokens, n, columns)[:, rank].copy()
        expected = np.array(row["grad"][rank]).reshape(tokens, columns)
        if with_torch:
            import torch

            x = torch.from_numpy(logits).requires_grad_()
            loss = mpu.vocab_parallel_cross_entropy(x, torch.tensor(row["target"]))
            loss.backward(torch.tensor(row["grad_output"]))
            np.testing.assert_allclose(x.grad, expected, rtol=1e-5, atol=1e-6)
            loss = loss.detach()
        else:
            loss = mpu.vocab_parallel_cross_entropy(logits, np.array(row["target"]))
        np.testing.assert_allclose(loss, row["loss"], rtol=1e-5)
    dsc.finalize()


@pytest.mark.parametrize("n", [1, 2, 4])
def test_losses(n):
    assert plain_losses(n)
    dsc.spawn(losses, n, args=(n, False), timeout=SECONDS)


@needs_torch
@pytest.mark.parametrize("n", [1, 2, 4])
def test_losses_of_tensors_and_their_gradients(n):
    dsc.spawn(losses, n, args=(n, True), timeout=SECONDS)


def differentiates_twice(world):
    """Tests tensors with gaps, a subclass, and the gradient of a gradient, which is the forward step again."""
    import torch

    group = world.split(0)
    x = torch.nn.Parameter(torch.full((3, 2), world.rank + 1.0).T)
    seed = torch.ones(2 * world.size, 3, requires_grad=True)
    y = mpu.gather_from_sequence_parallel_region(x, True, group)
    (gradient,) = torch.autograd.grad(y, x, seed, create_graph=True)
    (again,) = torch.autograd.grad(gradient, seed, torch.full((2, 3), world.rank + 5.0))
    rows_back = mpu.all_to_all_hp2sp(mpu.all_to_all_sp2hp(torch.ones(2, 3, 2 * world.size, requires_grad=True), group), group)
    rows_back.sum().backward()
    return y[:, 0].tolist(), gradient[0, 0].item(), again[:, 0].tolist(), tuple(rows_back.shape)


@needs_torch
def test_gradients_of_gradients():
    whole, sums = [1.0, 1.0, 2.0, 2.0], [5.0, 5.0, 6.0, 6.0]
    assert ranks(2, differentiates_twice) == [(whole, 2.0, sums, (6, 4))] * 2


def uses_wrong_arguments(world):
    x = np.ones((2, 3), np.float32)
    with pytest.raises(dsc.StateError, match="not initialized; expected initialize_model_parallel"):
        mpu.copy_to_tensor_model_parallel_region(x)
    with pytest.raises(ValueError, match="input_split_sizes is None; expected both output_split_sizes_ and input_split_sizes"):
        mpu.all_to_all(world, x, [1, 1])
    with pytest.raises(ValueError, match="output_split_sizes_ is None; expected both output_split_sizes_ and input_split_sizes"):
        mpu.all_to_all(world, x, input_split_sizes=[1, 1])
    with pytest.raises(ValueError, match="3 elements along dimension 1; expected a multiple of 2"):
        mpu.scatter_to_tensor_model_parallel_region(x, world)
    assert mpu.copy_to_tensor_model_parallel_region(x, world) is x
    return mpu.reduce_scatter_to_sequence_parallel_region(x, world, [2, 0]).tolist()


def test_wrong_arguments_and_a_group_of_ones_own():
    assert ranks(2, uses_wrong_arguments) == [[[2.0, 2.0, 2.0]] * 2, []]
