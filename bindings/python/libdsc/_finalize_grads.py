"""Completes gradients after the backward pass of a model that is divided over several groups of ranks."""

from __future__ import annotations

from typing import Any, Callable, Iterable, NamedTuple, Optional, Sequence

from libdsc import _buffers, _dtypes
from libdsc._arguments import INT64_MOST, expect_communicator, integer, real
from libdsc._communicator import Communicator
from libdsc._memory import array_over, numpy_module
from libdsc._raw import Dtype
from libdsc._lists import all_reduce_coalesced
from libdsc._trees import FLOATS
from libdsc._types import OpName

Group = Optional[Communicator]


class _Step(NamedTuple):
    """Arrays that one step reduces together, in place."""

    group: Group
    buffers: list[_buffers.Buffer]
    arrays: list[Any]
    op: OpName


def finalize_grads(
    grads: Sequence[Any] = (),
    *,
    reducers: Iterable[Any] = (),
    pipeline: Group = None,
    conditional_embedder: Sequence[Any] = (),
    tensor: Group = None,
    sequence_parallel: Sequence[Any] = (),
    averaged: Sequence[Any] = (),
    embedding: Group = None,
    word_embeddings: Sequence[Any] = (),
    position_embedding: Group = None,
    position_embeddings: Sequence[Any] = (),
    experts: Group = None,
    expert_biases: Sequence[Any] = (),
    expert_tokens: Sequence[Any] = (),
    bias_update_rate: float = 1e-3,
    data: Group = None,
    num_tokens: Optional[int] = None,
) -> Optional[int]:
    """Completes the gradients of a step, in Megatron-LM's order (core/distributed/finalize_model_grads.py). Collective.

    A step without arguments is skipped. All ranks of a group must pass the same number of arrays, with the same types
    and counts. The arrays are written in place; those of one step are reduced as one buffer. A rank outside a group
    passes None for the group, and no arrays. Arrays and groups are checked before anything is reduced.

    Args:
        grads: all gradients of this rank, which num_tokens scales. Numbers below are those of the steps.
        reducers: 1. what reduces gradients over the data-parallel ranks: objects with finish(), such as
            BucketReducer, or functions.
        pipeline: group of all stages.
        conditional_embedder: 2. gradients of a conditional embedder, which every stage has: summed over pipeline.
        tensor: group of the tensor-parallel ranks.
        sequence_parallel: 3. gradients of parameters that every tensor-parallel rank holds whole, but applies to only a
            part of the sequence or of the heads, such as those of layer norms: summed over tensor.
        averaged: gradients of such parameters that are averaged over tensor instead.
        embedding: group of the first and the last stage.
        word_embeddings: 4. gradients of the word embeddings that these stages share: summed.
        position_embedding: group of the stages that share position embeddings.
        position_embeddings: gradients of the position embeddings: summed.
        experts: group of the ranks that route tokens to the same experts: tensor, data and context parallel.
        expert_biases: 5. biases of routers, one array per layer. The bias of an expert that got fewer tokens than the
            mean grows by bias_update_rate; that of an expert that got more shrinks by it.
        expert_tokens: tokens that each expert got in this step, one array per layer; they become the sums over experts.
        bias_update_rate: the step size of expert_biases.
        data: group of the data-parallel and context-parallel ranks.
        num_tokens: 6. with a loss per token, the tokens of this step on the last stage; other stages pass 0. grads are
            divided by the sum over data, unless that is 0. None on all ranks: grads are not scaled.

    Returns:
        The sum of num_tokens, or None.
    """
    steps = [
        _step(pipeline, "pipeline", conditional_embedder, "conditional_embedder"),
        _step(tensor, "tensor", sequence_parallel, "sequence_parallel"),
        _step(tensor, "tensor", averaged, "averaged", "avg"),
        _step(embedding, "embedding", word_embeddings, "word_embeddings"),
        _step(position_embedding, "position_embedding", position_embeddings, "position_embeddings"),
    ]
    tokens = _step(experts, "experts", expert_tokens, "expert_tokens")
    biases = _biases(expert_biases, tokens.buffers)
    rate = real("bias_update_rate", bias_update_rate)
    scaling = _scaling(num_tokens, grads, pipeline, data)
    for reducer in reducers:
        getattr(reducer, "finish", reducer)()
    for step in [*steps, tokens]:
        _reduce(step)
    for bias, got in zip(biases, tokens.buffers):
        _update_bias(_numpy_over(bias), _numpy_over(got), rate)
    return scaling()


def _step(group: Group, group_name: str, arrays: Sequence[Any], argument: str, op: OpName = "sum") -> _Step:
    if group is not None:
        expect_communicator(group_name, group)
    arrays = _buffers.list_of_arrays(argument, arrays)
    if group is None and arrays:
        raise ValueError(f"{argument} has arrays, but {group_name} is None; expected the group that reduces them")
    buffers = [_buffers.describe(x, f"{argument}[{i}]", None, True) for i, x in enumerate(arrays)]
    return _Step(group, buffers, arrays, op)


def _reduce(step: _Step) -> None:
    if step.group is not None and step.group.size > 1 and step.arrays:
        all_reduce_coalesced(step.group, step.arrays, step.op)


def _numpy_over(buffer: _buffers.Buffer) -> Any:
    """Returns a flat numpy array over a buffer in host memory."""
    return array_over(buffer.address, (buffer.count,), _dtypes.numpy_type(buffer.dtype), buffer.owner)


def _floats(x: Any, argument: str) -> _buffers.Buffer:
    buffer = _buffers.describe(x, argument, None, True)
    if buffer.dtype not in FLOATS:
        raise TypeError(f"{argument} has element type {_dtypes.long_name(buffer.dtype)}; expected a floating-point type")
    return buffer


def _biases(arrays: Sequence[Any], tokens: list[_buffers.Buffer]) -> list[_buffers.Buffer]:
    """Checks and describes the biases of routers, one for each array of tokens. numpy will update them."""
    arrays = _buffers.list_of_arrays("expert_biases", arrays)
    if len(arrays) != len(tokens):
        raise ValueError(f"expert_biases has {len(arrays)} arrays; expected {len(tokens)}, like expert_tokens")
    biases = [_floats(x, f"expert_biases[{i}]") for i, x in enumerate(arrays)]
    for i, (bias, got) in enumerate(zip(biases, tokens)):
        if bias.count != got.count:
            raise ValueError(f"expert_biases[{i}] has {bias.count} elements; expected {got.count}, like expert_tokens[{i}]")
        for name, buffer in (("expert_biases", bias), ("expert_tokens", got)):
            if buffer.device >= 0 or _dtypes.NUMPY[Dtype(buffer.dtype)] in ("u1", "u2"):
                raise ValueError(f"{name}[{i}] is on a GPU or has a type that numpy does not know; expected an array in host memory, of a type such as float32")
    return biases


def _update_bias(bias: Any, tokens: Any, rate: float) -> None:
    """Updates a bias for load balancing without an auxiliary loss. The rule uses only the sign of the difference."""
    if tokens.size > 0:
        bias += (numpy_module().sign(tokens.mean(dtype="f8") - tokens) * rate).astype(bias.dtype)


def _scaling(
    num_tokens: Optional[int], grads: Sequence[Any], pipeline: Group, data: Group
) -> Callable[[], Optional[int]]:
    """Checks the arguments of the last step, which scales the gradients, and returns that step as a function."""
    for name, group in (("pipeline", pipeline), ("data", data)):
        if group is not None:
            expect_communicator(name, group)
    if num_tokens is None:
        return lambda: None
    count, arrays = integer("num_tokens", num_tokens, 0, INT64_MOST), _buffers.list_of_arrays("grads", grads)
    buffers = [_floats(x, f"grads[{i}]") for i, x in enumerate(arrays)]

    def scale() -> int:
        total = _total_tokens(count, pipeline, data)
        for buffer, array in zip(buffers, arrays):
            _scale(buffer, array, 1.0 / max(total, 1))
        return total

    return scale


def _total_tokens(count: int, pipeline: Group, data: Group) -> int:
    total = numpy_module().array([count], "i8")
    if pipeline is not None:
        pipeline.broadcast(total, pipeline.size - 1)
    if data is not None:
        data.all_reduce(total)
    return int(total[0])


def _scale(buffer: _buffers.Buffer, array: Any, factor: float) -> None:
    """Multiplies an array by a factor, in place.

    Elements of f16 are multiplied in f32, because f16 cannot hold small factors. Arrays on a GPU, and arrays of types
    that numpy lacks, are multiplied by the library that owns them.
    """
    numpy_type = _dtypes.NUMPY[Dtype(buffer.dtype)]
    if buffer.device >= 0 or numpy_type in ("u1", "u2"):
        array *= factor
        return
    view = _numpy_over(buffer)
    numpy_module().multiply(view, factor, out=view, dtype="f8" if numpy_type == "f8" else "f4", casting="same_kind")
