"""Finds and loads the shared library, and turns its results into exceptions."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any, NoReturn, Optional, TypeVar

from libdsc import _raw, errors

SYSTEM_NAME = f"libdsc.so.{_raw.SOVERSION}"
Kind = TypeVar("Kind", bound="Shared")
ROOM_BYTES = 1 << 14  # the first size of the buffer for a list or text


def _is_loaded() -> bool:
    """Returns whether this process has loaded the library, for example because a framework in C uses it."""
    try:
        ctypes.CDLL(SYSTEM_NAME, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _candidates() -> list[tuple[str, str]]:
    """Returns pairs (where, path) to try: DSC_LIBRARY if it is set, otherwise the packaged and the system's file.

    A library that is already loaded is the only choice, because a second copy would have a world of its own.
    """
    named = os.environ.get("DSC_LIBRARY")
    if named:
        return [("DSC_LIBRARY", named)]
    if _is_loaded():
        return [("in this process", SYSTEM_NAME)]
    packaged = pathlib.Path(__file__).resolve().parent / SYSTEM_NAME
    return [("in the package", str(packaged)), ("in the system", SYSTEM_NAME)]


def _load() -> ctypes.CDLL:
    tried = []
    for where, path in _candidates():
        try:
            library = _raw.load(path)
        except (OSError, AttributeError) as error:
            tried.append(f"  {where}: {path}: {error}")
            continue
        return _checked(library, path)
    advice = (
        "`pip install .` at the root of libdsc's source tree compiles the library and installs it in the package; "
        "`./dev wheel` builds a wheel that contains it. To use another libdsc.so, set DSC_LIBRARY to its path."
    )
    raise ImportError("libdsc.so could not be loaded; tried\n" + "\n".join(tried) + "\n" + advice)


def _checked(library: ctypes.CDLL, path: str) -> ctypes.CDLL:
    """Raises ImportError if the library has another major version, or is older than these bindings."""
    found = (ctypes.c_int32 * 3)()
    parts = [ctypes.byref(found, 4 * part) for part in range(3)]
    library.dsc_version(*(ctypes.cast(part, ctypes.POINTER(ctypes.c_int32)) for part in parts))
    major, minor, patch = found
    if major != _raw.VERSION_MAJOR or minor < _raw.VERSION_MINOR:
        wanted = f"{_raw.VERSION_MAJOR}.{_raw.VERSION_MINOR} or a newer {_raw.VERSION_MAJOR}.x"
        raise ImportError(f"{path} is version {major}.{minor}.{patch}; this package needs {wanted}")
    return library


lib = _load()


def version() -> tuple[int, int, int]:
    """Returns (major, minor, patch) of the library that was loaded."""
    major, minor, patch = ctypes.c_int32(), ctypes.c_int32(), ctypes.c_int32()
    check(lib.dsc_version(ctypes.byref(major), ctypes.byref(minor), ctypes.byref(patch)))
    return major.value, minor.value, patch.value


def feature(name: str) -> bool:
    """Says whether the library offers a feature: "host", "nccl", "cuda", "pmix", "gloo" or "pipeline"."""
    available = ctypes.c_int32()
    check(lib.dsc_feature(name.encode(), ctypes.byref(available)))
    return bool(available.value)


def last_message() -> str:
    """Returns the text of this thread's latest failing call."""
    text: bytes = lib.dsc_last_error_message()
    return text.decode(errors="replace")


def last_info() -> _raw.ErrorInfo:
    """Returns what is known of this thread's latest failing call."""
    info = _raw.ErrorInfo(struct_size=ctypes.sizeof(_raw.ErrorInfo))
    lib.dsc_last_error_info(ctypes.byref(info))
    return info


def last_ranks() -> tuple[int, ...]:
    """Returns the ranks at fault in this thread's latest failing call."""
    info = last_info()
    return tuple(info.ranks[: min(info.n_ranks, len(info.ranks))])


def fail(code: int) -> NoReturn:
    """Raises the exception of a failed call that does not belong to a communicator."""
    raise errors.from_code(code, last_message())


def check(code: int) -> int:
    """Raises an exception if the result is an error; otherwise returns it."""
    if code < 0:
        fail(code)
    return code


def list_of(element: Any, function: Any, *arguments: Any) -> Any:
    """Returns the list that a function writes to its last arguments.

    It retries if the list has grown between two calls.
    """
    n = ctypes.c_size_t(ROOM_BYTES // ctypes.sizeof(element))
    while True:
        room = (element * (n.value + n.value // 8))()
        if hasattr(element, "struct_size"):
            room[0].struct_size = ctypes.sizeof(element)
        if check(function(*arguments, room, len(room), ctypes.byref(n))) != _raw.Result.TRUNCATED:
            return room[: n.value]


def text_of(function: Any, *arguments: Any) -> str:
    """Returns the text that a function writes to its last arguments."""
    text: bytes = list_of(ctypes.c_char, function, *arguments)[:-1]
    return text.decode(errors="replace")


def give_settings(options: Any, named: dict[str, Optional[bytes]]) -> None:
    """Stores backend settings that are not None in options. The name "nccl_library" becomes "nccl.library"."""
    pairs = ((name.replace("_", ".", 1).encode(), value) for name, value in named.items())
    given = [_raw.Setting(name, value) for name, value in pairs if value is not None]
    options.settings, options.n_settings = (_raw.Setting * len(given))(*given), len(given)


class OnlyOne:
    """Base class of objects that own a handle of the library.

    They cannot be copied: a copy would free the handle twice.
    """

    __slots__ = ()

    def __reduce_ex__(self, _: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled; expected the object itself, in the process that created it")


class Shared(OnlyOne):
    """Base class of objects that are shared by copies of their holder, such as the communicator of a module."""

    __slots__ = ()

    def __copy__(self: Kind) -> Kind:
        return self

    def __deepcopy__(self: Kind, _: Any) -> Kind:
        return self
