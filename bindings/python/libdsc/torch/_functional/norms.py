"""RMSNorm of rows that are divided among the ranks, or that are first summed over the ranks."""

from __future__ import annotations

import functools
from typing import Any, Optional

import torch
from torch.nn import functional as F

from libdsc._autograd import differentiable_once
from libdsc._communicator import Communicator
from libdsc._torch_tensors import read
from libdsc.torch._functional.arguments import expect_equal_parts, expect_last, group_of, tensor, whole_size, wide
from libdsc.torch._functional.exchanges import all_reduce

Maybe = Optional[torch.Tensor]


def rms_norm(
    x: torch.Tensor,
    weight: Maybe = None,
    eps: Optional[float] = None,
    group: Any = None,
    *,
    hidden_size: Optional[int] = None,
) -> torch.Tensor:
    """Computes torch.nn.functional.rms_norm for rows whose elements are divided among the ranks. Collective.

    The ranks sum one number per row, in the forward and in the backward pass.

    Args:
        x: this rank's part of each row, [..., hidden / size].
        weight: this rank's part, [hidden / size]; None: 1.
        eps: added to the mean of the squares; None: the epsilon of the type, as in torch.
        group: the ranks, see libdsc.torch.functional.
        hidden_size: elements of a whole row. None: each rank has as many as this one; the ranks first check this in a
            separate exchange.
    """
    x = tensor(x, is_float=True)
    comm = group_of(group, x.device)
    if x.dim() < 1:
        raise ValueError("x has no dimensions; expected this rank's part of each row in the last dimension")
    if weight is not None:
        expect_last(x, tensor(weight, "weight").numel(), f"because weight has shape {tuple(weight.shape)}")
    expect_equal_parts("hidden_size", hidden_size, x.shape[-1], comm, x.device)
    rows = wide(x)
    mean = all_reduce(rows.square().sum(-1, keepdim=True), "sum", comm) / whole_size(hidden_size, x.shape[-1], comm)
    y = rows * (mean + (torch.finfo(rows.dtype).eps if eps is None else eps)).rsqrt()
    return (y if weight is None else y * weight).to(x.dtype)


def all_reduce_rms_norm(
    x: torch.Tensor, residual: Maybe = None, weight: Maybe = None, eps: float = 1e-5, group: Any = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums x over the ranks, adds a residual, and normalizes each row by its root mean square. Collective.

    These are the steps after a row-parallel linear layer in a transformer. They run on blocks of rows that stay in the
    cache. All ranks must compute the same loss from the results, because gradients need no exchange. Double backward is
    not supported.

    Args:
        x: this rank's summand, [..., hidden], in host memory.
        residual: an array like x, the same on all ranks; None: nothing is added.
        weight: [hidden], the same on all ranks; None: 1.
        eps: added to the mean of the squares, above 0.
        group: the ranks, see libdsc.torch.functional.

    Returns:
        The normalized rows, and the rows before normalization. If types differ, the results have the widest type.
    """
    named = (("x", x), ("residual", residual), ("weight", weight))
    given = [None if each is None and name != "x" else tensor(each, name) for name, each in named]
    kind = functools.reduce(torch.promote_types, (each.dtype for each in given if each is not None))
    x, residual, weight = (None if each is None else each.to(kind) for each in given)
    normalized: tuple[torch.Tensor, torch.Tensor] = _SummedNorm.apply(x, residual, weight, eps, group_of(group))
    return normalized


class _SummedNorm(torch.autograd.Function):  # type: ignore[misc]
    """Forward: the library's step. Backward: the gradient of torch's rms_norm, computed from the rows before it."""

    @staticmethod
    def forward(ctx: Any, x: Any, residual: Any, weight: Any, eps: float, comm: Communicator) -> Any:
        partial = read(x, "x")
        added, factors = (None if each is None else read(each, "residual or weight") for each in (residual, weight))
        normalized, rows = comm.all_reduce_rms_norm(partial, added, factors, eps, residual_out=torch.empty_like(partial))
        ctx.save_for_backward(rows, factors)
        ctx.eps, ctx.has_residual = eps, residual is not None
        return normalized, rows

    @staticmethod
    @differentiable_once("all_reduce_rms_norm")
    def backward(ctx: Any, grad_normalized: Any, grad_rows: Any) -> Any:
        rows, weight = ctx.saved_tensors
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in (rows, weight) if each is not None]
            normalized = F.rms_norm(leaves[0], leaves[0].shape[-1:], leaves[1] if len(leaves) > 1 else None, ctx.eps)
        grad, *of_weight = torch.autograd.grad(normalized, leaves, grad_normalized)
        grad = grad + grad_rows
        return grad, grad if ctx.has_residual else None, of_weight[0] if of_weight else None, None, None
