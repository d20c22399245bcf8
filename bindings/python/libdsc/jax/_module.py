"""Finds and loads libdsc_jax.so, and registers its functions with JAX, so that XLA can call them."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any

import jax

from libdsc import _raw
from libdsc._library import lib

FILE = "libdsc_jax.so"
PREFIX = "dsc_jax_"
HANDLERS = ("all_reduce", "broadcast", "tensor_map", "send", "recv", "send_recv", "barrier")


class _Place(ctypes.Structure):
    """Dl_info of dladdr(): the file that contains a function."""

    file: Any

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def _folder_of_library() -> pathlib.Path:
    """Returns the folder of the libdsc.so that this process has loaded."""
    place = _Place()
    ctypes.CDLL(None).dladdr(ctypes.cast(lib.dsc_version, ctypes.c_void_p), ctypes.byref(place))
    return pathlib.Path(os.fsdecode(place.file or b"")).resolve().parent


def _candidates() -> list[str]:
    """Returns the paths to try: only DSC_JAX_LIBRARY if it is set, otherwise the folder of libdsc.so and its subfolder.

    Debian uses the subfolder libdsc.
    """
    named = os.environ.get("DSC_JAX_LIBRARY")
    folder = _folder_of_library()
    return [named] if named else [str(folder / FILE), str(folder / "libdsc" / FILE)]


def _load() -> ctypes.CDLL:
    tried = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"  {path}: {error}")
    advice = "It is built and installed together with libdsc.so; to use another one, set DSC_JAX_LIBRARY to its path."
    raise ImportError(f"{FILE} could not be loaded; tried\n" + "\n".join(tried) + "\n" + advice)


def _register(handlers: ctypes.CDLL) -> None:
    if not hasattr(jax, "ffi"):
        raise ImportError(f"jax is version {jax.__version__}; libdsc.jax needs 0.5 or newer, which has jax.ffi")
    for name in HANDLERS:
        function: Any = getattr(handlers, PREFIX + name)
        jax.ffi.register_ffi_target(PREFIX + name, jax.ffi.pycapsule(function), platform="cpu")


def latest_failure() -> _raw.ErrorInfo:
    """Returns what is known of the latest failure of a handler, on any thread."""
    info = _raw.ErrorInfo(struct_size=ctypes.sizeof(_raw.ErrorInfo))
    _handlers.dsc_jax_latest_failure(ctypes.byref(info))
    return info


_handlers = _load()
_register(_handlers)
