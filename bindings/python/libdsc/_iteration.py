"""The state of a reducer's latest iteration, and the arrays of the program that the library will write."""

from __future__ import annotations

import weakref
from typing import Any, Callable

from libdsc import _buffers, errors


def in_place(array: Any, address: int, count: int, dtype: Any) -> Any:
    """Returns objects that keep an array alive; None if the array no longer has this address and count."""
    try:
        found, number, _, owner = _buffers.locate(array, "array", dtype, True)
    except (TypeError, ValueError):  # for example, a memoryview was released
        return None
    if number != count or found != address and count > 0:  # an empty array may have any address
        return None
    return array, owner


def _weak(array: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Returns two functions that return the owner of an array, and the array.

    Each returns None once its object is gone.

    The owner of a slice is the whole array. An object without support for weak references is kept alive, with the
    array, so that its memory does not move.
    """
    owner = array
    while (base := getattr(owner, "base", None)) is not None:
        owner = base
    try:
        followed = weakref.ref(owner)
        return followed, followed if owner is array else weakref.ref(array)
    except TypeError:
        return (lambda: array), (lambda: array)


class Iteration:
    """One iteration of a reducer, from begin() to the next begin().

    The library stores the addresses of the gradients that were marked ready, until the next begin(). finish() writes to
    them, so this object keeps them alive until a finish() has succeeded on any thread. clip() writes to them again, and
    raises an error if they no longer exist.
    """

    __slots__ = ("open", "pending", "collected", "marked", "_written")

    def __init__(self, n_params: int) -> None:
        self.open = n_params > 0  # begun, and not yet finished successfully
        self.pending = set(range(n_params))  # parameters not yet marked, accumulated or skipped
        self.collected: set[int] = set()  # parameters accumulated, but not marked ready yet
        # The arrays that finish() will write: each with its address, its count and the objects that keep it alive.
        self.marked: list[tuple[Any, int, int, Any]] = []
        self._written: list[tuple[Any, ...]] = []  # the arrays that finish() has written

    def collect(self, i: int) -> None:
        """Notes that a gradient was accumulated."""
        self.pending.discard(i)
        self.collected.add(i)

    def end(self) -> None:
        """Notes that finish() has written the gradients."""
        self.open = False
        self.pending.clear()
        while self.marked:
            array, address, count, _ = self.marked.pop()
            self._written.append((*_weak(array), address, count))

    def hold(self, dtype: Any) -> list[Any]:
        """Returns objects that keep all marked arrays alive.

        Raises StateError if one of the arrays no longer exists.
        """
        held: list[Any] = list(self.marked)
        for owner, array, address, count in self._written:
            alive, known = owner(), array()
            held.append(alive if alive is None or known is None else in_place(known, address, count, dtype))
        if any(each is None for each in held):
            raise errors.StateError(
                "clip: an array that was passed to mark_ready() no longer exists, or its memory has changed; "
                "expected the same arrays until clip()",
                op="bucket_reducer_clip",
            )
        return held
