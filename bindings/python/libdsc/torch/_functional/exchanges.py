"""Collective operations with gradients."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, Optional, Sequence

import torch

from libdsc import _dtypes
from libdsc._arguments import dimension, member, sizes_of_ranks
from libdsc._autograd import linear_step, mapping_step
from libdsc._communicator import Communicator
from libdsc._raw import Op, TensorMapping
from libdsc._tensor_map import PartSizes
from libdsc._torch_tensors import read
from libdsc.torch._functional.arguments import group_of, tensor

Parts = Optional[Sequence[int]]


def tensor_map(
    x: torch.Tensor, mapping: Any, dim: int = -1, group: Any = None, *, parts: Parts = None, other_parts: Parts = None
) -> torch.Tensor:
    """Applies the forward step of a tensor-parallel mapping; gradients use its backward step. Collective.

    Args:
        x: the whole tensor or this rank's part, as Communicator.tensor_map() says.
        mapping: "copy", "reduce", "scatter", "gather", "gather_reduce", "reduce_scatter", "all_to_all",
            "sequence_to_hidden" or "hidden_to_sequence".
        dim: the dimension that is divided among the ranks.
        group: the ranks, see libdsc.torch.functional.
        parts: the size of each rank's part along dim, if they differ; the same list on all ranks. For "all_to_all": the
            sizes that this rank sends to each rank.
        other_parts: the size of each rank's part of the sequence, for the last two mappings with parts. For
            "all_to_all": the sizes that this rank receives from each rank.
    """
    x = tensor(x)
    return mapping_step(x, group_of(group, x.device), mapping, dim, parts, other_parts)


def all_reduce(x: torch.Tensor, op: Any = "sum", group: Any = None) -> torch.Tensor:
    """Returns x combined over all ranks, in a new tensor. Collective.

    The gradient of "sum" and "avg" is the same reduction of the gradients. Other operations have no gradient. If all
    ranks compute the same loss from the sum, use tensor_map(x, "reduce"), which has the gradient for that case.

    Args:
        x: a tensor of equal shape on all ranks.
        op: "sum", "avg", "prod", "max", "min", "band", "bor" or "bxor".
        group: the ranks, see libdsc.torch.functional.
    """
    x, code = tensor(x), Op(_dtypes.op_code(op))
    reduced = partial(_on_copy, exchange=partial(group_of(group, x.device).all_reduce, op=code))
    if code in (Op.SUM, Op.AVG):
        return linear_step(x, reduced, reduced)
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"op is {op!r}, which has no gradient, but x requires a gradient; expected 'sum', 'avg' or x.detach()")
    return reduced(read(x, "x"))


def broadcast(x: torch.Tensor, root: int = 0, group: Any = None) -> torch.Tensor:
    """Returns the root's x, in a new tensor. Collective.

    The gradient is the sum over all ranks on the root, and zero on the others. If the root's x requires a gradient, x
    must require one on all ranks, and every rank must use the result in its loss. Otherwise the root waits until the
    time-out.

    Args:
        x: a tensor of equal shape on all ranks; only the root's elements are used.
        root: the rank in the group whose x is sent.
        group: the ranks, see libdsc.torch.functional.
    """
    x = tensor(x)
    comm = group_of(group, x.device)
    at = member("root", root, comm.size)
    exchange = partial(_on_copy, exchange=partial(comm.broadcast, root=at))

    def adjoint(x: torch.Tensor) -> torch.Tensor:
        total = _on_copy(x, partial(comm.reduce, root=at))
        return total if comm.rank == at else torch.zeros_like(total)

    return linear_step(x, exchange, adjoint)


def all_gather(x: torch.Tensor, dim: int = 0, group: Any = None, *, parts: Parts = None) -> torch.Tensor:
    """Returns the tensors of all ranks, one after another along a dimension. Collective.

    The gradient is the sum over all ranks of this rank's part (reduce-scatter). If all ranks have the same gradient,
    use tensor_map(x, "gather", dim), whose gradient is this rank's part without a sum.

    Args:
        x: a tensor, of equal shape on all ranks; with parts, sizes along dim may differ.
        dim: the dimension along which they are concatenated.
        group: the ranks, see libdsc.torch.functional.
        parts: the size of each rank's x along dim, if they differ; equal on all ranks.
    """
    return tensor_map(x, TensorMapping.GATHER_REDUCE, dim, group, parts=parts)


def reduce_scatter(
    x: torch.Tensor, op: Any = "sum", dim: int = 0, group: Any = None, *, parts: Parts = None
) -> torch.Tensor:
    """Returns this rank's part of the sum over all ranks, divided along a dimension. Collective.

    The gradient is the all-gather of the parts' gradients.

    Args:
        x: a tensor of equal shape on all ranks.
        op: "sum" or "avg".
        dim: the dimension that is divided; without parts its size is a multiple of the number of ranks.
        group: the ranks, see libdsc.torch.functional.
        parts: the size of each rank's part, if they differ; the same list on all ranks.
    """
    code = Op(_dtypes.op_code(op))
    if code not in (Op.SUM, Op.AVG):
        raise ValueError(f"op is {op!r}; expected 'sum' or 'avg'")
    x = tensor(x, is_float=code == Op.AVG)
    comm = group_of(group, x.device)
    if code == Op.SUM:
        return mapping_step(x, comm, TensorMapping.REDUCE_SCATTER, dim, parts)
    at = dimension(dim, x.dim(), "x")
    sizes = None if parts is None else sizes_of_ranks("parts", parts, comm.size)
    count = PartSizes(sizes, comm.rank, comm.size).part_of(x.shape[at], at)
    gather = partial(comm.tensor_map, mapping=TensorMapping.GATHER, dim=at, parts=sizes)
    return linear_step(x, partial(_averages, comm=comm, dim=at, count=count, parts=sizes), lambda up: gather(up) / comm.size)


def all_to_all(
    x: torch.Tensor, dim: int = 0, group: Any = None, *, send_parts: Parts = None, recv_parts: Parts = None
) -> torch.Tensor:
    """Sends part r of x along a dimension to rank r, and returns the parts that all ranks sent to this one. Collective.

    The gradient uses the reverse exchange.

    Args:
        x: a tensor, of equal shape on all ranks; with parts, sizes along dim may differ.
        dim: the dimension that is divided; without parts its size is a multiple of the number of ranks.
        group: the ranks, see libdsc.torch.functional.
        send_parts: the sizes that this rank sends to each rank, if they differ.
        recv_parts: the sizes that this rank receives from each rank; give both or none.
    """
    if (send_parts is None) != (recv_parts is None):
        raise ValueError(f"{'send_parts' if send_parts is None else 'recv_parts'} is None; expected both send_parts and recv_parts, or neither")
    return tensor_map(x, TensorMapping.ALL_TO_ALL, dim, group, parts=send_parts, other_parts=recv_parts)


def send_recv(x: torch.Tensor, dest: Optional[int], source: Optional[int], group: Any = None) -> torch.Tensor:
    """Sends x to one rank and returns the tensor that another rank sent, of equal shape and type.

    Both transfers run at the same time, so all ranks of a ring may call it. Gradients go in the opposite direction. If
    x of one rank requires a gradient, x of the other rank must require one too, and both must use their results in
    their losses. Otherwise one rank waits for the other until the time-out. A rank that only receives gets an error if
    its x requires no gradient.

    Args:
        x: a tensor.
        dest: the rank that receives x, numbered as in the group; None: x is not sent.
        source: the rank whose tensor is returned; None: nothing is received, and the result is zeros. If dest is this
            rank, source must be this rank too.
        group: the ranks, see libdsc.torch.functional.
    """
    x = tensor(x)
    comm = group_of(group, x.device)
    to, come = (None if rank is None else member(name, rank, comm.size) for name, rank in (("dest", dest), ("source", source)))
    if comm.rank in (to, come) and to != come:
        raise ValueError(f"dest is {to} and source is {come}; expected both or neither to be {comm.rank}, this rank itself")
    if come is not None and to is None and torch.is_grad_enabled() and x.is_floating_point() and not x.requires_grad:
        raise ValueError(f"x requires no gradient, so no gradient would be sent back to rank {come}; expected x.requires_grad_() or torch.no_grad()")
    exchange, adjoint = partial(_swapped, comm=comm, dest=to, source=come), partial(_swapped, comm=comm, dest=come, source=to)
    return linear_step(x, exchange, adjoint)


def _on_copy(x: torch.Tensor, exchange: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    """Applies an in-place exchange to a copy of x, and returns the copy."""
    copied = x.clone()
    exchange(copied)
    return copied


def _averages(x: torch.Tensor, comm: Communicator, dim: int, count: int, parts: Optional[list[int]]) -> torch.Tensor:
    """Returns this rank's part of the average.

    dim is moved to the front, because the library divides that dimension.
    """
    rows = x.movedim(dim, 0).contiguous()
    part = rows.new_empty(count, *rows.shape[1:])
    inner = math.prod(rows.shape[1:])
    comm.reduce_scatter(part, rows, Op.AVG, counts=None if parts is None else [inner * size for size in parts])
    return part.movedim(0, dim).contiguous()


def _swapped(x: torch.Tensor, comm: Communicator, dest: Optional[int], source: Optional[int]) -> torch.Tensor:
    if dest == source == comm.rank:
        return x
    came = torch.zeros_like(x)
    with comm.batch():
        if dest is not None:
            comm.send(x, dest)
        if source is not None:
            comm.recv(came, source)
    return came
