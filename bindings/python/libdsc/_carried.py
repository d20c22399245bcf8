"""Detects gradients that would count twice, or not at all, after iterations under no_sync().

Under no_sync() the reducer sums the gradients that it gets. PyTorch's p.grad also sums them. So between iterations the
program must zero its own array, or use another one, and must not zero a gradient view. Otherwise it would train with
wrong gradients.
"""

from __future__ import annotations

import weakref
from typing import Any, Mapping, Optional

from libdsc._write_mark import WriteMark


class Carried:
    """The arrays and views that were marked ready in iterations whose sums have not been reduced yet."""

    __slots__ = ("_tensors", "_sums")

    def __init__(self) -> None:
        # For each parameter: a tensor of torch, and the tensor's count of in-place writes when it was marked ready.
        self._tensors: dict[int, tuple[Any, int]] = {}
        self._sums: set[int] = set()  # parameters whose views hold a nonzero sum

    def adds_up(self, i: int, grad: Any) -> bool:
        """Whether a tensor that was marked before has since been written by exactly one addition.

        torch counts in-place writes: a backward pass that adds is one write; zeroing first makes it two. For arrays of
        other libraries there is no such count, and the result is False.
        """
        marked = self._tensors.get(i)
        return marked is not None and marked[0]() is grad and grad._version == marked[1] + 1

    def note(self, i: int, grad: Any) -> None:
        """Notes that an array of the program was marked ready."""
        version = getattr(grad, "_version", None)
        if isinstance(version, int):
            self._tensors[i] = weakref.ref(grad), version

    def note_sums(self, marks: Mapping[int, WriteMark]) -> None:
        """Notes which views hold sums. Called at the end of an iteration that was not reduced."""
        self._sums = {i for i, mark in marks.items() if not mark.is_zero()}

    def zeroed(self, marks: Mapping[int, WriteMark]) -> Optional[int]:
        """Returns a parameter whose view lost its sum since then, or None.

        Each loss is reported only once, because the program may have zeroed the view on purpose.
        """
        lost = [i for i in sorted(self._sums) if i in marks and marks[i].is_zero()]
        self._sums.difference_update(lost)
        return lost[0] if lost else None
