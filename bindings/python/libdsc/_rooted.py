"""Operations with a root: one rank that sends or receives all data."""

from __future__ import annotations

import ctypes
from typing import Any, Literal, Optional, Sequence, overload

from libdsc import _buffers
from libdsc._arguments import member
from libdsc._blocks import Blocks, checked_counts, expect_dtype
from libdsc._calls import Calls
from libdsc._foreign import refuse_arguments
from libdsc._library import lib
from libdsc._ops import number_of
from libdsc._types import Array, Arrays, OpLike
from libdsc._work import Work

_locate = _buffers.locate


class Rooted(Calls):
    """Adds the operations that have a root to Communicator."""

    __slots__ = ()

    # ---- operations in which one rank has or gets all data ------------------------------------------------------

    @overload
    def reduce(
        self, x: Array, root: int = ..., op: OpLike = ..., out: Optional[Array] = ..., async_op: Literal[False] = ...,
        dtype: Any = ..., *, stream: Any = ...
    ) -> None: ...

    @overload
    def reduce(
        self, x: Array, root: int = ..., op: OpLike = ..., out: Optional[Array] = ..., *, async_op: Literal[True],
        dtype: Any = ..., stream: Any = ...
    ) -> Work: ...

    @overload
    def reduce(
        self, x: Array, root: int = ..., op: OpLike = ..., out: Optional[Array] = ..., *, async_op: bool,
        dtype: Any = ..., stream: Any = ...
    ) -> Optional[Work]: ...

    def reduce(
        self,
        x: Array,
        root: int = 0,
        op: OpLike = "sum",
        out: Optional[Array] = None,
        async_op: bool = False,
        dtype: Any = None,
        *,
        stream: Any = None,
        **foreign: Any,
    ) -> Optional[Work]:
        """Combines the elements of all ranks' x; the root gets the result in x, or in out if that is given.

        Args:
            x: an array, the same count and type on all ranks; written on the root only.
            root: the rank that gets the result.
            op: as in all_reduce().
            out: where the result goes on the root; ignored elsewhere.
        """
        try:
            if foreign:
                refuse_arguments("reduce", foreign)
            root = member("root", root, self._size)
            is_root = self._rank == root
            send, count, code, owner = _locate(x, "x", dtype, is_root and out is None)
            recv: Optional[int] = send if is_root else None
            if is_root and out is not None:
                recv, owner = self._like(out, "out", dtype, count, code, owner)
                expect_shape(out, x)
            number = number_of(op)
            return self._run(lib.dsc_reduce, (send, recv, count, code, number, root), (owner, op), async_op, stream)
        except Exception as error:
            raise self._shown(error, "reduce")

    @overload
    def gather(
        self, out: Optional[Arrays], x: Array, root: int = ..., async_op: Literal[False] = ..., dtype: Any = ..., *,
        counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> None: ...

    @overload
    def gather(
        self, out: Optional[Arrays], x: Array, root: int = ..., *, async_op: Literal[True], dtype: Any = ...,
        counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> Work: ...

    @overload
    def gather(
        self, out: Optional[Arrays], x: Array, root: int = ..., *, async_op: bool, dtype: Any = ...,
        counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> Optional[Work]: ...

    def gather(
        self,
        out: Optional[Arrays],
        x: Array,
        root: int = 0,
        async_op: bool = False,
        dtype: Any = None,
        *,
        counts: Optional[Sequence[int]] = None,
        stream: Any = None,
        **foreign: Any,
    ) -> Optional[Work]:
        """Gathers the x of every rank, in rank order, into out on the root.

        Args:
            out: on the root an array of size times as many elements as x, or a list of size arrays like x; ignored
                elsewhere, and may be None.
            x: an array, the same count and type on all ranks; may be the root's own part of out.
            counts: how many elements each rank has, the same list on all ranks. If not given, every rank has as many as
                x. With counts, x must not be a part of out.
        """
        try:
            if foreign:
                refuse_arguments("gather", foreign)
            root = member("root", root, self._size)
            send, count, code, owner = _locate(x, "x", dtype, False)
            if counts is not None:
                parts, lengths = self._root_parts(out, "out", dtype, True, root, counts, ("x", count, code))
                arguments_v = (send, self._only_at(root, count), parts and parts.address, lengths, code)
                at_end = None if parts is None else parts.unpack
                return self._run(lib.dsc_all_to_all_v, arguments_v, (owner, parts), async_op, stream, at_end)
            if self._rank != root:
                return self._run(lib.dsc_gather, (send, None, count, code, root), owner, async_op, stream)
            blocks = self._on_root(out, "out", dtype, True, [count] * self._size)
            expect_dtype("out", blocks.dtype, code)
            arguments = (send, blocks.address, count, code, root)
            return self._run(lib.dsc_gather, arguments, (owner, blocks), async_op, stream, blocks.unpack)
        except Exception as error:
            raise self._shown(error, "gather")

    @overload
    def scatter(
        self, out: Array, x: Optional[Arrays] = ..., root: int = ..., async_op: Literal[False] = ..., dtype: Any = ...,
        *, counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> None: ...

    @overload
    def scatter(
        self, out: Array, x: Optional[Arrays] = ..., root: int = ..., *, async_op: Literal[True], dtype: Any = ...,
        counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> Work: ...

    @overload
    def scatter(
        self, out: Array, x: Optional[Arrays] = ..., root: int = ..., *, async_op: bool, dtype: Any = ...,
        counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> Optional[Work]: ...

    def scatter(
        self,
        out: Array,
        x: Optional[Arrays] = None,
        root: int = 0,
        async_op: bool = False,
        dtype: Any = None,
        *,
        counts: Optional[Sequence[int]] = None,
        stream: Any = None,
        **foreign: Any,
    ) -> Optional[Work]:
        """Sends part r of the root's x to rank r, which gets it in out.

        Args:
            out: an array, the same count and type on all ranks; may be the root's own part of x.
            x: on the root an array of size times as many elements as out, or a list of size arrays like out; ignored
                elsewhere, and may be None.
            counts: how many elements each rank gets, the same list on all ranks. If not given, every rank gets as many
                as out has. With counts, out must not be a part of x.
        """
        try:
            if foreign:
                refuse_arguments("scatter", foreign)
            root = member("root", root, self._size)
            recv, count, code, owner = _locate(out, "out", dtype)
            if counts is not None:
                parts, lengths = self._root_parts(x, "x", dtype, False, root, counts, ("out", count, code))
                arguments_v = (parts and parts.address, lengths, recv, self._only_at(root, count), code)
                return self._run(lib.dsc_all_to_all_v, arguments_v, (owner, parts), async_op, stream)
            if self._rank != root:
                return self._run(lib.dsc_scatter, (None, recv, count, code, root), owner, async_op, stream)
            blocks = self._on_root(x, "x", dtype, False, [count] * self._size)
            expect_dtype("x", blocks.dtype, code)
            arguments = (blocks.address, recv, count, code, root)
            return self._run(lib.dsc_scatter, arguments, (owner, blocks), async_op, stream)
        except Exception as error:
            raise self._shown(error, "scatter")

    # ---- blocks of the ranks -------------------------------------------------------------------------------------

    def _blocks(
        self, x: Arrays, argument: str, dtype: Any, writable: bool, counts: Any, counts_argument: str = "counts"
    ) -> Blocks:
        numbers = checked_counts(counts, counts_argument, self._size)
        return Blocks(x, argument, dtype, writable, self._size, numbers, counts_argument)

    def _on_root(
        self, x: Optional[Arrays], argument: str, dtype: Any, writable: bool, counts: list[int], name: str = ""
    ) -> Blocks:
        """Returns the root's blocks with these counts. name is the caller's argument for the counts, for errors."""
        if x is None:
            raise ValueError(f"{argument} is None; expected an array or a list of arrays on the root, rank {self._rank}")
        return Blocks(x, argument, dtype, writable, self._size, counts, name)

    def _root_parts(
        self,
        x: Optional[Arrays],
        argument: str,
        dtype: Any,
        writable: bool,
        root: int,
        counts: Sequence[int],
        own: tuple[str, int, int],
    ) -> tuple[Optional[Blocks], Any]:
        """Returns the root's blocks and their counts as a C array. Other ranks get None and zeros.

        own describes this rank's array: the name of the argument, its count and its type.
        """
        numbers = checked_counts(counts, "counts", self._size) or []
        name, count, code = own
        if numbers[self._rank] != count:
            raise ValueError(f"{name} has {count} elements; expected {numbers[self._rank]}, the value of counts[{self._rank}]")
        if self._rank != root:
            return None, (ctypes.c_size_t * self._size)()
        blocks = self._on_root(x, argument, dtype, writable, numbers, "counts")
        expect_dtype(argument, blocks.dtype, code)
        return blocks, blocks.c_counts

    def _only_at(self, root: int, count: int) -> Any:
        """Returns a C array of counts that are 0 except for the root."""
        lengths = (ctypes.c_size_t * self._size)()
        lengths[root] = count
        return lengths

    def _expect_own(self, blocks: Blocks, whole: str, count: int, part: str, counts: Any) -> None:
        """Raises ValueError unless this rank's block has as many elements as this rank's own array."""
        expected = blocks.counts[self._rank]
        if counts is not None and expected != count:
            raise ValueError(f"{part} has {count} elements; expected {expected}, the value of counts[{self._rank}]")
        if expected != count:
            raise ValueError(f"{whole}[{self._rank}] has {expected} elements; expected {count}, like {part}")


def expect_shape(out: Any, x: Any) -> None:
    """Raises ValueError unless the result has the shape of the input. Objects without a shape are accepted."""
    shape, expected = getattr(out, "shape", None), getattr(x, "shape", None)
    if shape is not None and expected is not None and tuple(shape) != tuple(expected):
        raise ValueError(f"out has shape {tuple(shape)}; expected {tuple(expected)}, like x")
