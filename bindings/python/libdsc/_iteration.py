"""What a reducer knows of its latest iteration, and the arrays of the program that the library writes later."""

from __future__ import annotations

import weakref
from typing import Any, Callable

from libdsc import _buffers, errors


def in_place(array: Any, address: int, count: int, dtype: Any) -> Any:
    """Returns what keeps an array alive and where it was; None: it has other memory now."""
    try:
        found, number, _, owner = _buffers.locate(array, "array", dtype, True)
    except (TypeError, ValueError):  # such as a memoryview that was released
        return None
    if number != count or found != address and count > 0:  # without elements, any address is as good
        return None
    return array, owner


def _weak(array: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Returns functions that give the owner of an array, and the array, for as long as each of them lives.

    Of a slice the owner is the whole array. One that Python cannot follow lives on, with the array, which keeps it from
    moving its memory.
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
    """One iteration of a reducer, from begin() to the next one.

    The library knows the gradients that were marked ready by their addresses, until the next begin(). finish() writes
    them, so they are kept alive until one has succeeded, in whichever thread; clip() writes them again, and asks for
    them.
    """

    __slots__ = ("open", "pending", "collected", "marked", "_written")

    def __init__(self, n_params: int) -> None:
        self.open = n_params > 0  # begun, and not finished with success
        self.pending = set(range(n_params))  # parameters that no call has spoken of
        self.collected: set[int] = set()  # those that have been accumulated and not been marked
        # Arrays that finish() is going to write: each with its address, its count and what keeps it.
        self.marked: list[tuple[Any, int, int, Any]] = []
        self._written: list[tuple[Any, ...]] = []  # those that it has written

    def collect(self, i: int) -> None:
        """Notes that something was accumulated."""
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
        """Returns what keeps all arrays alive that were marked; StateError when one of them is gone."""
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
