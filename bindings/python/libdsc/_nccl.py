"""NCCL from a wheel in this interpreter's own folders, which the library, knowing only the environment, cannot see."""

from __future__ import annotations

import _ctypes
import os
import sys
from typing import Any, Iterator, Optional

from libdsc import _streams

WHEEL = os.path.join("nvidia", "nccl", "lib", "libnccl.so.2")
SYMBOL = "ncclGetVersion"  # what every copy has, whatever its file is called

_dl: Any = _ctypes  # dlopen and the like, which type checkers do not know there

_used: Optional[str] = None  # found and given to start-up: another call with equal options has to give it again


def wheel_for(device_wanted: bool) -> Optional[str]:
    """NCCL's file for a start-up that names none, or None: then the library looks by itself."""
    global _used
    if os.environ.get("DSC_NCCL_LIBRARY") or not (device_wanted or _streams.context_is_current()):
        return None
    if _used is not None and _is_loaded(_used):
        return _used
    _used = None if _some_copy_is_loaded() else next(_wheels(), None)
    return _used


def _wheels() -> Iterator[str]:
    """Where import would look; not below the folder that the program happens to stand in."""
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
    """The files of this process that may be libraries."""
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
        return False  # no library, or the program itself
    try:
        _dl.dlsym(handle, SYMBOL)
    except OSError:
        return False
    finally:
        _dl.dlclose(handle)
    return True
