"""Shows operations in torch's profiler."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Sequence

import torch


@contextmanager
def event(name: str, tensors: Sequence[Any]) -> Iterator[None]:
    """An event of torch's profiler around the call of an operation, with the shapes of its tensors.

    For one that is asynchronous that is how long it took to start.
    """
    handle = torch.autograd._record_function_with_args_enter(name, *tensors)
    try:
        yield
    finally:
        torch.autograd._record_function_with_args_exit(handle)
