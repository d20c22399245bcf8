"""Exchanges of tensor, sequence and context parallelism, each with a forward and a backward step."""

from __future__ import annotations

import ctypes
import difflib
import enum
import math
from ctypes import c_size_t
from typing import Any, Callable, Literal, Optional, Sequence, Union, overload

from libdsc import _buffers, _dtypes, _raw
from libdsc._arguments import SIZE, brief, dimension, integer, integers, sizes_of_ranks
from libdsc._blocks import expect_dtype
from libdsc._library import check, lib
from libdsc._memory import numpy_module
from libdsc._objects import Objects
from libdsc._raw import TensorMapping
from libdsc._types import Array
from libdsc._work import Work

MappingName = Literal[
    "copy",
    "reduce",
    "scatter",
    "gather",
    "gather_reduce",
    "reduce_scatter",
    "all_to_all",
    "sequence_to_hidden",
    "hidden_to_sequence",
]
DirectionName = Literal["forward", "backward"]


class MapDirection(enum.IntEnum):
    """The step of a mapping: forward for activations, backward for their gradients."""

    FORWARD = 1
    BACKWARD = 2


# For each mapping, the contents of the input and of the output in the forward step. The backward step exchanges them.
_SHAPES = {
    TensorMapping.COPY: ("whole", "whole"),
    TensorMapping.REDUCE: ("whole", "whole"),
    TensorMapping.SCATTER: ("whole", "part"),
    TensorMapping.GATHER: ("part", "whole"),
    TensorMapping.GATHER_REDUCE: ("part", "whole"),
    TensorMapping.REDUCE_SCATTER: ("whole", "part"),
    TensorMapping.ALL_TO_ALL: ("sent", "received"),
    TensorMapping.SEQUENCE_TO_HIDDEN: ("part of sequence", "part"),
    TensorMapping.HIDDEN_TO_SEQUENCE: ("part", "part of sequence"),
}
_OF_TWO = (TensorMapping.SEQUENCE_TO_HIDDEN, TensorMapping.HIDDEN_TO_SEQUENCE)
_IDENTITIES = {(TensorMapping.COPY, MapDirection.FORWARD), (TensorMapping.REDUCE, MapDirection.BACKWARD)}


def split_range(count: int, parts: int, part: int) -> range:
    """Returns part `part` of range(count), divided as evenly as possible.

    The first count % parts parts are longer by one.
    """
    begin, length = c_size_t(), c_size_t()
    sizes = [integer(name, value, *SIZE) for name, value in (("count", count), ("parts", parts), ("part", part))]
    check(lib.dsc_tensor_map_part(*sizes, begin, length))
    return range(begin.value, begin.value + length.value)


def named(what: str, kind: Any, value: Any) -> Any:
    """Returns an enumerator, which the caller may pass as its name in lower case, as itself or as a number."""
    if isinstance(value, kind):
        return value
    names = [item.name.lower() for item in kind]
    if isinstance(value, str) and value.lower() in names:
        return list(kind)[names.index(value.lower())]
    near = difflib.get_close_matches(str(value), names, 1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ValueError(f"{what} is {brief(value)}; expected one of {', '.join(names)}{hint}")


class PartSizes:
    """How a dimension of the input or result is divided among the ranks."""

    def __init__(self, parts: Optional[list[int]], rank: int, ranks: int) -> None:
        self.parts, self.rank, self.ranks = parts, rank, ranks

    def part_of(self, whole: int, dim: int) -> int:
        if self.parts is None:
            if whole % self.ranks:
                raise ValueError(
                    f"x has {whole} elements along dimension {dim}; expected a multiple of {self.ranks}, the number of "
                    f"ranks, or parts= with the size of each part"
                )
            return whole // self.ranks
        if whole != sum(self.parts):
            raise ValueError(f"x has {whole} elements along dimension {dim}; expected {sum(self.parts)}, the sum of the parts")
        return self.parts[self.rank]

    def whole_of(self, part: int, dim: int) -> int:
        if self.parts is None:
            return part * self.ranks
        if part != self.parts[self.rank]:
            raise ValueError(
                f"x has {part} elements along dimension {dim}; expected {self.parts[self.rank]}, the part of rank {self.rank}"
            )
        return sum(self.parts)


class TensorMaps(Objects):
    """Adds the operation to Communicator that maps a divided tensor from one division to another."""

    __slots__ = ()

    @overload
    def tensor_map(
        self, x: Array, mapping: Union[MappingName, TensorMapping], dim: int = ..., *, direction: DirectionName = ...,
        parts: Optional[Sequence[int]] = ..., other_parts: Optional[Sequence[int]] = ..., out: Any = ...,
        chunk: Optional[tuple[int, int]] = ..., empty: Optional[Callable[[tuple[int, ...], str], Any]] = ..., async_op: Literal[False] = ..., dtype: Any = ...,
        stream: Any = ...
    ) -> Any: ...

    @overload
    def tensor_map(
        self, x: Array, mapping: Union[MappingName, TensorMapping], dim: int = ..., *, direction: DirectionName = ...,
        parts: Optional[Sequence[int]] = ..., other_parts: Optional[Sequence[int]] = ..., out: Any,
        chunk: Optional[tuple[int, int]] = ..., empty: Optional[Callable[[tuple[int, ...], str], Any]] = ..., async_op: bool, dtype: Any = ...,
        stream: Any = ...
    ) -> Any: ...

    def tensor_map(
        self,
        x: Any,
        mapping: Any,
        dim: int = -1,
        *,
        direction: Any = "forward",
        parts: Optional[Sequence[int]] = None,
        other_parts: Optional[Sequence[int]] = None,
        out: Any = None,
        chunk: Optional[tuple[int, int]] = None,
        empty: Optional[Callable[[tuple[int, ...], str], Any]] = None,
        async_op: bool = False,
        dtype: Any = None,
        stream: Any = None,
    ) -> Any:
        """Applies one step of a mapping between a whole tensor and the parts of it on the ranks.

        Returns out, or a Work with async_op. If out is not given, an identity returns x itself, and so does every
        mapping in a group of one rank.

        Args:
            x: the input array: the whole or this rank's part, depending on the mapping.
            mapping: one of these; in parentheses the forward step, then the backward step: "copy" (identity; sum),
                "reduce" (sum; identity), "scatter" (own slice; all-gather), "gather" (all-gather; own slice),
                "gather_reduce" (all-gather; reduce-scatter), "reduce_scatter" (reduce-scatter; all-gather),
                "all_to_all", "sequence_to_hidden" (from [s/n, ..., h] to [s, ..., h/n]) or "hidden_to_sequence".
            dim: the dimension that is divided among the ranks. For the last two mappings the sequence is dimension 0.
            direction: "forward" for activations, "backward" for their gradients.
            parts: the size of each rank's part along dim, if they differ; the same list on all ranks. For "all_to_all":
                the sizes that this rank sends to each rank in the forward direction.
            other_parts: the size of each rank's part of the sequence, for the last two mappings with parts. For
                "all_to_all": the sizes that this rank receives from each rank in the forward direction.
            out: where the result goes. Required with async_op, and for arrays on a GPU that have no new_empty().
            chunk: (number, of): runs only this chunk of the step, so that computation can overlap with the other
                chunks; x and out are the whole arrays. A chunk is a range of the rows before dim or, if dim is the
                first dimension, of every rank's part, as split_range() divides them. It needs equal parts. It is not
                supported for "all_to_all", "sequence_to_hidden" and "hidden_to_sequence".
            empty: empty(shape, dtype) makes out, with a dtype such as "float32". None: x.new_empty() if it exists, as
                in torch, else numpy.empty().
            dtype: the element type, such as "bf16" for an array of uint16.
        """
        try:
            kind, way = named("mapping", TensorMapping, mapping), named("direction", MapDirection, direction)
            found = _buffers.describe(x, "x", dtype, False)
            outer, size, inner, shape, lists = self._map_shape(found, kind, way, dim, parts, other_parts)
            if chunk is not None:
                if out is None or lists is not None:
                    what = "out is None; expected an array" if out is None else "parts is given; expected None"
                    raise ValueError(f"{what}, because chunk is given")
                number, of = integers("chunk", _pair(chunk), *SIZE)
            else:
                number, of = 0, 1
            options = _map_options(kind, outer, size, inner, lists, number, of)
            if out is None and not async_op and (self._size == 1 or (kind, way) in _IDENTITIES):
                return x
            if out is None:
                if async_op:
                    raise ValueError("out is None; expected an array, because with async_op the call returns a Work and no array")
                out = make_like(x, found, shape, empty)
            given = tuple(getattr(out, "shape", shape))
            if math.prod(given) == math.prod(shape) and given not in (shape, (math.prod(shape),)):
                raise ValueError(f"out has shape {given}; expected {shape}")
            target, owner = self._like(out, "out", dtype, math.prod(shape), found.dtype, found.owner)
            function = lib.dsc_tensor_map_forward if way == MapDirection.FORWARD else lib.dsc_tensor_map_backward
            arguments = (options, found.address, target, found.dtype)
            work = self._run(function, arguments, (owner, out), async_op, stream)
            return out if work is None else work
        except Exception as error:
            raise self._shown(error, "tensor_map")

    def _map_shape(
        self, found: _buffers.Buffer, kind: Any, way: Any, dim: int, parts: Any, other_parts: Any
    ) -> tuple[int, int, int, tuple[int, ...], Any]:
        """Returns outer, dim and inner for C, the shape of the result, and the lists of unequal parts."""
        at = dimension(dim, len(found.shape), "x")
        lists = self._lists(kind, at, parts, other_parts)
        if kind == TensorMapping.ALL_TO_ALL:
            return self._exchange_shape(list(found.shape), at, way, lists)
        sizes, sequence = (PartSizes(item, self._rank, self._size) for item in lists)
        before, after = _SHAPES[kind] if way == MapDirection.FORWARD else _SHAPES[kind][::-1]
        whole = list(found.shape)
        if before == "part":
            whole[at] = sizes.whole_of(whole[at], at)
        elif before == "part of sequence":
            whole[0] = sequence.whole_of(whole[0], 0)
        shape = list(whole)
        if after == "part":
            shape[at] = sizes.part_of(whole[at], at)
        elif after == "part of sequence":
            shape[0] = sequence.part_of(whole[0], 0)
        outer = math.prod(whole[1 if kind in _OF_TWO and lists[0] is not None else 0 : at])
        c_lists = None if lists[0] is None else [c_sizes(item) for item in lists]
        return outer, whole[at], math.prod(whole[at + 1 :]), tuple(shape), c_lists

    def _lists(self, kind: Any, at: int, parts: Any, other_parts: Any) -> list[Optional[list[int]]]:
        """Checks the lists of unequal parts, and that the mapping uses them."""
        if kind in _OF_TWO and at == 0:
            raise ValueError("dim is 0, the sequence dimension; expected another dimension of x")
        has_two = kind in _OF_TWO or kind == TensorMapping.ALL_TO_ALL
        if other_parts is not None and not has_two:
            raise ValueError("other_parts is given; expected None, except for all_to_all, sequence_to_hidden and hidden_to_sequence")
        if has_two and (parts is None) != (other_parts is None):
            raise ValueError("only one of parts and other_parts is given; expected both or neither")
        return [self._parts(name, value) for name, value in (("parts", parts), ("other_parts", other_parts))]

    def _exchange_shape(
        self, shape: list[int], at: int, way: Any, lists: list[Optional[list[int]]]
    ) -> tuple[int, int, int, tuple[int, ...], Any]:
        outer, size, inner = math.prod(shape[:at]), shape[at], math.prod(shape[at + 1 :])
        if lists[0] is None or lists[1] is None:
            PartSizes(None, self._rank, self._size).part_of(size, at)
            return outer, size, inner, tuple(shape), None
        sent, received = (lists[0], lists[1]) if way == MapDirection.FORWARD else (lists[1], lists[0])
        if size != sum(sent):
            raise ValueError(f"x has {size} elements along dimension {at}; expected {sum(sent)}, the sum of the parts to send")
        shape[at] = sum(received)
        return outer, size, inner, tuple(shape), [c_sizes(item) for item in lists]

    def _parts(self, name: str, values: Any) -> Optional[list[int]]:
        if values is None:
            return None
        return sizes_of_ranks(name, values, self._size)


def _map_options(kind: Any, outer: int, dim: int, inner: int, lists: Any, chunk: int, chunks: int) -> Any:
    """Returns the options, which keep the lists alive."""
    options = _raw.TensorMapOptions()
    check(lib.dsc_tensor_map_options_init(options, ctypes.sizeof(options)))
    options.mapping, options.outer, options.dim, options.inner = kind, outer, dim, inner
    options.chunk, options.chunks = chunk, chunks
    if lists is not None:
        options.dim = sum(lists[0])
        options.parts, options.other_parts = lists
    return options


def _pair(chunk: Any) -> Any:
    if not isinstance(chunk, (tuple, list)) or len(chunk) != 2:
        raise TypeError(f"chunk is {brief(chunk)}; expected a pair (number, of)")
    return chunk


def c_sizes(values: Optional[list[int]]) -> Any:
    return None if values is None else (c_size_t * len(values))(*values)


def make_like(x: Any, found: _buffers.Buffer, shape: tuple[int, ...], empty: Any) -> Any:
    """Allocates an array for the result, of the same kind as x."""
    if empty is not None:
        return empty(shape, _dtypes.long_name(found.dtype))
    if hasattr(x, "new_empty"):
        return x.new_empty(shape)
    if found.device != -1:
        raise ValueError("out is None; expected an array on the GPU, because x has no new_empty()")
    return numpy_module().empty(shape, getattr(x, "dtype", None) or _dtypes.numpy_type(found.dtype))
