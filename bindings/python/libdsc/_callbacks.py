"""Ends blocking calls that run Python callbacks before the interpreter ends.

A daemon thread may still be in such a call at the end of the program. Once the interpreter has ended, no Python
function can run: Python would end the thread that tries to run one, in the middle of the library's code.
"""

from __future__ import annotations

import time
from typing import Any, Callable, TypeVar

from libdsc import errors

Result = TypeVar("Result")

POLL_S = 0.001

# The calls in progress. The key is a unique token; the value is a function that makes the call return.
_running: dict[object, Callable[[], None]] = {}
_ending = False


def is_ending() -> bool:
    """Says whether the interpreter has begun to end."""
    return _ending


def require_interpreter() -> None:
    """Raises StateError if the interpreter has begun to end."""
    if _ending:
        raise errors.StateError("the Python interpreter is shutting down, so the library cannot call a Python function any more")


def call(stop: Callable[[], None], run: Callable[..., Result], *arguments: Any) -> Result:
    """Makes a library call that runs Python callbacks. stop() makes it return, and may be called from any thread."""
    token = object()
    _running[token] = stop
    try:
        require_interpreter()
        return run(*arguments)
    finally:
        del _running[token]


def end(limit_s: float) -> None:
    """Stops all calls that run callbacks, and refuses new ones. It waits at most limit_s seconds for them."""
    global _ending
    _ending = True
    for stop in list(_running.values()):
        stop()
    deadline = time.monotonic() + limit_s
    while _running and time.monotonic() < deadline:
        time.sleep(POLL_S)
