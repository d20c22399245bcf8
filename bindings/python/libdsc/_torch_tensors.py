"""Converts tensors of torch for the library. This module imports torch, as libdsc._autograd does."""

from __future__ import annotations

import torch


def read(tensor: torch.Tensor, argument: str) -> torch.Tensor:
    """Returns a tensor with the same elements, contiguous and without gradient.

    It is a copy if the elements have gaps.
    """
    if tensor.layout != torch.strided:
        raise ValueError(f"{argument} has the layout {tensor.layout}; expected torch.strided")
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.contiguous()
