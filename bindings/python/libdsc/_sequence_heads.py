"""DeepSpeed-Ulysses' exchange of sequence parts for heads, before and after an attention."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Callable, Literal, Optional, Sequence, overload

from libdsc import _buffers, _raw
from libdsc._library import check, lib
from libdsc._rms_norm import Norms
from libdsc._tensor_map import DirectionName, MapDirection, PartSizes, c_sizes, make_like, named
from libdsc._types import Array
from libdsc._work import Work

Empty = Optional[Callable[[tuple[int, ...], str], Any]]


class SequenceHeads(Norms):
    """Adds the operation to Communicator that exchanges parts of a sequence for parts of the heads."""

    __slots__ = ()

    @overload
    def sequence_to_heads(
        self, x: Array, *, direction: DirectionName = ..., sequence_parts: Optional[Sequence[int]] = ...,
        head_parts: Optional[Sequence[int]] = ..., out: Any = ..., empty: Empty = ..., async_op: Literal[False] = ...,
        dtype: Any = ..., stream: Any = ...
    ) -> Any: ...

    @overload
    def sequence_to_heads(
        self, x: Array, *, direction: DirectionName = ..., sequence_parts: Optional[Sequence[int]] = ...,
        head_parts: Optional[Sequence[int]] = ..., out: Any, empty: Empty = ..., async_op: bool, dtype: Any = ...,
        stream: Any = ...
    ) -> Any: ...

    def sequence_to_heads(
        self,
        x: Any,
        *,
        direction: Any = "forward",
        sequence_parts: Optional[Sequence[int]] = None,
        head_parts: Optional[Sequence[int]] = None,
        out: Any = None,
        empty: Empty = None,
        async_op: bool = False,
        dtype: Any = None,
        stream: Any = None,
    ) -> Any:
        """Exchanges this rank's tokens of all heads for all tokens of this rank's heads. Collective.

        "forward" changes [batch, sequence / n, heads, head_dim] to [batch, sequence, heads / n, head_dim]; "backward"
        does the reverse. Each is the gradient of the other. Use "forward" for queries, keys and values before the
        attention, and "backward" for its result. Returns out, or a Work with async_op. In a group of one rank it
        returns x itself if out is not given.

        Args:
            x: the input array, of four dimensions.
            direction: "forward" or "backward".
            sequence_parts: tokens of each rank, if they differ; equal on all ranks.
            head_parts: heads of each rank, if they differ. 0 is allowed, for example with few heads of keys.
            out: where the result goes. Required with async_op, and for arrays on a GPU that have no new_empty().
            empty: empty(shape, dtype) makes out; None: x.new_empty() if it exists, else numpy.empty().
            async_op: True starts the operation and returns a Work.
            dtype: the element type, such as "bf16" for an array of uint16.
            stream: as in Communicator.
        """
        try:
            way = named("direction", MapDirection, direction)
            found = _buffers.describe(x, "x", dtype, False)
            whole, shape, lists = self._head_shapes(found.shape, way, sequence_parts, head_parts)
            if out is None and self._size == 1 and not async_op:
                return x
            if out is None:
                if async_op:
                    raise ValueError("out is None; expected an array, because with async_op the call returns a Work and no array")
                out = make_like(x, found, shape, empty)
            given = tuple(getattr(out, "shape", shape))
            if math.prod(given) == math.prod(shape) and given not in (shape, (math.prod(shape),)):
                raise ValueError(f"out has shape {given}; expected {shape}")
            target, owner = self._like(out, "out", dtype, math.prod(shape), found.dtype, found.owner)
            function = lib.dsc_sequence_to_heads if way == MapDirection.FORWARD else lib.dsc_heads_to_sequence
            arguments = (_head_options(whole, lists), found.address, target, found.dtype)
            work = self._run(function, arguments, (owner, out), async_op, stream)
            return out if work is None else work
        except Exception as error:
            raise self._shown(error, "sequence_to_heads")

    def _head_shapes(
        self, shape: tuple[int, ...], way: Any, sequence_parts: Any, head_parts: Any
    ) -> tuple[list[int], tuple[int, ...], list[Any]]:
        """Returns the sizes of the whole array, the shape of the result, and the lists of parts as C arrays."""
        if len(shape) != 4:
            raise ValueError(f"x has shape {shape}; expected [batch, sequence, heads, head_dim]")
        given = [self._parts(name, value) for name, value in (("sequence_parts", sequence_parts), ("head_parts", head_parts))]
        sequence, heads = (PartSizes(item, self._rank, self._size) for item in given)
        whole, result = list(shape), list(shape)
        if way == MapDirection.FORWARD:
            whole[1] = result[1] = sequence.whole_of(shape[1], 1)
            result[2] = heads.part_of(shape[2], 2)
        else:
            whole[2] = result[2] = heads.whole_of(shape[2], 2)
            result[1] = sequence.part_of(shape[1], 1)
        return whole, tuple(result), [c_sizes(item) for item in given]


def _head_options(whole: list[int], lists: list[Any]) -> Any:
    """Returns the options, which keep the lists alive."""
    options = _raw.SequenceHeadsOptions()
    check(lib.dsc_sequence_heads_options_init(options, ctypes.sizeof(options)))
    options.batch, options.sequence, options.heads, options.head_dim = whole
    options.sequence_parts, options.head_parts = lists
    return options
