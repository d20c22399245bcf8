"""Exchanges that torch can differentiate, for libdsc.megatron and libdsc.torch.

This module imports torch. Other modules import it only after the program has passed a tensor.
"""

from __future__ import annotations

import functools
from functools import partial
from typing import Any, Callable, Optional, Sequence

import torch

from libdsc._communicator import Communicator
from libdsc._raw import TensorMapping
from libdsc._tensor_map import named
from libdsc._torch_tensors import read

Exchange = Callable[[Any], Any]


# ---- linear exchanges ----------------------------------------------------------------------------------------------


class LinearStep(torch.autograd.Function):  # type: ignore[misc]
    """A linear exchange. Its gradient is the adjoint exchange. The gradient of the adjoint is the exchange itself."""

    @staticmethod
    def forward(ctx: Any, x: Any, exchange: Exchange, adjoint: Exchange, is_new: bool) -> Any:
        ctx.others = (adjoint, exchange)
        given = read(x, "x")
        made = exchange(given)
        if made is not given:
            return made
        if not is_new:
            return x.view_as(x)
        return given.clone() if given.data_ptr() == x.data_ptr() else given

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return linear_step(gradient, *ctx.others, is_new=False), None, None, None


def linear_step(x: Any, exchange: Exchange, adjoint: Exchange, *, is_new: bool = True) -> Any:
    """Returns the result of an exchange. In the backward pass, gradients go through the adjoint exchange.

    An exchange may return its argument unchanged, as every exchange does in a group of one rank. In that case the
    result is a copy if is_new is true, and a view of x otherwise.
    """
    return LinearStep.apply(x, exchange, adjoint, is_new)


def mapping_step(
    x: Any,
    group: Communicator,
    mapping: Any,
    dim: int,
    parts: Optional[Sequence[int]] = None,
    other_parts: Optional[Sequence[int]] = None,
) -> Any:
    """Applies the forward direction of a mapping; its gradient is the backward direction. "copy" returns x itself."""
    kind = named("mapping", TensorMapping, mapping)
    step = partial(group.tensor_map, mapping=kind, dim=dim, parts=parts, other_parts=other_parts)
    there, back = partial(step, direction="forward"), partial(step, direction="backward")
    return linear_step(x, there, back, is_new=kind != TensorMapping.COPY)


# ---- gradients without gradients -----------------------------------------------------------------------------------


class _Last(torch.autograd.Function):  # type: ignore[misc]
    """Gradients that raise an error if they are differentiated again.

    torch's once_differentiable is not enough: it gives zero if the upstream gradient does not require gradients.
    """

    @staticmethod
    def forward(ctx: Any, what: str, *gradients: Any) -> Any:
        ctx.what = what
        return tuple(None if each is None else each.clone() for each in gradients)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(f"{ctx.what}: second derivatives are not supported; expected a loss that does not depend on gradients, or only on their detach()")


def differentiable_once(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates the backward() of an autograd.Function, so that differentiating its gradients again raises an error.

    what names the operation in the error.
    """

    def decorated(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def run(ctx: Any, *upstream: Any) -> Any:
            with torch.no_grad():
                gradients = backward(ctx, *upstream)
            if not torch.is_grad_enabled():
                return gradients
            return _Last.apply(what, *(None if each is None else each.detach().requires_grad_() for each in gradients))

        return run

    return decorated


# ---- loss ----------------------------------------------------------------------------------------------------------


class VocabLoss(torch.autograd.Function):  # type: ignore[misc]
    """The losses of tokens. The backward pass recomputes the gradients from logits and targets.

    torch saves both tensors and checks that they have not changed.
    """

    @staticmethod
    def forward(ctx: Any, logits: Any, targets: Any, group: Communicator, options: dict[str, Any]) -> Any:
        given, words = read(logits, "logits"), read(targets, "targets")
        loss, entropy = group.vocab_cross_entropy(given, words, **options)
        ctx.again = entropy._without_arrays()
        ctx.save_for_backward(given, words)
        return torch.from_numpy(loss)

    @staticmethod
    @differentiable_once("vocab_parallel_cross_entropy")
    def backward(ctx: Any, gradient: Any) -> Any:
        logits, targets = ctx.saved_tensors
        grad_logits = ctx.again(logits, targets).backward(read(gradient, "gradient"), out=torch.empty_like(logits))
        return grad_logits, None, None, None


def vocab_loss(logits: Any, targets: Any, group: Communicator, **options: Any) -> Any:
    """Returns the loss of each token. The vocabulary of the logits is divided among the ranks."""
    return VocabLoss.apply(logits, targets, group, options)
