"""Whether a gradient view was written in an iteration."""

from __future__ import annotations

from typing import Any

from libdsc import _dtypes, _raw

MARKED = 4  # elements at the head of a gradient view that tell whether it was written
STALE = {  # NaNs that no computation yields, except from one of them; by type
    _raw.Dtype.F32: b"\xa5\xa5\xc5\x7f",
    _raw.Dtype.F64: b"\xa5\xa5\xa5\xa5\xa5\xa5\xfd\x7f",
    _raw.Dtype.F16: b"\xa5\x7e",
    _raw.Dtype.BF16: b"\xe5\x7f",
    _raw.Dtype.F8E4M3: b"\xff",
    _raw.Dtype.F8E5M2: b"\xfd",
}


class WriteMark:
    """Tells whether a gradient view was written since begin(), by marks in its first elements.

    Zeros may have been put there for a framework that adds its gradients, so they are marked by the signs of zeros,
    which no sum notices. Whatever else is there is of an earlier iteration, and becomes a NaN with a number.
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
        """Whether the marks are as they were put."""
        return self._head.tobytes() == self._mark

    def voids(self) -> bool:
        """Whether the view holds the NaNs of begin(), which a sum must never take for a gradient."""
        return self._mark == self._stale and self.is_there()
