"""Communication hooks: adapts hooks of PyTorch to the reducer, and accepts the names of the library's own hooks."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch

from libdsc import errors
from libdsc._hooks import Bucket
from libdsc.torch._ddp.gradients import Gradients

TorchHook = Callable[[Any, Any], Any]
OTHER_NAMES = {"fp16_compress": "fp16", "bf16_compress": "bf16", "allreduce_hook": "allreduce", "powerSGD": "powersgd"}


def name_of(hook: str) -> str:
    """Returns the library's name for a hook of PyTorch. Options and hooks in parentheses remain unchanged."""
    head, bracket, rest = hook.partition("(")
    head = head[: -len("_hook")] if head.endswith("_hook") else head
    return OTHER_NAMES.get(head, head) + bracket + rest


class GradBucket:
    """A bucket with the interface of torch.distributed.GradBucket."""

    def __init__(self, bucket: Bucket, gradients: Gradients) -> None:
        self._bucket, self._gradients = bucket, gradients
        self._result: Optional[Any] = None
        first = gradients.params[bucket.params[0]]
        dtype = torch.view_as_real(first.detach()).dtype if first.is_complex() else first.dtype
        self._buffer = torch.from_numpy(bucket.buffer.view("u1")).view(dtype)

    def index(self) -> int:
        """Returns the number of the bucket in the order in which buckets are reduced."""
        return self._bucket.index

    def buffer(self) -> Any:
        """Returns the gradients of this rank, not yet divided, one after another in one flat tensor."""
        return self._buffer if self._result is None else self._result

    def set_buffer(self, buffer: Any) -> None:
        """Sets the tensor with the result."""
        self._result = buffer

    def parameters(self) -> list[Any]:
        """Returns the parameters whose gradients are in the bucket."""
        return [self._gradients.params[i] for i in self._bucket.params]

    def gradients(self) -> list[Any]:
        """Returns the parts of buffer() in the shapes of the parameters."""
        parts = []
        for i, at, count in zip(self._bucket.params, self._bucket._offsets, self._bucket._counts):
            flat = self.buffer()[at : at + count]
            parts.append(self._gradients.shaped(i, flat))
        return parts

    def is_last(self) -> bool:
        """Whether it is the last bucket of the iteration."""
        return self._bucket.is_last

    def take(self, result: Any) -> None:
        """Writes the result of a hook into the memory of the bucket."""
        result = result[0] if isinstance(result, (list, tuple)) else result
        if not isinstance(result, torch.Tensor) or result.numel() != self._buffer.numel():
            got = f"a tensor of {result.numel()} elements" if isinstance(result, torch.Tensor) else f"a {type(result).__name__}"
            raise TypeError(f"the communication hook returned {got}; expected a tensor of {self._buffer.numel()} elements")
        result = result.detach().reshape(-1)
        if result.data_ptr() != self._buffer.data_ptr() or result.dtype != self._buffer.dtype:
            self._buffer.copy_(result)


class TorchHooks:
    """Runs a hook of PyTorch for every bucket. The results are awaited at the end of the iteration, in order."""

    def __init__(self, state: Any, hook: TorchHook, gradients: Gradients) -> None:
        self._state, self._hook, self._gradients = state, hook, gradients
        self._running: list[tuple[GradBucket, Any]] = []
        self._waits = False  # whether the end of the iteration has begun

    def __call__(self, bucket: Bucket) -> None:
        """Runs the hook for a bucket. The reducer calls it."""
        seen = GradBucket(bucket, self._gradients)
        future = self._hook(self._state, seen)
        if not hasattr(future, "wait"):
            raise TypeError(f"the communication hook returned a {type(future).__name__}; expected a torch.futures.Future of a tensor")
        if self._waits:
            seen.take(future.wait())
        else:
            self._running.append((seen, future))

    def begin(self) -> None:
        """Prepares for a new iteration; drops what a failed one has left."""
        self._running, self._waits = [], False

    def end(self) -> None:
        """Waits for all hooks that were started.

        A bucket that is completed during this call is waited for immediately.
        """
        self._waits = True
        for seen, future in self._running:
            seen.take(future.wait())
        self._running = []


def expect_hook(hook: Any) -> None:
    """Raises TypeError unless the hook is a function."""
    if not callable(hook):
        raise TypeError(f"hook is a {type(hook).__name__}; expected a function of (state, bucket), or the name of a hook such as 'bf16'")


def expect_no_state(state: Any) -> None:
    """Raises ValueError for a state with a hook that is given by name, because it would not be used."""
    if state is not None:
        raise ValueError(f"state is a {type(state).__name__}; expected None, because a hook that is given by name keeps its own state")


def once(has_hook: bool) -> None:
    """Raises StateError if a hook is already registered."""
    if has_hook:
        raise errors.StateError("register_comm_hook: a communication hook is already registered; expected at most one call")
