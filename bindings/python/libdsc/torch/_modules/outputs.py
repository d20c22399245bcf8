"""The tensors in what a module returns."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator

import torch


def tensors_in(output: Any) -> Iterator[Any]:
    """Yields the tensors in nested lists, tuples, dicts and dataclasses."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict):
        for each in output.values():
            yield from tensors_in(each)
    elif isinstance(output, (list, tuple)):
        for each in output:
            yield from tensors_in(each)
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        for field in dataclasses.fields(output):
            yield from tensors_in(getattr(output, field.name))


def differentiable(output: Any) -> list[Any]:
    """Those that a backward pass can start from or go through, each once. Leaves belong to the program, not to the output."""
    found = {id(tensor): tensor for tensor in tensors_in(output) if tensor.requires_grad and tensor.grad_fn is not None}
    return list(found.values())
