"""Planning for causal attention: the tokens that a rank holds, and the part of the attention that it computes."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t
from typing import Any, Literal, NamedTuple, Optional, Sequence, Union

from libdsc import _raw
from libdsc._arguments import INT32, SIZE, dimension, integer
from libdsc._library import check, lib
from libdsc._memory import numpy_module
from libdsc._raw import SequenceOrder
from libdsc._tensor_map import named

OrderName = Union[Literal["zigzag", "contiguous"], SequenceOrder]


class CausalWork(NamedTuple):
    """A part of a causal attention: which of this rank's queries see which keys of a block.

    queries is a slice of the tokens of this rank, and keys is a slice of the tokens of the block's rank.
    """

    queries: slice
    keys: slice
    # True: query i sees the keys up to i. False: all of these queries see all of these keys.
    is_diagonal: bool


def sequence_ranges(count: int, ranks: int, rank: int, order: OrderName = "zigzag") -> tuple[range, range]:
    """Returns the two ranges of a sequence that a rank holds, in the order in which it holds them.

    In "zigzag" order the sequence has 2 * ranks chunks, and the ranges are chunks rank and 2 * ranks - 1 - rank. In
    "contiguous" order the second range is empty.
    """
    begins, lengths = (c_size_t * 2)(), (c_size_t * 2)()
    sizes = (integer("count", count, *SIZE), integer("ranks", ranks, *INT32), integer("rank", rank, *INT32))
    check(lib.dsc_sequence_ranges(named("order", SequenceOrder, order), *sizes, begins, lengths))
    first, second = (range(begin, begin + length) for begin, length in zip(begins, lengths))
    return first, second


def causal_work(count: int, ranks: int, rank: int, source: int, order: OrderName = "zigzag") -> Optional[CausalWork]:
    """Returns the part of a causal attention that a rank computes with the keys of rank source. None: no part."""
    work = _raw.SequenceCausalRange(struct_size=ctypes.sizeof(_raw.SequenceCausalRange))
    sizes = (integer("count", count, *SIZE), integer("ranks", ranks, *INT32))
    pair = (integer("rank", rank, *INT32), integer("source", source, *INT32))
    check(lib.dsc_sequence_causal_range(named("order", SequenceOrder, order), *sizes, *pair, byref(work)))
    if not work.query_count or not work.key_count:
        return None
    queries = slice(work.query_begin, work.query_begin + work.query_count)
    return CausalWork(queries, slice(work.key_begin, work.key_begin + work.key_count), bool(work.is_diagonal))


def take_tokens(x: Any, ranks: int, rank: int, dim: int = 0, order: OrderName = "zigzag") -> Any:
    """Returns the tokens of a rank as a new array, from an array of the whole sequence along dim.

    The result is a numpy array, or a tensor if x is one.
    """
    whole = _array(x)
    at = dimension(dim, whole.ndim, "x")
    first, second = sequence_ranges(whole.shape[at], ranks, rank, order)
    shape = list(whole.shape)
    shape[at] = len(first) + len(second)
    taken = _empty_like(whole, shape)
    _along(taken, at, range(len(first)))[...] = _along(whole, at, first)
    _along(taken, at, range(len(first), shape[at]))[...] = _along(whole, at, second)
    return taken


def put_tokens(parts: Sequence[Any], dim: int = 0, order: OrderName = "zigzag") -> Any:
    """Returns the whole sequence as a new array, from the arrays that the ranks hold, in rank order.

    The result is a numpy array, or a tensor if the first part is one.
    """
    given = [_array(part) for part in parts]
    if not given:
        raise ValueError("parts is empty; expected one array per rank")
    at = dimension(dim, given[0].ndim, "parts[0]")
    shape = list(given[0].shape)
    shape[at] = sum(part.shape[at] for part in given)
    whole = _empty_like(given[0], shape)
    for rank, part in enumerate(given):
        first, second = sequence_ranges(shape[at], len(given), rank, order)
        shape[at] = len(first) + len(second)
        if tuple(part.shape) != tuple(shape):
            raise ValueError(f"parts[{rank}] has shape {tuple(part.shape)}; expected {tuple(shape)}")
        shape[at] = whole.shape[at]
        _along(whole, at, first)[...] = _along(part, at, range(len(first)))
        _along(whole, at, second)[...] = _along(part, at, range(len(first), part.shape[at]))
    return whole


def _array(x: Any) -> Any:
    return x if hasattr(x, "new_empty") else numpy_module().asarray(x)


def _empty_like(x: Any, shape: list[int]) -> Any:
    return x.new_empty(shape) if hasattr(x, "new_empty") else numpy_module().empty(shape, x.dtype)


def _along(x: Any, dim: int, part: range) -> Any:
    return x[(slice(None),) * dim + (slice(part.start, part.stop),)]
