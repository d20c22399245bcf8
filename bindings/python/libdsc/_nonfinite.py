"""NaN and infinity among the inputs of reductions."""

from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import dataclass
from typing import Any, Optional

from libdsc import _dtypes, _raw
from libdsc._library import check, lib
from libdsc._types import NonfiniteName

# The check that was set for each communicator, by its handle. Communicators that are not listed have "off".
_checks: dict[int, int] = {}
_NAMES: tuple[NonfiniteName, ...] = ("off", "count", "fail")  # the index is the library's number


@dataclass(frozen=True)
class NonfiniteInputs:
    """Inputs of reductions that were NaN or infinite since the count started; the same on all ranks.

    Attributes:
        elements: of all ranks' inputs together.
        operations: the number of reductions that had such inputs.
        operation: the first such reduction, such as "all_reduce", or None.
        sequence: its number in the communicator, from 1, or None.
        rank: the lowest rank with such an input in that reduction, or None.
        index: the first such element in that rank's array, or None.
    """

    elements: int
    operations: int
    operation: Optional[str]
    sequence: Optional[int]
    rank: Optional[int]
    index: Optional[int]


def read(handle: int, clear: bool) -> NonfiniteInputs:
    """Returns the counts of a communicator."""
    info = _raw.NonfiniteInfo(struct_size=ctypes.sizeof(_raw.NonfiniteInfo))
    check(lib.dsc_comm_nonfinite_info(handle, int(bool(clear)), byref(info)))
    if info.rank < 0:
        return NonfiniteInputs(info.elements, info.operations, None, None, None, None)
    name = info.operation.decode()
    return NonfiniteInputs(info.elements, info.operations, name, info.sequence, info.rank, info.index)


def set_check(handle: int, value: Any) -> None:
    """Sets what a communicator does about inputs that are NaN or infinite."""
    number = _dtypes.nonfinite_code(value)
    check(lib.dsc_comm_set_nonfinite_check(handle, number))
    _checks[handle] = number


def get_check(handle: int) -> NonfiniteName:
    """Returns the check that was set last."""
    return _NAMES[_checks.get(handle, 0)]


def inherit(parent: int, group: int) -> None:
    """Gives a new group the check of its parent."""
    if parent in _checks:
        _checks[group] = _checks[parent]


def forget(handle: int) -> None:
    """Removes a communicator that was closed, because its handle may be used again."""
    _checks.pop(handle, None)
