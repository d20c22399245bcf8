"""Operations on all ranks of a communicator, and messages between two of them."""

from __future__ import annotations

import math
from ctypes import byref, c_int32, c_int64, c_size_t
from typing import Any, Callable, Literal, Optional, Sequence, overload

from libdsc import _buffers, _dtypes
from libdsc._arguments import Seconds, member, milliseconds
from libdsc._blocks import expect_dtype
from libdsc._batch import Batch
from libdsc._foreign import refuse_arguments
from libdsc._library import lib
from libdsc._memory import numpy_module
from libdsc._ops import number_of
from libdsc._raw import Dtype
from libdsc._rooted import Rooted, expect_shape
from libdsc._types import Array, Arrays, OpLike
from libdsc._work import Work

_locate = _buffers.locate
MOST_DIMS = 32  # the limit of dsc_broadcast_shape()


def _empty(shape: tuple[int, ...], dtype: str) -> Any:
    return numpy_module().empty(shape, _dtypes.numpy_type(_dtypes.dtype_code(dtype)))


class Collectives(Rooted):
    """The collective operations of Communicator. The class documentation of Communicator explains op and stream."""

    __slots__ = ()

    # ---- operations with the same result on all ranks ------------------------------------------------------------

    @overload
    def all_reduce(
        self, x: Array, op: OpLike = ..., out: Optional[Array] = ..., async_op: Literal[False] = ..., dtype: Any = ...,
        *, stream: Any = ...
    ) -> None: ...

    @overload
    def all_reduce(
        self, x: Array, op: OpLike = ..., out: Optional[Array] = ..., *, async_op: Literal[True], dtype: Any = ...,
        stream: Any = ...
    ) -> Work: ...

    @overload
    def all_reduce(
        self, x: Array, op: OpLike = ..., out: Optional[Array] = ..., *, async_op: bool, dtype: Any = ...,
        stream: Any = ...
    ) -> Optional[Work]: ...

    def all_reduce(
        self,
        x: Array,
        op: OpLike = "sum",
        out: Optional[Array] = None,
        async_op: bool = False,
        dtype: Any = None,
        *,
        stream: Any = None,
    ) -> Optional[Work]:
        """Combines the elements of all ranks' x; every rank gets the result in x, or in out if that is given.

        Args:
            x: an array, the same count and type on all ranks.
            op: "sum", "prod", "max", "min", "avg" and others, or the result of premul() or user_op().
            out: where the result goes; if given, x is not written.
            async_op: True returns a Work at once.
            dtype: the element type, such as "bf16" for an array of uint16.
        """
        try:
            send, count, code, owner = _locate(x, "x", dtype, out is None)
            recv = send
            if out is not None:
                recv, owner = self._like(out, "out", dtype, count, code, owner)
                expect_shape(out, x)
            number = number_of(op)
            return self._run(lib.dsc_all_reduce, (send, recv, count, code, number), (owner, op), async_op, stream)
        except Exception as error:
            raise self._shown(error, "all_reduce")

    @overload
    def broadcast(
        self, x: Array, root: int = ..., async_op: Literal[False] = ..., dtype: Any = ..., *, stream: Any = ...
    ) -> None: ...

    @overload
    def broadcast(
        self, x: Array, root: int = ..., *, async_op: Literal[True], dtype: Any = ..., stream: Any = ...
    ) -> Work: ...

    @overload
    def broadcast(
        self, x: Array, root: int = ..., *, async_op: bool, dtype: Any = ..., stream: Any = ...
    ) -> Optional[Work]: ...

    def broadcast(
        self, x: Array, root: int = 0, async_op: bool = False, dtype: Any = None, *, stream: Any = None, **foreign: Any
    ) -> Optional[Work]:
        """Copies the root's x into the x of all ranks."""
        try:
            if foreign:
                refuse_arguments("broadcast", foreign)
            root = member("root", root, self._size)
            address, count, code, owner = _locate(x, "x", dtype, self._rank != root)
            return self._run(lib.dsc_broadcast, (address, address, count, code, root), owner, async_op, stream)
        except Exception as error:
            raise self._shown(error, "broadcast")

    def broadcast_array(
        self,
        x: Any = None,
        root: int = 0,
        dtype: Any = None,
        *,
        empty: Optional[Callable[[tuple[int, ...], str], Any]] = None,
        stream: Any = None,
    ) -> Any:
        """Returns the root's array on all ranks. The other ranks need not know type and shape: these are sent first.

        Args:
            x: the array on the root, which is returned there; ignored elsewhere.
            root: the rank that has the array.
            dtype: the type of x, if the array cannot say it; only the root's value is used.
            empty: empty(shape, dtype) makes the array on the other ranks, with a dtype such as "float32" or
                "bfloat16". None: numpy.empty(), with uint16 and uint8 in place of the floats that numpy lacks.
            stream: as in broadcast().
        """
        root = member("root", root, self._size)
        if self._rank == root:
            found = _buffers.describe(x, "x", dtype, False)
            self._tell_shape(root, found.dtype, found.shape)
        else:
            code, shape = self._tell_shape(root)
            make = _empty if empty is None else empty
            x, dtype = make(shape, _dtypes.long_name(code)), Dtype(code)
            count = _buffers.describe(x, "the array that empty() returned", dtype).count
            if count != math.prod(shape):
                raise ValueError(f"empty() returned an array of {count} elements; expected {math.prod(shape)}")
        self.broadcast(x, root, dtype=dtype, stream=stream)
        return x

    def _tell_shape(self, root: int, dtype: int = 0, shape: Sequence[int] = ()) -> tuple[int, tuple[int, ...]]:
        """Returns element type and shape of the root's array. The root passes them; the other ranks receive them."""
        code, n_sizes = c_int32(dtype), c_size_t(len(shape))
        sizes = (c_int64 * MOST_DIMS)(*shape[:MOST_DIMS])
        self._call(lib.dsc_broadcast_shape, byref(code), sizes, MOST_DIMS, byref(n_sizes), root)
        return code.value, tuple(sizes[: n_sizes.value])

    @overload
    def all_gather(
        self, out: Arrays, x: Array, async_op: Literal[False] = ..., dtype: Any = ..., *,
        counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> None: ...

    @overload
    def all_gather(
        self, out: Arrays, x: Array, async_op: Literal[True], dtype: Any = ..., *,
        counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> Work: ...

    @overload
    def all_gather(
        self, out: Arrays, x: Array, async_op: bool, dtype: Any = ..., *, counts: Optional[Sequence[int]] = ...,
        stream: Any = ...
    ) -> Optional[Work]: ...

    def all_gather(
        self,
        out: Arrays,
        x: Array,
        async_op: bool = False,
        dtype: Any = None,
        *,
        counts: Optional[Sequence[int]] = None,
        stream: Any = None,
    ) -> Optional[Work]:
        """Gathers the x of every rank, in rank order, into out on all ranks.

        Args:
            out: an array for the elements of all ranks, or a list of one array per rank.
            x: an array, the same type on all ranks; may be this rank's own part of out.
            counts: how many elements each rank has, the same list on all ranks. If not given, every rank has as many as
                x, or the arrays of the list give the counts.
        """
        try:
            send, count, code, owner = _locate(x, "x", dtype, False)
            if counts is None and not isinstance(out, (list, tuple)):
                recv, owner = self._like(out, "out", dtype, count * self._size, code, owner)
                return self._run(lib.dsc_all_gather, (send, recv, count, code), owner, async_op, stream)
            blocks = self._blocks(out, "out", dtype, True, counts)
            expect_dtype("x", code, blocks.dtype)
            self._expect_own(blocks, "out", count, "x", counts)
            function, sizes = lib.dsc_all_gather_v, blocks.c_counts
            # All ranks must call the same C function. A rank that passes one array instead of a list calls the function
            # without counts.
            if blocks.are_equal and counts is None:
                function, sizes = lib.dsc_all_gather, count
            arguments = (send, blocks.address, sizes, code)
            return self._run(function, arguments, (owner, blocks), async_op, stream, blocks.unpack)
        except Exception as error:
            raise self._shown(error, "all_gather")

    @overload
    def reduce_scatter(
        self, out: Array, x: Arrays, op: OpLike = ..., async_op: Literal[False] = ..., dtype: Any = ..., *,
        counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> None: ...

    @overload
    def reduce_scatter(
        self, out: Array, x: Arrays, op: OpLike = ..., *, async_op: Literal[True], dtype: Any = ...,
        counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> Work: ...

    @overload
    def reduce_scatter(
        self, out: Array, x: Arrays, op: OpLike = ..., *, async_op: bool, dtype: Any = ...,
        counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> Optional[Work]: ...

    def reduce_scatter(
        self,
        out: Array,
        x: Arrays,
        op: OpLike = "sum",
        async_op: bool = False,
        dtype: Any = None,
        *,
        counts: Optional[Sequence[int]] = None,
        stream: Any = None,
    ) -> Optional[Work]:
        """Combines the elements of all ranks' x; rank r gets part r in out.

        Args:
            out: an array; may be this rank's own part of x.
            x: an array of the parts for all ranks one after another, or a list of one array per rank.
            op: as in all_reduce().
            counts: how many elements each rank gets, the same list on all ranks. If not given, every rank gets as many
                as out has, or the arrays of the list give the counts.
        """
        try:
            recv, count, code, owner = _locate(out, "out", dtype)
            number = number_of(op)
            if counts is None and not isinstance(x, (list, tuple)):
                send, owner = self._like(x, "x", dtype, count * self._size, code, owner, False)
                return self._run(lib.dsc_reduce_scatter, (send, recv, count, code, number), (owner, op), async_op, stream)
            blocks = self._blocks(x, "x", dtype, False, counts)
            expect_dtype("out", code, blocks.dtype)
            self._expect_own(blocks, "x", count, "out", counts)
            function, sizes = lib.dsc_reduce_scatter_v, blocks.c_counts
            # All ranks must call the same C function. A rank that passes one array instead of a list calls the function
            # without counts.
            if blocks.are_equal and counts is None:
                function, sizes = lib.dsc_reduce_scatter, count
            return self._run(function, (blocks.address, recv, sizes, code, number), (owner, op, blocks), async_op, stream)
        except Exception as error:
            raise self._shown(error, "reduce_scatter")

    @overload
    def all_to_all(
        self, out: Arrays, x: Optional[Arrays] = ..., async_op: Literal[False] = ..., dtype: Any = ..., *,
        send_counts: Optional[Sequence[int]] = ..., recv_counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> None: ...

    @overload
    def all_to_all(
        self, out: Arrays, x: Optional[Arrays] = ..., *, async_op: Literal[True], dtype: Any = ...,
        send_counts: Optional[Sequence[int]] = ..., recv_counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> Work: ...

    @overload
    def all_to_all(
        self, out: Arrays, x: Optional[Arrays] = ..., *, async_op: bool, dtype: Any = ...,
        send_counts: Optional[Sequence[int]] = ..., recv_counts: Optional[Sequence[int]] = ..., stream: Any = ...
    ) -> Optional[Work]: ...

    def all_to_all(
        self,
        out: Arrays,
        x: Optional[Arrays] = None,
        async_op: bool = False,
        dtype: Any = None,
        *,
        send_counts: Optional[Sequence[int]] = None,
        recv_counts: Optional[Sequence[int]] = None,
        stream: Any = None,
    ) -> Optional[Work]:
        """Sends part r of every rank's x to rank r, which gets the parts in rank order in out.

        Parts are of equal size, unless counts or lists of arrays give the sizes. If one rank gives counts or lists, all
        ranks must.

        Args:
            out: an array like x, or a list of one array per rank.
            x: an array of the parts for all ranks one after another, or a list of one array per rank. None: the
                contents of out are sent and replaced; only with parts of equal size.
            send_counts: the number of elements in x for each rank.
            recv_counts: the number of elements in out from each rank. It must equal the entry for this rank in that
                rank's send_counts.
        """
        try:
            has_lists = isinstance(out, (list, tuple)) or isinstance(x, (list, tuple))
            if x is None or not has_lists and send_counts is None and recv_counts is None:
                return self._all_to_all_equal(out, x, async_op, dtype, stream, send_counts, recv_counts)
            sent = self._blocks(x, "x", dtype, False, send_counts, "send_counts")
            came = self._blocks(out, "out", dtype, True, recv_counts, "recv_counts")
            expect_dtype("out", came.dtype, sent.dtype)
            arguments = (sent.address, sent.c_counts, came.address, came.c_counts, sent.dtype)
            return self._run(lib.dsc_all_to_all_v, arguments, (sent, came), async_op, stream, came.unpack)
        except Exception as error:
            raise self._shown(error, "all_to_all")

    def _all_to_all_equal(
        self, out: Any, x: Any, async_op: bool, dtype: Any, stream: Any, *counts: Any
    ) -> Optional[Work]:
        if isinstance(out, (list, tuple)) or counts != (None, None):
            raise ValueError("x is None; expected x when out is a list or counts are given: only equal parts can be exchanged in place")
        recv, count, code, owner = _locate(out, "out", dtype)
        send = recv
        if x is not None:
            send, owner = self._like(x, "x", dtype, count, code, owner, False)
        if count % self._size:
            raise ValueError(f"out has {count} elements; expected a multiple of {self._size}, the number of ranks")
        return self._run(lib.dsc_all_to_all, (send, recv, count // self._size, code), owner, async_op, stream)

    @overload
    def barrier(self, async_op: Literal[False] = ..., *, stream: Any = ...) -> None: ...

    @overload
    def barrier(self, async_op: Literal[True], *, stream: Any = ...) -> Work: ...

    @overload
    def barrier(self, async_op: bool, *, stream: Any = ...) -> Optional[Work]: ...

    def barrier(self, async_op: bool = False, *, stream: Any = None) -> Optional[Work]:
        """Waits until all ranks have called it. With a stream, work queued on that stream afterwards waits instead."""
        try:
            return self._run(lib.dsc_barrier, (), None, async_op, stream)
        except Exception as error:
            raise self._shown(error, "barrier")

    def monitored_barrier(self, timeout: Optional[Seconds] = None) -> None:
        """Waits until all ranks have called it. If it times out, TimeoutError names every rank that did not call it.

        Args:
            timeout: seconds, the same on all ranks; the communicator's time-out if not given.
        """
        timeout_ms = self._query(lib.dsc_comm_timeout) if timeout is None else milliseconds(timeout)
        self._call(lib.dsc_monitored_barrier, timeout_ms)

    # ---- point to point ----------------------------------------------------------------------------------------

    @overload
    def send(
        self, x: Array, peer: int, async_op: Literal[False] = ..., dtype: Any = ..., *, stream: Any = ...
    ) -> None: ...

    @overload
    def send(self, x: Array, peer: int, async_op: Literal[True], dtype: Any = ..., *, stream: Any = ...) -> Work: ...

    @overload
    def send(self, x: Array, peer: int, async_op: bool, dtype: Any = ..., *, stream: Any = ...) -> Optional[Work]: ...

    def send(
        self, x: Array, peer: Optional[int] = None, async_op: bool = False, dtype: Any = None, *,
        stream: Any = None, **foreign: Any
    ) -> Optional[Work]:
        """Sends x to one rank.

        For any size, the operation completes when the receiver has arrived and x may be reused.
        """
        try:
            if foreign:
                refuse_arguments("send", foreign)
            peer = member("peer", peer, self._size)
            address, count, code, owner = _locate(x, "x", dtype, False)
            return self._run(lib.dsc_send, (address, count, code, peer), owner, async_op, stream)
        except Exception as error:
            raise self._shown(error, "send")

    @overload
    def recv(
        self, x: Array, peer: int, async_op: Literal[False] = ..., dtype: Any = ..., *, stream: Any = ...
    ) -> None: ...

    @overload
    def recv(self, x: Array, peer: int, async_op: Literal[True], dtype: Any = ..., *, stream: Any = ...) -> Work: ...

    @overload
    def recv(self, x: Array, peer: int, async_op: bool, dtype: Any = ..., *, stream: Any = ...) -> Optional[Work]: ...

    def recv(
        self, x: Array, peer: Optional[int] = None, async_op: bool = False, dtype: Any = None, *,
        stream: Any = None, **foreign: Any
    ) -> Optional[Work]:
        """Receives x from one rank, which must send the same number of elements of the same type."""
        try:
            if foreign:
                refuse_arguments("recv", foreign)
            peer = member("peer", peer, self._size)
            address, count, code, owner = _locate(x, "x", dtype)
            return self._run(lib.dsc_recv, (address, count, code, peer), owner, async_op, stream)
        except Exception as error:
            raise self._shown(error, "recv")

    def isend(
        self, x: Array, peer: Optional[int] = None, dtype: Any = None, *, stream: Any = None, **foreign: Any
    ) -> Work:
        """Same as send() with async_op=True."""
        if foreign:
            refuse_arguments("isend", foreign)
        work = self.send(x, member("peer", peer, self._size), True, dtype, stream=stream)
        assert work is not None
        return work

    def irecv(
        self, x: Array, peer: Optional[int] = None, dtype: Any = None, *, stream: Any = None, **foreign: Any
    ) -> Work:
        """Same as recv() with async_op=True."""
        if foreign:
            refuse_arguments("irecv", foreign)
        work = self.recv(x, member("peer", peer, self._size), True, dtype, stream=stream)
        assert work is not None
        return work

    # ---- several operations together -----------------------------------------------------------------------------

    def batch(self, async_op: bool = False, stream: Any = None) -> Batch:
        """Starts the operations in a ``with comm.batch():`` block together at its end, so that none waits for another.

            with world.batch():
                world.send(x, peer)
                world.recv(y, peer)

        After the block all of them are complete. With ``with comm.batch(async_op=True) as b:`` they still run, and
        b.work is their Work. Arguments are checked at each call. After an exception in the block, the operations before
        it still run, because other ranks wait for them.
        """
        return Batch(self, async_op, stream)
