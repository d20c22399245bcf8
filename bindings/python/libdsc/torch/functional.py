"""Differentiable operations over the ranks: collectives, parallel layers, attention and experts.

    from libdsc.torch import functional as dscf

    hidden = dscf.column_parallel_linear(x, rows_of_weight)
    y = dscf.row_parallel_linear(hidden.relu(), columns_of_weight, bias)

group is a communicator of libdsc, a process group of torch with the backend "dsc", or a DeviceMesh of one dimension
over such a group. None means the default process group of that backend, or libdsc's world. All ranks must make the same
calls in the same order. Their graphs must have the same structure, because the backward pass makes calls too.
"""

from libdsc import _autograd
from libdsc.torch._compiler import keep_out as _keep_out
from libdsc.torch._functional.arguments import expect_equal_parts as _expect_equal_parts, group_of as _group_of
from libdsc.torch._functional.attention import heads_to_sequence, ring_attention, sequence_to_heads
from libdsc.torch._functional.exchanges import all_gather, all_reduce, all_to_all, broadcast
from libdsc.torch._functional.exchanges import reduce_scatter, send_recv, tensor_map
from libdsc.torch._functional.experts import moe_combine, moe_dispatch, moe_plan
from libdsc.torch._functional.layers import column_parallel_linear, row_parallel_linear
from libdsc.torch._functional.layers import vocab_parallel_cross_entropy, vocab_parallel_embedding
from libdsc.torch._functional.norms import all_reduce_rms_norm, rms_norm

__all__ = [
    "all_gather",
    "all_reduce",
    "all_reduce_rms_norm",
    "all_to_all",
    "broadcast",
    "column_parallel_linear",
    "heads_to_sequence",
    "moe_combine",
    "moe_dispatch",
    "moe_plan",
    "reduce_scatter",
    "ring_attention",
    "rms_norm",
    "row_parallel_linear",
    "send_recv",
    "sequence_to_heads",
    "tensor_map",
    "vocab_parallel_cross_entropy",
    "vocab_parallel_embedding",
]

_keep_out(_autograd.linear_step, _autograd.mapping_step, _autograd.vocab_loss, _group_of, _expect_equal_parts)
_keep_out(all_reduce_rms_norm, ring_attention, moe_plan, moe_combine, moe_dispatch)
