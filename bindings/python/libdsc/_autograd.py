"""Exchanges that torch can differentiate, for libdsc.megatron and libdsc.torch.

The module imports torch, so it is imported where a program has a tensor, and never before.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Optional, Sequence

import torch

from libdsc._communicator import Communicator

Exchange = Callable[[Any], Any]


class LinearStep(torch.autograd.Function):  # type: ignore[misc]
    """A linear exchange. Its gradient is the adjoint exchange, whose gradient is the first one again."""

    @staticmethod
    def forward(ctx: Any, x: Any, exchange: Exchange, adjoint: Exchange) -> Any:
        ctx.others = (adjoint, exchange)
        given = x.detach().contiguous()  # the library takes neither tensors with a gradient nor gaps
        made = exchange(given)
        return x.view_as(x) if made is given else made

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return linear_step(gradient, *ctx.others), None, None


def linear_step(x: Any, exchange: Exchange, adjoint: Exchange) -> Any:
    """The result of an exchange, through which gradients go back by its adjoint."""
    return LinearStep.apply(x, exchange, adjoint)


def mapping_step(
    x: Any,
    group: Communicator,
    mapping: Any,
    dim: int,
    parts: Optional[Sequence[int]] = None,
    other_parts: Optional[Sequence[int]] = None,
) -> Any:
    """The forward step of a mapping, whose gradient is the backward step. In a group of one rank x itself."""
    step = partial(group.tensor_map, mapping=mapping, dim=dim, parts=parts, other_parts=other_parts)
    if group.size > 1:
        return linear_step(x, partial(step, direction="forward"), partial(step, direction="backward"))
    step(x.detach().contiguous())  # checks the arguments
    return x


class VocabLoss(torch.autograd.Function):  # type: ignore[misc]
    """The losses of tokens. Their gradients are computed again from the logits, which must not change before."""

    @staticmethod
    def forward(ctx: Any, logits: Any, targets: Any, group: Communicator, options: dict[str, Any]) -> Any:
        given = logits.detach().contiguous()
        loss, ctx.entropy = group.vocab_cross_entropy(given, targets.contiguous(), **options)
        ctx.save_for_backward(given)  # so that torch notices a change
        return torch.from_numpy(loss)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, gradient: Any) -> Any:
        (logits,) = ctx.saved_tensors
        return ctx.entropy.backward(gradient.contiguous(), out=torch.empty_like(logits)), None, None, None


def vocab_loss(logits: Any, targets: Any, group: Communicator, **options: Any) -> Any:
    """The loss of each token, over logits whose vocabulary is divided among the ranks."""
    return VocabLoss.apply(logits, targets, group, options)
