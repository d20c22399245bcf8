"""The mappings of megatron.core.tensor_parallel and its loss; torch can differentiate them.

Each mapping is a step of Communicator.tensor_map(). libdsc.megatron exports these functions. For an array the result is
an array, computed by the forward step. For a tensor of torch it is a tensor, whose gradient uses the backward step.
Only calls with a tensor import torch; the program has then imported it already.
"""

from __future__ import annotations

import sys
from typing import Any, Optional, Sequence

from libdsc._communicator import Communicator

_FIRST, _LAST = 0, -1
_Sizes = Optional[Sequence[int]]


def copy_to_tensor_model_parallel_region(input_: Any, group: Optional[Communicator] = None) -> Any:
    """Returns the input itself. The gradient is summed over the ranks."""
    return _mapped(input_, group, "copy", _LAST)


def reduce_from_tensor_model_parallel_region(input_: Any, group: Optional[Communicator] = None) -> Any:
    """Returns the sum over the ranks in a new array. The gradient is passed on unchanged."""
    return _mapped(input_, group, "reduce", _LAST)


def scatter_to_tensor_model_parallel_region(input_: Any, group: Optional[Communicator] = None) -> Any:
    """Returns this rank's part of the last dimension. The gradient is gathered."""
    return _mapped(input_, group, "scatter", _LAST)


def gather_from_tensor_model_parallel_region(input_: Any, group: Optional[Communicator] = None) -> Any:
    """Gathers the parts of all ranks along the last dimension. The gradient, equal on all ranks, is split again."""
    return _mapped(input_, group, "gather", _LAST)


def scatter_to_sequence_parallel_region(input_: Any, group: Optional[Communicator] = None) -> Any:
    """Returns this rank's part of the first dimension. The gradient is gathered."""
    return _mapped(input_, group, "scatter", _FIRST)


def gather_from_sequence_parallel_region(
    input_: Any,
    tensor_parallel_output_grad: bool = True,
    group: Optional[Communicator] = None,
    output_split_sizes: _Sizes = None,
) -> Any:
    """Gathers the parts of all ranks along the first dimension.

    Args:
        input_: this rank's part.
        tensor_parallel_output_grad: True: gradients differ between the ranks, and are summed and split. False: they are
            equal, and this rank's part is taken.
        group: the ranks; None: the tensor-parallel group.
        output_split_sizes: the size of each rank's part, if they differ; equal on all ranks.
    """
    mapping = "gather_reduce" if tensor_parallel_output_grad else "gather"
    return _mapped(input_, group, mapping, _FIRST, output_split_sizes)


def reduce_scatter_to_sequence_parallel_region(
    input_: Any, group: Optional[Communicator] = None, input_split_sizes: _Sizes = None
) -> Any:
    """Returns this rank's part of the sum, split along the first dimension. The gradient is gathered.

    Args:
        input_: a whole tensor of this rank.
        group: the ranks; None: the tensor-parallel group.
        input_split_sizes: the size of each rank's part, if they differ; equal on all ranks.
    """
    return _mapped(input_, group, "reduce_scatter", _FIRST, input_split_sizes)


def all_gather_last_dim_from_tensor_parallel_region(input_: Any, group: Optional[Communicator] = None) -> Any:
    """Gathers the parts of all ranks along the last dimension.

    The gradient is summed, and this rank's part is taken.
    """
    return _mapped(input_, group, "gather_reduce", _LAST)


def reduce_scatter_last_dim_to_tensor_parallel_region(input_: Any, group: Optional[Communicator] = None) -> Any:
    """Returns this rank's part of the sum, split along the last dimension. The gradient is gathered."""
    return _mapped(input_, group, "reduce_scatter", _LAST)


def all_to_all(
    group: Optional[Communicator],
    input_: Any,
    output_split_sizes_: _Sizes = None,
    input_split_sizes: _Sizes = None,
) -> Any:
    """Sends part r of the first dimension to rank r, and concatenates the received parts in rank order.

    Args:
        group: the ranks; None: the tensor-parallel group. It comes before the tensor, as in Megatron-LM.
        input_: what this rank sends.
        output_split_sizes_: what this rank receives from each rank, if sizes differ.
        input_split_sizes: what this rank sends to each rank, given together with output_split_sizes_.
    """
    if (output_split_sizes_ is None) != (input_split_sizes is None):
        missing = "output_split_sizes_" if output_split_sizes_ is None else "input_split_sizes"
        raise ValueError(f"{missing} is None; expected both output_split_sizes_ and input_split_sizes, or neither")
    return _mapped(input_, group, "all_to_all", _FIRST, input_split_sizes, output_split_sizes_)


def all_to_all_sp2hp(input_: Any, group: Optional[Communicator] = None) -> Any:
    """Changes [tokens / n, hidden] to [tokens, hidden / n]. Dimensions before the last one are flattened to one."""
    return _mapped(input_.reshape(-1, input_.shape[-1]), group, "sequence_to_hidden", _LAST)


def all_to_all_hp2sp(input_: Any, group: Optional[Communicator] = None) -> Any:
    """Changes [tokens, hidden / n] to [tokens / n, hidden]. Dimensions before the last one are flattened to one."""
    return _mapped(input_.reshape(-1, input_.shape[-1]), group, "hidden_to_sequence", _LAST)


def vocab_parallel_cross_entropy(
    vocab_parallel_logits: Any, target: Any, label_smoothing: float = 0.0, tp_group: Optional[Communicator] = None
) -> Any:
    """Returns the loss of each token. The last dimension of the logits, the vocabulary, is divided among the ranks.

    Label smoothing is over the whole vocabulary, and the logits are not overwritten, unlike in Megatron-LM.

    Args:
        vocab_parallel_logits: this rank's columns, of equal number on all ranks.
        target: the index in the whole vocabulary of each token's word, of int64, the same on all ranks.
        label_smoothing: probability given to the other words.
        tp_group: the ranks; None: the tensor-parallel group.
    """
    group = _group(tp_group)
    if _is_tensor(vocab_parallel_logits):
        return _autograd().vocab_loss(vocab_parallel_logits, target, group, label_smoothing=label_smoothing)
    return group.vocab_cross_entropy(vocab_parallel_logits, target, label_smoothing=label_smoothing)[0]


def _group(given: Optional[Communicator]) -> Communicator:
    if given is not None:
        return given
    from libdsc.megatron import get_tensor_model_parallel_group  # imported here, because that module imports this one

    return get_tensor_model_parallel_group()


def _is_tensor(x: Any) -> bool:
    return isinstance(x, getattr(sys.modules.get("torch"), "Tensor", ()))


def _mapped(
    x: Any, group: Optional[Communicator], mapping: Any, dim: int, parts: _Sizes = None, other_parts: _Sizes = None
) -> Any:
    """Applies the forward step to an array, or to a tensor that torch may differentiate."""
    group = _group(group)
    if _is_tensor(x):
        return _autograd().mapping_step(x, group, mapping, dim, parts, other_parts)
    return group.tensor_map(x, mapping, dim, parts=parts, other_parts=other_parts)


def _autograd() -> Any:
    """Returns the module with the functions that torch can differentiate. It imports torch, so only tensors use it."""
    from libdsc import _autograd as found

    return found
