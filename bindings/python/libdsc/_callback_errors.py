"""Reports an exception of a Python callback to the library, which adds it to the errors of all ranks."""

from __future__ import annotations

from ctypes import c_void_p, memmove
from typing import Any

FAILED = 1


def _text_of(error: BaseException) -> str:
    """Returns the type and the text of an exception, also if its __str__ raises."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # no exception may leave a callback
        return name
    return f"{name}: {text}" if text else name


def failed(call: Any, error: BaseException) -> int:
    """Writes the exception to the error field of a callback's struct, on one line and zero-terminated.

    A text that is too long is cut. Returns the number that the callback must return after a failure.
    """
    text = _text_of(error).replace("\0", " ")
    fitting = " ".join(text.split()).encode(errors="replace")[: call.error_capacity - 1]
    line = fitting.decode(errors="ignore").encode() + b"\0"
    field = vars(type(call))["error"]  # reading call.error would copy the value
    memmove(c_void_p.from_buffer(call, field.offset), line, len(line))
    return FAILED
