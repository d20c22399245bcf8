"""Finds the tensors in the output of a module."""

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
    """Returns the tensors that a backward pass can reach, each once.

    Leaves are left out: they belong to the program.
    """
    found = {id(tensor): tensor for tensor in tensors_in(output) if tensor.requires_grad and tensor.grad_fn is not None}
    return list(found.values())


def kept(modules: list[Any]) -> list[Any]:
    """Returns tensors of the graph that modules keep in their attributes, such as a second loss."""
    found = []
    for module in modules:
        for name, value in vars(module).items():
            if not name.startswith("_") and isinstance(value, (torch.Tensor, list, dict)):
                found.append(value)
    return differentiable(found)


def is_opaque(output: Any) -> bool:
    """Whether an output may hold tensors that tensors_in() does not find."""
    if next(tensors_in(output), None) is not None:
        return False
    return not isinstance(output, (type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set))
