"""Finds and loads libdsc_jax.so, whose functions XLA calls, and makes them known to JAX."""

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


def _candidates() -> list[tuple[str, str]]:
    """(where, path): what DSC_JAX_LIBRARY names and nothing else, or beside libdsc.so, in the package, of the system."""
    named = os.environ.get("DSC_JAX_LIBRARY")
    if named:
        return [("DSC_JAX_LIBRARY", named)]
    found = [("in the package", str(pathlib.Path(__file__).resolve().parent.parent / FILE)), ("of the system", FILE)]
    folder = os.path.dirname(str(lib._name))
    return [("beside libdsc.so", os.path.join(folder, FILE))] + found if folder else found


def _load() -> ctypes.CDLL:
    tried = []
    for where, path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"  {where}: {path}: {error}")
    advice = "It is built and installed with libdsc.so; set DSC_JAX_LIBRARY to the path of one."
    raise ImportError(f"{FILE} could not be loaded; tried\n" + "\n".join(tried) + "\n" + advice)


def _register(handlers: ctypes.CDLL) -> None:
    if not hasattr(jax, "ffi"):
        raise ImportError(f"jax is version {jax.__version__}; libdsc.jax needs 0.5 or newer, which has jax.ffi")
    for name in HANDLERS:
        function: Any = getattr(handlers, PREFIX + name)
        jax.ffi.register_ffi_target(PREFIX + name, jax.ffi.pycapsule(function), platform="cpu")


def latest_failure() -> _raw.ErrorInfo:
    """What is known of the latest failure of a handler, whichever thread it was on."""
    info = _raw.ErrorInfo(struct_size=ctypes.sizeof(_raw.ErrorInfo))
    _handlers.dsc_jax_latest_failure(ctypes.byref(info))
    return info


_handlers = _load()
_register(_handlers)
