"""How long operations may take, as the communicators of this process were told; the library does not give it back."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Optional

from libdsc import _raw
from libdsc._library import check, lib

_given: dict[int, int] = {}  # handle of a communicator -> milliseconds, where they are not the default


def default_ms() -> int:
    """That of a world that was given none."""
    options = _raw.InitOptions()
    check(lib.dsc_init_options_init(byref(options), ctypes.sizeof(options)))
    return int(options.timeout_ms)


def joined(handle: int, options: Optional[_raw.InitOptions]) -> None:
    """A world that exists already keeps what it has, also where set_timeout() has changed it."""
    if options is not None:
        _given.setdefault(handle, options.timeout_ms)


def set_ms(handle: int, timeout_ms: int) -> None:
    """What operations get that start from now on."""
    _given[handle] = timeout_ms


def get_ms(handle: int) -> int:
    """What a communicator's operations get."""
    return _given.get(handle) or default_ms()


def inherit(parent: int, group: int, options: _raw.GroupOptions) -> None:
    """A group has its parent's time-out unless it was given its own."""
    _given[group] = options.timeout_ms or get_ms(parent)


def forget(handle: int) -> None:
    """The communicator is gone, and its handle may be used again."""
    _given.pop(handle, None)
