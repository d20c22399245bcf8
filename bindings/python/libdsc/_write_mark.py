"""Detects whether a gradient view was written in an iteration."""

from __future__ import annotations

from typing import Any

from libdsc import _dtypes, _raw

MARKED = 4  # the number of elements at the start of a view that are marked
# For each type, a NaN with a bit pattern that computations do not produce, unless one of these NaNs is an input.
STALE = {
    _raw.Dtype.F32: b"\xa5\xa5\xc5\x7f",
    _raw.Dtype.F64: b"\xa5\xa5\xa5\xa5\xa5\xa5\xfd\x7f",
    _raw.Dtype.F16: b"\xa5\x7e",
    _raw.Dtype.BF16: b"\xe5\x7f",
    _raw.Dtype.F8E4M3: b"\xff",
    _raw.Dtype.F8E5M2: b"\xfd",
}


class WriteMark:
    """Detects whether a gradient view was written since begin(), by marks in its first elements.

    Zeros may be there on purpose, because a framework adds its gradients to them. They are marked by their signs, which
    do not change a sum. Any other contents belong to an earlier iteration, and are replaced by special NaNs.
    """

    __slots__ = ("address", "_head", "_stale", "_zeros", "_mark")

    def __init__(self, view: Any, dtype: int, address: int) -> None:
        self.address = address
        bits = view.reshape(-1)[:MARKED].view("u1")
        self._head = memoryview(bits)
        size = _dtypes.BYTES[_raw.Dtype(dtype)]
        self._stale = STALE[_raw.Dtype(dtype)] * (len(bits) // size)
        negative, positive = bytes(size - 1) + b"\x80", bytes(size)
        self._zeros = ((negative + positive) * MARKED)[: len(bits)]
        self._mark = b""

    def put(self) -> None:
        """Marks the view as not written."""
        self._mark = self._zeros if self.is_zero() else self._stale
        self._head[:] = self._mark

    def is_zero(self) -> bool:
        """Whether the view begins with zeros."""
        return not self._head.tobytes().strip(b"\0\x80")

    def is_there(self) -> bool:
        """Whether the marks are unchanged."""
        return self._head.tobytes() == self._mark

    def voids(self) -> bool:
        """Whether the view still holds the NaNs of begin(), which must never be summed as a gradient."""
        return self._mark == self._stale and self.is_there()
