"""The exchange of tokens for a mixture of experts that is divided among the ranks."""

from __future__ import annotations

from functools import partial
from typing import Any, Optional

import torch

from libdsc._autograd import differentiable_once, linear_step
from libdsc._expert_parallel import DropName, MoePlan, PayloadName
from libdsc._torch_tensors import read
from libdsc.torch._functional.arguments import group_of, tensor


def moe_plan(
    expert_ids: torch.Tensor,
    experts: int,
    group: Any = None,
    *,
    capacity: Optional[int] = None,
    drop: DropName = "latest",
    padded: bool = False,
    weights: Optional[torch.Tensor] = None,
) -> MoePlan:
    """Returns a plan for moe_dispatch() and moe_combine(), from the experts that the router chose. Collective.

    Args:
        expert_ids: [..., top_k], numbers from 0 to experts - 1; -1 for a slot without an expert.
        experts: the number of experts on all ranks; rank r holds those of libdsc.split_range(experts, size, r).
        group: the ranks, see libdsc.torch.functional.
        capacity, drop, padded: as in Communicator.moe_plan().
        weights: router weights, [..., top_k]; needed to drop the lightest rows.
    """
    expert_ids = tensor(expert_ids, "expert_ids")
    if expert_ids.is_floating_point():
        raise TypeError(f"expert_ids has element type {expert_ids.dtype}; expected an integer type, such as torch.int64")
    comm = group_of(group, expert_ids.device)
    ids = read(expert_ids.to("cpu", torch.int32), "expert_ids")
    factors = None if weights is None else read(tensor(weights, "weights").to("cpu", torch.float32), "weights")
    return comm.moe_plan(ids, experts, capacity=capacity, drop=drop, padded=padded, weights=factors)


def moe_dispatch(tokens: torch.Tensor, plan: MoePlan, *, payload: PayloadName = "plain") -> torch.Tensor:
    """Sends each token to its experts; returns the rows for this rank's experts, [plan.rows, hidden]. Collective.

    The gradient of a token is the sum of the gradients of its rows.

    Args:
        tokens: [..., hidden]; the dimensions before hidden are those of expert_ids without top_k.
        plan: the result of moe_plan(); plan.expert_rows says how many rows each expert has.
        payload: "plain", or "f8e4m3" to send 8-bit floats. The gradient ignores their rounding.
    """
    _expect_plan(plan)
    return linear_step(tensor(tokens, "tokens", is_float=True), partial(plan.dispatch, payload=payload), plan.dispatch_backward)


def moe_combine(rows: torch.Tensor, plan: MoePlan, weights: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Sends the experts' rows back; returns the weighted sum for each token, [..., hidden]. Collective.

    Double backward is not supported.

    Args:
        rows: [plan.rows, hidden], in the order of the rows from moe_dispatch().
        plan: the result of moe_plan().
        weights: router weights, [..., top_k]; None: 1.
    """
    _expect_plan(plan)
    rows = tensor(rows, "rows", is_float=True)
    if weights is not None:
        weights = tensor(weights, "weights", is_float=True).to(torch.float64 if rows.dtype == torch.float64 else torch.float32)
    out: torch.Tensor = _Combine.apply(rows, weights, plan)
    return out


class _Combine(torch.autograd.Function):  # type: ignore[misc]
    """The weighted sums. Their gradients need the rows that the experts returned."""

    @staticmethod
    def forward(ctx: Any, rows: Any, weights: Any, plan: MoePlan) -> Any:
        given, factors = read(rows, "rows"), None if weights is None else read(weights, "weights")
        returned = None
        if ctx.needs_input_grad[1]:
            returned = rows.new_empty(*weights.shape, rows.shape[-1])
        ctx.save_for_backward(factors, returned)
        ctx.plan = plan
        return plan.combine(given, factors, returned=returned)

    @staticmethod
    @differentiable_once("moe_combine")
    def backward(ctx: Any, gradient: Any) -> Any:
        factors, returned = ctx.saved_tensors
        return *ctx.plan.combine_backward(read(gradient, "gradient"), factors, returned), None


def _expect_plan(plan: Any) -> None:
    if not isinstance(plan, MoePlan):
        raise TypeError(f"plan is a {type(plan).__name__}; expected a plan that moe_plan() returned")
