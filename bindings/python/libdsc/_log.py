"""Log records of the library, which is silent unless DSC_LOG is set or these are used."""

from __future__ import annotations

import atexit
import ctypes
from ctypes import byref, c_int32
from typing import Any, Callable, Optional

from libdsc import _dtypes, _raw
from libdsc._library import check, lib

_callback: Any = None  # the library calls it, so it must live


def set_log(callback: Optional[Callable[[str, str], None]], level: Any = "info") -> None:
    """Sends log records to callback(level, message), on a thread of the library; None ends that.

    Args:
        callback: takes the level's name, such as "warn", and one line. It must not call into libdsc.
        level: the least urgent level it receives: "error", "warn", "info" or "debug".
    """
    global _callback

    def receive(ctx: Any, number: int, message: bytes) -> None:
        assert callback is not None
        callback(_level_name(number), message.decode(errors="replace"))

    made = _raw.LogFn(0) if callback is None else _raw.LogFn(receive)
    check(lib.dsc_log_set_callback(made, None, _dtypes.level_code(level)))
    _callback = made


def read_log(level: Any = "info") -> Optional[tuple[str, str]]:
    """Takes the oldest record: (level, message), or None when there is none.

    The first call starts the recording at that level; "off" stops it.
    """
    text, number = ctypes.create_string_buffer(2048), c_int32()
    code = check(lib.dsc_log_read(_dtypes.level_code(level), text, len(text), byref(number)))
    if code == _raw.Result.DONE:
        return None
    return _level_name(number.value), text.value.decode(errors="replace")


def _level_name(number: int) -> str:
    return _raw.LogLevel(number).name.lower()


@atexit.register
def _remove() -> None:
    """The interpreter goes before the library's log thread does."""
    if _callback is not None:
        lib.dsc_log_set_callback(_raw.LogFn(0), None, 0)
