"""What a reducer knows of its latest iteration, and the arrays of the program that the library writes later."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Optional

from libdsc import _buffers, errors


def _weak(array: Any) -> Callable[[], Any]:
    """Returns a function that gives the owner of an array for as long as it lives; of a slice that is the whole array.

    An owner that Python cannot follow lives on, with the array, which keeps it from moving its memory.
    """
    owner = array
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    try:
        return weakref.ref(owner)
    except TypeError:
        return lambda: array


class Written:
    """An array whose address the library keeps, to write there in a later call."""

    __slots__ = ("_place", "_dtype", "_owner", "_array", "_kept")

    def __init__(self, array: Any, address: int, count: int, dtype: Any, owner: Any) -> None:
        self._place = (count, address if count else 0)  # without elements, any address is as good
        self._dtype = dtype
        self._owner: Callable[[], Any] = lambda: array
        self._array: Callable[[], Any] = lambda: array
        self._kept: Any = owner

    def loosen(self) -> None:
        """From here on the array lives only as long as the program has it."""
        array = self._array()
        self._owner = _weak(array)
        try:
            self._array = weakref.ref(array)
        except TypeError:
            pass
        self._kept = None

    def hold(self) -> Any:
        """Returns what keeps the array alive and where it was; None: it is gone, or has other memory now."""
        owner, array = self._owner(), self._array()
        if owner is None or array is None:
            return owner
        try:
            address, count, _, kept = _buffers.locate(array, "array", self._dtype, True)
        except (TypeError, ValueError):  # such as a memoryview that was released
            return None
        return (owner, array, kept) if (count, address if count else 0) == self._place else None


class Iteration:
    """One iteration of a reducer, from begin() to the next one.

    The library knows the gradients that were marked ready by their addresses, until the next begin(). finish() writes
    them, so they are kept alive until one has succeeded, in whichever thread; clip() writes them again, and asks for
    them.
    """

    __slots__ = ("open", "pending", "collected", "_marked")

    def __init__(self, n_params: int) -> None:
        self.open = n_params > 0  # begun, and not finished with success
        self.pending = set(range(n_params))  # parameters that no call has spoken of
        self.collected: set[int] = set()  # those that have been accumulated and not been marked
        self._marked: list[Written] = []

    def mark(self, i: int, written: Optional[Written]) -> None:
        """Notes a gradient that the library has taken; None: it is in the parameter's view."""
        self.pending.discard(i)
        self.collected.discard(i)
        if written is not None:
            self._marked.append(written)

    def collect(self, i: int) -> None:
        """Notes that something was accumulated."""
        self.pending.discard(i)
        self.collected.add(i)

    def end(self) -> None:
        """Notes that finish() has written the gradients."""
        self.open = False
        self.pending.clear()
        for written in list(self._marked):
            written.loosen()

    def hold(self) -> list[Any]:
        """Returns what keeps all arrays alive that were marked; StateError when one of them is gone."""
        held = [written.hold() for written in list(self._marked)]
        if any(each is None for each in held):
            raise errors.StateError(
                "clip: arrays that were marked ready no longer exist, or have other memory; expected them to be kept "
                "until clip()",
                op="bucket_reducer_clip",
            )
        return held
