"""The words of the C interface in its messages, said as a program in Python knows them."""

from __future__ import annotations

import re
from typing import Any

from libdsc._raw import Backend, Result

_CHECKED = (Result.ERR_INVALID_ARG, Result.ERR_UNSUPPORTED, Result.ERR_CONFIG)  # others may quote a program's own text


def _backend(found: re.Match[str]) -> str:
    try:
        return f"{found[1]}{Backend(int(found[2])).name.lower()}"
    except ValueError:
        return found[0]


_WORDS: list[tuple[re.Pattern[str], Any]] = [
    (re.compile(r"\bcosts->n is (\d+)"), r"the longest list of costs has \1 values"),
    (re.compile(r"\b\w+->(\w+)"), r"\1"),
    (re.compile(r"\bdsc_pipe_run_bytes\(\)"), "PipeSchedule.run_bytes()"),
    (re.compile(r"\bNULL\b"), "None"),
    (re.compile(r"\b(backend[= ])(\d+)\b"), _backend),
    (re.compile(r"\b0 \(auto\) or 2 \(nccl\) with a device"), "auto or nccl with a device"),
]


def in_python(code: int, message: str) -> str:
    """A message of the library, with the names of this package."""
    if code in _CHECKED:
        for pattern, said in _WORDS:
            message = pattern.sub(said, message)
    return message
