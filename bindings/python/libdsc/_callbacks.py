"""Blocking calls that call functions of the program: they end before the interpreter does.

A daemon thread may still be inside one when the program ends. A function cannot be called once the interpreter is gone:
the thread that tries is ended by it in the middle of the library.
"""

from __future__ import annotations

import time
from typing import Any, Callable, TypeVar

from libdsc import errors

Result = TypeVar("Result")

POLL_S = 0.001

_running: dict[object, Callable[[], None]] = {}  # by an object of no meaning: what makes the call return
_ending = False


def is_ending() -> bool:
    """Says whether the interpreter has begun to end."""
    return _ending


def require_interpreter() -> None:
    """Raises when it has."""
    if _ending:
        raise errors.StateError("the Python interpreter is shutting down, so the library cannot call a Python function any more")


def call(stop: Callable[[], None], run: Callable[..., Result], *arguments: Any) -> Result:
    """Runs a call into the library that calls back; stop(), from any thread, has to make it return."""
    token = object()
    _running[token] = stop
    try:
        require_interpreter()
        return run(*arguments)
    finally:
        del _running[token]


def end(limit_s: float) -> None:
    """Makes such calls return, and refuses new ones. A function that takes longer than the limit is left behind."""
    global _ending
    _ending = True
    for stop in list(_running.values()):
        stop()
    deadline = time.monotonic() + limit_s
    while _running and time.monotonic() < deadline:
        time.sleep(POLL_S)
