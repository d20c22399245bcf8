"""Numbers and names that the caller gives, checked before C gets them: it would cut a number that is too large."""

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
    """An integer of a range, and no bool; expected is what an error says instead of that range."""
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
    """The argument dim, a dimension of an array that may count from its end; returned from 0 on."""
    if dimensions == 0:
        raise ValueError(f"{array} has no dimensions; expected one or more")
    return integer("dim", value, -dimensions, dimensions - 1) % dimensions


def _bound(number: int) -> str:
    """A limit as people write it."""
    if number == -(2**31):
        return "-2**31"
    is_power = number > 2**24 and number & (number + 1) == 0
    return f"2**{number.bit_length()} - 1" if is_power else str(number)


def boolean(argument: str, value: Any) -> bool:
    """A choice of two: Python's or numpy's bool, or 0 or 1. Others are refused: "no", for example, counts as true."""
    if type(value).__name__.startswith("bool") or isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise TypeError(f"{argument} is {brief(value)}; expected True or False")


def integers(argument: str, values: Sequence[Any], least: int, most: int) -> list[int]:
    """Several of them; an error names the one that is wrong."""
    try:
        each = iter(values)
    except TypeError:
        raise TypeError(f"{argument} is {brief(values)}; expected a list of integers") from None
    return [integer(f"{argument}[{index}]", value, least, most) for index, value in enumerate(each)]


def sizes_of_ranks(argument: str, values: Sequence[Any], ranks: int) -> list[int]:
    """The sizes of all ranks' parts."""
    sizes = integers(argument, values, *SIZE)
    if len(sizes) != ranks:
        raise ValueError(f"{argument} has {len(sizes)} sizes; expected {ranks}, one per rank")
    return sizes


def member(argument: str, value: Any, size: int) -> int:
    """A rank of a communicator; the library itself says what is wrong with one that C can take."""
    return integer(argument, value, *INT32, expected=f"0 to {size - 1}")


def ranks_text(size: int) -> str:
    """The size of a group as errors say it."""
    return f"this group has {size} rank{'' if size == 1 else 's'}"


def extents(argument: str, shape: Union[int, Sequence[int]]) -> tuple[int, ...]:
    """The shape of an array, of one extent or several."""
    if isinstance(shape, (tuple, list)):
        return tuple(integers(argument, shape, 0, INT64_MOST))
    return (integer(argument, shape, 0, INT64_MOST),)


def string(argument: str, value: Any) -> bytes:
    """A text for C."""
    if not isinstance(value, str):
        raise TypeError(f"{argument} is {brief(value)}; expected a string")
    if "\0" in value:
        raise ValueError(f"{argument} is {value!r}; expected a string without zero bytes")
    return value.encode()


def optional_string(argument: str, value: Optional[Any]) -> Optional[bytes]:
    """A text for C that may be left out."""
    return None if value is None else string(argument, value)


def real(argument: str, value: Any) -> float:
    """A number, such as of seconds, but not a bool."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{argument} is {brief(value)}; expected a number")
    return float(value)


Seconds = Union[float, timedelta]


def seconds_of(value: Seconds, argument: str = "timeout") -> float:
    """A time-out, which may be a timedelta, in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else real(argument, value)


def wait_seconds(timeout: Optional[Seconds]) -> Optional[float]:
    """How long a wait may take in seconds, which may be 0; None: until the end."""
    if timeout is None:
        return None
    seconds = seconds_of(timeout)
    if not seconds >= 0:
        raise ValueError(f"timeout is {timeout}; expected a number of seconds of 0 or more, or None")
    return seconds


def milliseconds(timeout: Seconds, argument: str = "timeout") -> int:
    """A time-out as the library wants it, never rounded down to nothing."""
    seconds = seconds_of(timeout, argument)
    if not seconds > 0:
        raise ValueError(f"{argument} is {timeout}; expected a number of seconds above 0")
    return math.ceil(min(TIMEOUT_MOST_MS, seconds * 1000))


_ORDERED = ("out", "x", "op", "root", "peer")


def with_order(error: Exception, method: Any) -> Exception:
    """An error about the arguments of an operation, such as two that changed places, with the order that they have."""
    if method is None or type(error) not in (TypeError, ValueError):
        return error
    parameters = list(inspect.signature(method).parameters)[1:]
    names = list(itertools.takewhile(_ORDERED.__contains__, parameters))
    is_of_sizes = " elements; expected " in str(error) and {"out", "x"} <= set(names)
    if len(names) > 1 and (isinstance(error, TypeError) or is_of_sizes):
        error.args = (f"{error}; the order of arguments is {method.__name__}({', '.join(names)})",)
    return error


def expect_communicator(name: str, value: Any) -> None:
    """Raises TypeError for what is none, such as arguments in another order."""
    from libdsc._communicator import Communicator  # which imports this module

    if not isinstance(value, Communicator):
        raise TypeError(f"{name} is a {type(value).__name__}; expected a Communicator, such as libdsc.world()")
