"""Reports an exception of a Python callback to the library, which adds it to the errors of all ranks."""

from __future__ import annotations

from ctypes import c_void_p, memmove
from typing import Any

FAILED = 1


def failed(call: Any, error: BaseException) -> int:
    """Writes the exception to the error field of a callback's struct, on one line and zero-terminated.

    A text that is too long is cut. Returns the number that the callback must return after a failure.
    """
    text = f"{type(error).__name__}: {error}".replace("\0", " ")
    fitting = " ".join(text.split()).encode(errors="replace")[: call.error_capacity - 1]
    line = fitting.decode(errors="ignore").encode() + b"\0"
    field = vars(type(call))["error"]  # reading call.error would copy the value
    memmove(c_void_p.from_buffer(call, field.offset), line, len(line))
    return FAILED
