"""Shows operations in torch's profiler."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Sequence

import torch


@contextmanager
def event(name: str, tensors: Sequence[Any]) -> Iterator[None]:
    """Records an event in torch's profiler for the call of an operation, with the shapes of its tensors.

    For an asynchronous operation, this is only the time to start it.
    """
    handle = torch.autograd._record_function_with_args_enter(name, *tensors)
    try:
        yield
    finally:
        torch.autograd._record_function_with_args_exit(handle)
