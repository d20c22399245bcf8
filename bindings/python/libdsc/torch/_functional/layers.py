"""Layers whose weights are divided among the ranks, and the loss for a divided vocabulary."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch.nn import functional as F

from libdsc._arguments import dimension, integer, real
from libdsc._autograd import mapping_step, vocab_loss
from libdsc._communicator import Communicator
from libdsc._raw import TensorMapping
from libdsc._tensor_map import split_range
from libdsc.torch._functional.arguments import expect_equal_parts, expect_last, expect_product, group_of, sequence_dimension
from libdsc.torch._functional.arguments import tensor, whole_size

Maybe = Optional[torch.Tensor]


def column_parallel_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Maybe = None,
    group: Any = None,
    *,
    gather_output: bool = False,
    sequence_parallel: bool = False,
    sequence_dim: int = 0,
) -> torch.Tensor:
    """Applies a linear layer whose output features are divided among the ranks. Collective.

    The gradient of x is summed over the ranks. The gradients of weight and bias are those of this rank's part.

    Args:
        x: [..., in_features], the same on all ranks, or with sequence_parallel this rank's part of the sequence.
        weight: this rank's rows of the whole weight, [out_features / size, in_features].
        bias: this rank's part, [out_features / size].
        group: the ranks, see libdsc.torch.functional.
        gather_output: True returns all features on each rank. All ranks must compute the same loss from them.
        sequence_parallel: True gathers the parts of the sequence. Their gradient is reduce-scattered.
        sequence_dim: the dimension of the sequence in x.

    Returns:
        [..., out_features / size], or [..., out_features] with gather_output.
    """
    expect_one_output(gather_output, sequence_parallel)
    x = tensor(x, is_float=True)
    comm = group_of(group, x.device)
    expect_product(x, weight, bias)
    expect_last(x, weight.shape[1], f"because weight has shape {tuple(weight.shape)}")
    if sequence_parallel:
        whole = mapping_step(x, comm, TensorMapping.GATHER_REDUCE, sequence_dimension(sequence_dim, x))
    else:
        whole = mapping_step(x, comm, TensorMapping.COPY, -1)
    y = F.linear(whole, weight, bias)
    return mapping_step(y, comm, TensorMapping.GATHER, -1) if gather_output else y


def row_parallel_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Maybe = None,
    group: Any = None,
    *,
    input_is_parallel: bool = True,
    sequence_parallel: bool = False,
    sequence_dim: int = 0,
) -> torch.Tensor:
    """Applies a linear layer whose input features are divided among the ranks. Collective.

    The results are summed over the ranks, then bias is added. The gradients of x and weight are those of this rank's
    part. The gradient of bias is the same on all ranks.

    Args:
        x: this rank's part of the features, [..., in_features / size].
        weight: this rank's columns of the whole weight, [out_features, in_features / size].
        bias: the complete bias, [out_features], the same on all ranks.
        group: the ranks, see libdsc.torch.functional.
        input_is_parallel: False: x has all features, and the layer takes this rank's part.
        sequence_parallel: True returns this rank's part of the sequence.
        sequence_dim: the dimension of the sequence in x.

    Returns:
        [..., out_features], the same on all ranks, or with sequence_parallel this rank's part of the sequence.
    """
    expect_parallel_input(input_is_parallel, sequence_parallel)
    x = tensor(x, is_float=True)
    comm = group_of(group, x.device)
    expect_product(x, weight, bias)
    columns = weight.shape[1] if input_is_parallel else weight.shape[1] * comm.size
    expect_last(x, columns, f"because weight has shape {tuple(weight.shape)} and input_is_parallel is {input_is_parallel}")
    part = x if input_is_parallel else mapping_step(x, comm, TensorMapping.SCATTER, -1)
    y = _summed(F.linear(part, weight), comm, sequence_parallel, sequence_dim)
    if bias is None:
        return y
    if sequence_parallel:
        # The gradients of bias are summed over the ranks, because each rank only has the gradient of its own tokens.
        bias = mapping_step(bias, comm, TensorMapping.COPY, -1)
    return y + bias.to(y.dtype)


def vocab_parallel_embedding(
    tokens: torch.Tensor,
    weight: torch.Tensor,
    group: Any = None,
    *,
    num_embeddings: Optional[int] = None,
    padding_idx: Optional[int] = None,
    max_norm: Optional[float] = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
    sequence_parallel: bool = False,
    sequence_dim: int = 0,
) -> torch.Tensor:
    """Looks up rows of a table whose rows are divided among the ranks. Collective.

    Args:
        tokens: indices in the whole table, of int64 or int32, the same on all ranks.
        weight: this rank's rows: those of split_range(num_embeddings, size, rank).
        group: the ranks, see libdsc.torch.functional.
        num_embeddings: rows of all ranks together. None: each rank has as many as this one; the ranks first check this
            in a separate exchange.
        padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse: as in torch.nn.functional.embedding.
        sequence_parallel: True returns this rank's part of the sequence.
        sequence_dim: the dimension of the sequence in tokens.

    Returns:
        The rows, [..., embedding_dim], the same on all ranks, or with sequence_parallel this rank's part.
    """
    tokens, weight = tensor(tokens, "tokens"), tensor(weight, "weight", is_float=True)
    comm = group_of(group, weight.device)
    if tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"tokens has element type {tokens.dtype}; expected torch.int64 or torch.int32")
    if weight.dim() != 2:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; expected two dimensions")
    count = whole_size(num_embeddings, weight.shape[0], comm)
    rows = split_range(count, comm.size, comm.rank)
    if weight.shape[0] != len(rows):
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}; expected {len(rows)} rows, the part of rank {comm.rank} when {count} rows are divided"
        )
    if sequence_parallel:
        sequence_dim = dimension(sequence_dim, tokens.dim(), "tokens")
    padding = _own_padding(padding_idx, count, rows)
    _expect_tokens(tokens, count)
    expect_equal_parts("num_embeddings", num_embeddings, weight.shape[0], comm, weight.device)
    flat = tokens.reshape(-1)
    own = (flat >= rows.start) & (flat < rows.stop)
    found = F.embedding(flat[own] - rows.start, weight, padding, max_norm, norm_type, scale_grad_by_freq, sparse)
    placed = found.new_zeros(len(flat), weight.shape[1]).index_put((own,), found)
    return _summed(placed.view(*tokens.shape, weight.shape[1]), comm, sequence_parallel, sequence_dim)


def vocab_parallel_cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    group: Any = None,
    *,
    vocab_size: Optional[int] = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> torch.Tensor:
    """Computes torch.nn.functional.cross_entropy for a vocabulary that is divided among the ranks. Collective.

    The logits are not gathered. Do not change logits and targets before the backward pass, which recomputes the
    softmax. Double backward is not supported.

    Args:
        logits: this rank's columns, [..., columns], with the vocabulary as the last dimension, in memory of the host.
        targets: the index in the whole vocabulary of each token's word, [...], the same on all ranks.
        group: the ranks, see libdsc.torch.functional.
        vocab_size: columns of all ranks together; None: each rank has as many as this one.
        ignore_index: the target of tokens that have no loss.
        reduction: "mean" (over the tokens that are not ignored), "sum" or "none".
        label_smoothing: as in torch: spread over all words, including the target.
        z_loss: this factor times the square of log(sum(exp(logits))) is added to the loss.

    Returns:
        The loss, the same on all ranks, of float64 for logits of float64, otherwise of float32.
    """
    comm = group_of(group)
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction is {reduction!r}; expected 'mean', 'sum' or 'none'")
    smoothing = real("label_smoothing", label_smoothing)
    if not 0 <= smoothing <= 1:
        raise ValueError(f"label_smoothing is {label_smoothing}; expected a number from 0 to 1")
    logits, targets = tensor(logits, "logits", is_float=True), tensor(targets, "targets")
    if targets.is_floating_point():
        raise TypeError(f"targets has element type {targets.dtype}; expected an integer type, such as torch.int64")
    if logits.dim() < 1:
        raise ValueError("logits has no dimensions; expected this rank's part of the vocabulary in the last dimension")
    words = whole_size(vocab_size, logits.shape[-1], comm)
    losses = vocab_loss(
        logits,
        targets.to(torch.int64),
        comm,
        vocab_size=words,
        # the library spreads label smoothing only over the other words
        label_smoothing=smoothing * (words - 1) / max(words, 1),
        ignore_index=ignore_index,
        z_loss=z_loss,
    )
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / (targets != ignore_index).sum()


def expect_one_output(gather_output: bool, sequence_parallel: bool) -> None:
    """Raises ValueError if options of column_parallel_linear() exclude each other."""
    if gather_output and sequence_parallel:
        raise ValueError("gather_output and sequence_parallel are both True; expected at most one of them to be True")


def expect_parallel_input(input_is_parallel: bool, sequence_parallel: bool) -> None:
    """Raises ValueError if options of row_parallel_linear() exclude each other."""
    if sequence_parallel and not input_is_parallel:
        raise ValueError("sequence_parallel is True and input_is_parallel is False; expected input_is_parallel=True and this rank's features")


def _summed(x: torch.Tensor, comm: Communicator, sequence_parallel: bool, sequence_dim: int) -> torch.Tensor:
    """Returns the sum over the ranks, or with sequence_parallel this rank's part of it."""
    if sequence_parallel:
        return mapping_step(x, comm, TensorMapping.REDUCE_SCATTER, sequence_dimension(sequence_dim, x))
    return mapping_step(x, comm, TensorMapping.REDUCE, -1)


def _own_padding(padding_idx: Optional[int], count: int, rows: range) -> Optional[int]:
    """Returns the index of the padding's row among this rank's rows; None if another rank has it."""
    if padding_idx is None:
        return None
    at = integer("padding_idx", padding_idx, -count, count - 1) % count
    return at - rows.start if at in rows else None


def _expect_tokens(tokens: torch.Tensor, count: int) -> None:
    """Raises IndexError for a token without a row.

    On a GPU this waits, as the later selection of tokens does anyway.
    """
    if tokens.numel():
        least, most = int(tokens.min()), int(tokens.max())
        if least < 0 or most >= count:
            raise IndexError(f"tokens contains {least if least < 0 else most}; expected values from 0 to {count - 1}")
