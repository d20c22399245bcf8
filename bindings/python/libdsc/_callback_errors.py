"""How a function of the program that raised reports this to the library, whose errors on all ranks say why."""

from __future__ import annotations

from ctypes import c_void_p, memmove
from typing import Any

FAILED = 1


def failed(call: Any, error: BaseException) -> int:
    """Writes the exception, on one line and ended by a zero, to the error field of a callback's struct.

    What does not fit is cut. Returns the number by which the callback reports a failure.
    """
    text = f"{type(error).__name__}: {error}".replace("\0", " ")
    fitting = " ".join(text.split()).encode(errors="replace")[: call.error_capacity - 1]
    line = fitting.decode(errors="ignore").encode() + b"\0"
    field = vars(type(call))["error"]  # reading call.error would make a copy
    memmove(c_void_p.from_buffer(call, field.offset), line, len(line))
    return FAILED
