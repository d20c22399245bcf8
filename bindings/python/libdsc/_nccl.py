"""Finds NCCL in a wheel of this interpreter. The library cannot see it, because it searches only the system's paths."""

from __future__ import annotations

import _ctypes
import os
import sys
from typing import Any, Iterator, Optional

from libdsc import _streams

WHEEL = os.path.join("nvidia", "nccl", "lib", "libnccl.so.2")
SYMBOL = "ncclGetVersion"  # a function in every copy of NCCL, whatever the name of its file

# Module _ctypes contains dlopen() and similar functions, which type checkers do not know.
_dl: Any = _ctypes

# The path found for an earlier start-up. Later calls with equal options must pass the same path.
_used: Optional[str] = None


def wheel_for(device_wanted: bool) -> Optional[str]:
    """Returns the path of NCCL for a start-up that names none. None: the library searches for NCCL itself."""
    global _used
    if os.environ.get("DSC_NCCL_LIBRARY") or not (device_wanted or _streams.context_is_current()):
        return None
    if _used is not None and _is_loaded(_used):
        return _used
    _used = None if _some_copy_is_loaded() else next(_wheels(), None)
    return _used


def _wheels() -> Iterator[str]:
    """Yields the wheel's path in each folder of sys.path. Relative folders, such as the current one, are left out."""
    for folder in sys.path:
        if isinstance(folder, str) and os.path.isabs(folder):
            path = os.path.join(folder, WHEEL)
            if os.path.isfile(path):
                yield path


def _is_loaded(path: str) -> bool:
    try:
        _dl.dlclose(_dl.dlopen(path, os.RTLD_NOLOAD | os.RTLD_LAZY))
    except OSError:
        return False
    return True


def _some_copy_is_loaded() -> bool:
    return any(_has_symbol(path) for path in _mapped_libraries())


def _mapped_libraries() -> set[str]:
    """Returns the paths of this process's executable mapped files, which may be libraries."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            fields = [line.rstrip("\n").split(maxsplit=5) for line in maps]
    except OSError:
        return set()
    return {field[5] for field in fields if len(field) == 6 and field[5].startswith("/") and "x" in field[1]}


def _has_symbol(path: str) -> bool:
    try:
        handle = _dl.dlopen(path, os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False  # not a library, or the program itself
    try:
        _dl.dlsym(handle, SYMBOL)
    except OSError:
        return False
    finally:
        _dl.dlclose(handle)
    return True
