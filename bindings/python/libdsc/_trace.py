"""Traces of the flight recorder: the last operations of every group, and their progress."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

from libdsc import errors
from libdsc._library import check, lib
from libdsc._raw import Result

Path = Union[str, bytes, "os.PathLike[str]"]


def dump_trace(handle: int, path: Optional[Path]) -> None:
    check(lib.dsc_trace_dump(handle, None if path is None else os.fsencode(path)))


def request_trace_dump() -> None:
    """Requests the trace files of all worlds of this process, in DSC_TRACE_DIR.

    A thread of the library writes them soon, even if all other threads are stuck. C programs may call the underlying
    function from a signal handler.
    """
    code: Any = lib.dsc_trace_dump_request()
    if code == Result.ERR_STATE:
        raise errors.from_code(code, "request_trace_dump: no world of this process was initialized with DSC_TRACE_DIR set")
    if code < 0:
        raise errors.from_code(code, "request_trace_dump: called in a child made by fork()")
