"""Reduces the package's part of a traceback to one frame, that of the public function that was called.

Functions that programs call often catch and raise by themselves, which costs nothing unless an exception is raised:

    except Exception as error:
        raise shown(error)

All other public functions get a wrapper that does the same. The wrappers are made when the package is imported.
"""

from __future__ import annotations

import enum
import functools
import inspect
import opcode
import os
import sys
import types
from typing import Any, Optional, TypeVar

from libdsc.errors import InternalError

E = TypeVar("E", bound=BaseException)

FULL = "DSC_PYTHON_TRACEBACK"  # the value "full" shows all frames

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep
_PACKAGES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_RAISE = opcode.opmap["RAISE_VARARGS"]
_CALLED = ("__call__", "__enter__", "__exit__", "__iter__", "__len__", "__getitem__", "__setitem__")


def shown(error: E) -> E:
    """Removes the inner frames of the package from an exception's traceback. The function that raises it adds its own.

    The frames remain if they show a fault of the package itself: if the exception was not raised by a raise statement,
    or is an InternalError. Frames of functions that the package called back always remain.
    """
    whole = last = trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        last, trace = trace, trace.tb_next
    is_meant = last is not None and _is_raise(last) if trace is None else not _is_standard(trace)
    if not is_meant or isinstance(error, InternalError) or os.environ.get(FULL) == "full":
        # The frame of a wrapper is removed, because the wrapper adds it again. The first frame of any other function
        # has the line at fault.
        return error.with_traceback(whole.tb_next if whole and whole.tb_frame.f_code.co_filename == __file__ else whole)
    return error.with_traceback(trace)


def _is_raise(trace: types.TracebackType) -> bool:
    """Whether a traceback entry is at a raise statement."""
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE


def _is_standard(trace: types.TracebackType) -> bool:
    """Whether a traceback continues in the standard library, where arguments from this package may be the cause."""
    name = trace.tb_frame.f_code.co_filename
    return name.startswith((_STANDARD, "<frozen ")) and not any(folder in name for folder in _PACKAGES)


def bound(function: Any) -> Any:
    """Returns a wrapper of the function whose tracebacks have one frame."""
    if {"shown", "_shown"} & set(function.__code__.co_names) or inspect.isgeneratorfunction(function):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise shown(error)

    call.__code__ = call.__code__.replace(co_name=function.__name__)  # the name in tracebacks
    return call


def bind(namespace: dict[str, Any], constructed: tuple[type, ...], others: tuple[type, ...]) -> None:
    """Wraps the public functions of the package, and the methods of its public classes and of some other classes.

    Constructors are wrapped only for the classes that programs construct.
    """
    for name in namespace["__all__"]:
        value = namespace[name]
        if isinstance(value, types.FunctionType):
            namespace[name] = made = bound(value)
            setattr(sys.modules[value.__module__], name, made)  # pickle looks up the function there
        elif isinstance(value, type) and not issubclass(value, (Exception, enum.Enum)):
            bases = tuple(base for base in value.__mro__ if base.__module__.startswith("libdsc."))
            for base in bases[1:]:
                _name_after(value.__name__, base)
            others += bases
    for kind in dict.fromkeys(others):
        names = _CALLED + (("__init__",) if kind in constructed else ())
        for name, value in list(vars(kind).items()):
            replaced = _bound_member(value) if name in names or not name.startswith("_") else None
            if replaced is not None:
                setattr(kind, name, replaced)


def _name_after(public: str, base: type) -> None:
    """Names the methods of a base after the public class, which Python's own errors about arguments then show."""
    for value in vars(base).values():
        if isinstance(value, types.FunctionType):
            value.__qualname__ = f"{public}.{value.__name__}"


def _bound_member(value: Any) -> Optional[Any]:
    """Returns a wrapped member of a class; None if the member cannot raise."""
    if isinstance(value, types.FunctionType):
        return bound(value)
    if isinstance(value, (classmethod, staticmethod)):
        return type(value)(bound(value.__func__))
    if isinstance(value, property) and value.fget is not None and len(value.fget.__code__.co_names) > 1:
        return property(bound(value.fget), value.fset and bound(value.fset), None, value.__doc__)
    return None
