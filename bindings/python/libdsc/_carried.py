"""What a reducer remembers under no_sync(), so that a gradient that would count twice, or not at all, is an error.

Under no_sync() the reducer sums the gradients that it gets. PyTorch's p.grad sums them too. So between iterations the
program must zero its own array, or use another one, and must not zero a gradient view. Either mistake would train with
wrong gradients.
"""

from __future__ import annotations

import weakref
from typing import Any, Mapping, Optional

from libdsc._write_mark import WriteMark


class Carried:
    """The arrays and views that were marked in iterations whose sums were not reduced yet."""

    __slots__ = ("_tensors", "_sums")

    def __init__(self) -> None:
        # By parameter: a tensor of torch, and how often it had been written in place when it was marked.
        self._tensors: dict[int, tuple[Any, int]] = {}
        self._sums: set[int] = set()  # parameters whose views did not begin with zeros

    def adds_up(self, i: int, grad: Any) -> bool:
        """Whether a tensor that was marked before has been added to, and nothing else, since then.

        torch counts writes in place: a backward pass that adds is one; zeroing first makes it two. Other arrays tell
        nothing.
        """
        marked = self._tensors.get(i)
        return marked is not None and marked[0]() is grad and grad._version == marked[1] + 1

    def note(self, i: int, grad: Any) -> None:
        """Remembers an array of the program's own that was marked."""
        version = getattr(grad, "_version", None)
        if isinstance(version, int):
            self._tensors[i] = weakref.ref(grad), version

    def note_sums(self, marks: Mapping[int, WriteMark]) -> None:
        """Remembers which views hold sums, at the end of an iteration that was not reduced."""
        self._sums = {i for i, mark in marks.items() if not mark.is_zero()}

    def zeroed(self, marks: Mapping[int, WriteMark]) -> Optional[int]:
        """A parameter whose view has lost its sum since then; told once, as zeroing may have been meant."""
        lost = [i for i in sorted(self._sums) if i in marks and marks[i].is_zero()]
        self._sums.difference_update(lost)
        return lost[0] if lost else None
