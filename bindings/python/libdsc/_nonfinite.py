"""NaN and infinity among the inputs of reductions."""

from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import dataclass
from typing import Any, Optional

from libdsc import _dtypes, _raw
from libdsc._library import check, lib
from libdsc._types import NonfiniteName

_checks: dict[int, int] = {}  # handle of a communicator -> what it was set to; OFF otherwise
_NAMES: tuple[NonfiniteName, ...] = ("off", "count", "fail")  # by number


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
    """Reads what a communicator has counted."""
    info = _raw.NonfiniteInfo(struct_size=ctypes.sizeof(_raw.NonfiniteInfo))
    check(lib.dsc_comm_nonfinite_info(handle, int(bool(clear)), byref(info)))
    if info.rank < 0:
        return NonfiniteInputs(info.elements, info.operations, None, None, None, None)
    name = info.operation.decode()
    return NonfiniteInputs(info.elements, info.operations, name, info.sequence, info.rank, info.index)


def set_check(handle: int, value: Any) -> None:
    """Sets what a communicator does about such inputs."""
    number = _dtypes.nonfinite_code(value)
    check(lib.dsc_comm_set_nonfinite_check(handle, number))
    _checks[handle] = number


def get_check(handle: int) -> NonfiniteName:
    """What was set last."""
    return _NAMES[_checks.get(handle, 0)]


def inherit(parent: int, group: int) -> None:
    """A group starts with its parent's check."""
    if parent in _checks:
        _checks[group] = _checks[parent]


def forget(handle: int) -> None:
    """The communicator is gone, and its handle may be used again."""
    _checks.pop(handle, None)
