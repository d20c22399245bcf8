"""Converts the costs of a pipeline (computation, messages and memory) to the C struct."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_double
from typing import Any, Sequence, Union

from libdsc import _raw
from libdsc._arguments import brief, real
from libdsc._library import check, lib

Values = Union[float, Sequence[float]]

_LISTS = (
    "forward",
    "backward_input",
    "backward_weight",
    "message_bytes",
    "activation_bytes",
    "static_bytes",
    "gradient_bytes",
)
_NUMBERS = ("overlap", "bytes_per_time", "bucket_bytes", "reduce_latency", "reduce_bytes_per_time")


def costs_of(comm: float = 0, **costs: Any) -> tuple[Any, list[Any]]:
    """Returns the C struct, and a list of the objects that must stay alive with it."""
    raw = _raw.PipeCosts()
    check(lib.dsc_pipe_costs_init(byref(raw), ctypes.sizeof(raw)))
    raw.latency = real("comm", comm)
    lists = {name: _values(name, costs.pop(name)) for name in _LISTS if costs.get(name) is not None}
    raw.n = max((len(values) for values in lists.values()), default=1)
    keep = []
    for name, values in lists.items():
        if len(values) not in (1, raw.n):
            raise ValueError(f"{name} has {len(values)} values; expected 1 or {raw.n}, because another list of costs has {raw.n} values")
        array = (c_double * raw.n)(*(values * raw.n if len(values) == 1 else values))
        setattr(raw, name, array)
        keep.append(array)
    for name in _NUMBERS:
        if costs.get(name) is not None:
            setattr(raw, name, real(name, costs.pop(name)))
    if unknown := [name for name, value in costs.items() if value is not None]:
        raise TypeError(f"unknown cost {unknown[0]!r}; expected one of {', '.join(('comm',) + _LISTS + _NUMBERS)}")
    return raw, keep


def _values(argument: str, value: Any) -> list[float]:
    """Returns a list with one number for all parts of the model, or with one number for each part."""
    if hasattr(value, "__len__") and not isinstance(value, (str, bytes)):
        if len(value) == 0:
            raise ValueError(f"{argument} is {brief(value)}; expected a number, or one for each part of the model")
        return [real(f"{argument}[{i}]", number) for i, number in enumerate(value)]
    return [real(argument, value)]
