"""Checks of numbers and strings that the caller passes. ctypes would silently truncate a number that is too large."""

from __future__ import annotations

import inspect
import itertools
import math
import numbers
import operator
import reprlib
from datetime import timedelta
from typing import Any, Optional, Sequence, Union

INT32 = (-(2**31), 2**31 - 1)
INT64_MOST = 2**63 - 1
SIZE = (0, 2**64 - 1)
TIMEOUT_MOST_MS = 2**31 - 1


def brief(value: Any) -> str:
    """A wrong argument as an error shows it: an array by its shape and type, other values by a shortened repr()."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and hasattr(value, "dtype"):
        return f"a {type(value).__name__} of shape {tuple(shape)} and type {value.dtype}"
    return reprlib.repr(value)


def integer(argument: str, value: Any, least: int = INT32[0], most: int = INT32[1], expected: str = "") -> int:
    """Returns the value as an integer from least to most. A bool is refused.

    expected replaces the range in the error message.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{argument} is {brief(value)}; expected an integer") from None
    if not least <= number <= most:
        raise ValueError(f"{argument} is {number}; expected {expected or f'{_bound(least)} to {_bound(most)}'}")
    return number


def dimension(value: Any, dimensions: int, array: str) -> int:
    """Returns the argument dim as a number from 0 on. The caller may pass a negative number, counted from the end."""
    if dimensions == 0:
        raise ValueError(f"{array} has no dimensions; expected one or more")
    return integer("dim", value, -dimensions, dimensions - 1) % dimensions


def _bound(number: int) -> str:
    """Returns a limit as text; powers of 2 are written as powers."""
    if number == -(2**31):
        return "-2**31"
    is_power = number > 2**24 and number & (number + 1) == 0
    return f"2**{number.bit_length()} - 1" if is_power else str(number)


def boolean(argument: str, value: Any) -> bool:
    """Accepts Python's or numpy's bool, 0 and 1.

    Other values are refused, because a string such as "no" would be true.
    """
    if type(value).__name__.startswith("bool") or isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise TypeError(f"{argument} is {brief(value)}; expected True or False")


def integers(argument: str, values: Sequence[Any], least: int, most: int) -> list[int]:
    """Returns a list of integers. An error names the entry that is wrong."""
    try:
        each = iter(values)
    except TypeError:
        raise TypeError(f"{argument} is {brief(values)}; expected a list of integers") from None
    return [integer(f"{argument}[{index}]", value, least, most) for index, value in enumerate(each)]


def sizes_of_ranks(argument: str, values: Sequence[Any], ranks: int) -> list[int]:
    """Returns the sizes of the parts of all ranks, one per rank."""
    sizes = integers(argument, values, *SIZE)
    if len(sizes) != ranks:
        raise ValueError(f"{argument} has {len(sizes)} sizes; expected {ranks}, one per rank")
    return sizes


def member(argument: str, value: Any, size: int) -> int:
    """Returns a rank of a communicator.

    Only the range of C's int32 is checked here; the library checks the rank itself.
    """
    return integer(argument, value, *INT32, expected=f"0 to {size - 1}")


def ranks_text(size: int) -> str:
    """Returns the size of a group as a phrase for error messages."""
    return f"this group has {size} rank{'' if size == 1 else 's'}"


def extents(argument: str, shape: Union[int, Sequence[int]]) -> tuple[int, ...]:
    """Returns the shape of an array, which the caller may pass as one integer or as a sequence of integers."""
    if isinstance(shape, (tuple, list)):
        return tuple(integers(argument, shape, 0, INT64_MOST))
    return (integer(argument, shape, 0, INT64_MOST),)


def string(argument: str, value: Any) -> bytes:
    """Returns a string as bytes for C."""
    if not isinstance(value, str):
        raise TypeError(f"{argument} is {brief(value)}; expected a string")
    if "\0" in value:
        raise ValueError(f"{argument} is {value!r}; expected a string without zero bytes")
    return value.encode()


def optional_string(argument: str, value: Optional[Any]) -> Optional[bytes]:
    """Returns a string as bytes for C, or None if the argument is None."""
    return None if value is None else string(argument, value)


def real(argument: str, value: Any) -> float:
    """Returns a number such as seconds as a float. A bool is refused."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{argument} is {brief(value)}; expected a number")
    return float(value)


Seconds = Union[float, timedelta]


def seconds_of(value: Seconds, argument: str = "timeout") -> float:
    """Returns a time-out, a number or a timedelta, in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else real(argument, value)


def wait_seconds(timeout: Optional[Seconds]) -> Optional[float]:
    """Returns the longest time of a wait in seconds, which may be 0. None means no limit."""
    if timeout is None:
        return None
    seconds = seconds_of(timeout)
    if not seconds >= 0:
        raise ValueError(f"timeout is {timeout}; expected a number of seconds of 0 or more, or None")
    return seconds


def milliseconds(timeout: Seconds, argument: str = "timeout") -> int:
    """Returns a time-out in milliseconds for the library. It is rounded up, so that a small one does not become 0."""
    seconds = seconds_of(timeout, argument)
    if not seconds > 0:
        raise ValueError(f"{argument} is {timeout}; expected a number of seconds above 0")
    return math.ceil(min(TIMEOUT_MOST_MS, seconds * 1000))


_ORDERED = ("out", "x", "op", "root", "peer")


def with_order(error: Exception, method: Any) -> Exception:
    """Adds the order of the operation's arguments to an error that may be due to swapped arguments."""
    if method is None or type(error) not in (TypeError, ValueError):
        return error
    parameters = list(inspect.signature(method).parameters)[1:]
    names = list(itertools.takewhile(_ORDERED.__contains__, parameters))
    is_of_sizes = " elements; expected " in str(error) and {"out", "x"} <= set(names)
    is_of_kind = isinstance(error, TypeError) and " has element type " not in str(error)
    if len(names) > 1 and (is_of_kind or is_of_sizes):
        error.args = (f"{error}; the order of arguments is {method.__name__}({', '.join(names)})",)
    return error


def expect_communicator(name: str, value: Any) -> None:
    """Raises TypeError unless the value is a Communicator, for example if the arguments are in the wrong order."""
    from libdsc._communicator import Communicator  # imported here, because that module imports this one

    if not isinstance(value, Communicator):
        raise TypeError(f"{name} is a {type(value).__name__}; expected a Communicator, such as libdsc.world()")
