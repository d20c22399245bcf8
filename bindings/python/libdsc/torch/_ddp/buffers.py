"""The buffers of a module. They are made equal on all ranks at the start of forward passes."""

from __future__ import annotations

from typing import Any

import torch

from libdsc._communicator import Communicator
from libdsc._reducer import BucketReducer
from libdsc.torch._modules import layout
from libdsc.torch._modules import params


class Buffers:
    """Keeps rank 0's buffers on all ranks. A program may replace a buffer by another tensor between two passes.

    Attributes:
        is_joined: whether the module is inside its join(), where the reducer also serves ranks without batches.
    """

    def __init__(self, comm: Communicator, reducer: BucketReducer, module: Any, ignored: set[str]) -> None:
        self._comm, self._reducer, self._module, self._ignored = comm, reducer, module, ignored
        # Address, count and type of the buffers that were registered with the reducer.
        self._known: list[tuple[int, int, Any]] = []
        self._arrays: list[Any] = []
        self.is_joined = False

    def named(self) -> list[params.Named]:
        """Returns the current buffers."""
        return params.named_buffers(self._module, self._ignored)

    def any(self) -> bool:
        """Whether there are buffers."""
        return next(iter(self._module.buffers()), None) is not None and bool(self.named())

    def sync(self) -> None:
        """Copies rank 0's buffers to all ranks; inside join() those of the first rank that still has batches.

        Collective.
        """
        named = self.named()
        if not all(buffer.is_contiguous() and not buffer.is_complex() for _, buffer in named):
            return params.broadcast(self._comm, named, 0, False)
        self.register(named)
        self._reducer.sync_buffers()

    def register(self, named: Any = None) -> None:
        """Registers the buffers with the reducer if they have changed. Collective in that case."""
        named = self.named() if named is None else named
        if not named:
            return
        places = [(buffer.data_ptr(), buffer.numel(), buffer.dtype) for _, buffer in named]
        if places == self._known:
            return
        arrays = {name: layout.as_bytes_if_unknown(buffer.detach()) for name, buffer in named}
        self._reducer.set_buffers(list(arrays.values()))
        self._known, self._arrays = places, list(arrays.values())

    def broadcast(self, root: int) -> None:
        """Copies one rank's buffers to all. Collective."""
        with torch.no_grad():
            params.broadcast(self._comm, self.named(), root, False)
