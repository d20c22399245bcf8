"""Communicators: groups of ranks, and the operations on them."""

from __future__ import annotations

import ctypes
import itertools
import math
import weakref
from ctypes import byref, c_int32, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any, Callable, NoReturn, Optional, Sequence, Union

from libdsc import _buffers, _dtypes, _interrupt, _pipe_run, _raw, errors
from libdsc._library import check, last_message, lib
from libdsc._raw import MemoryKind, Result
from libdsc._memory import array_over, numpy_module
from libdsc._pipe import PipeSchedule
from libdsc._work import Work, error_of

# Failures that the communicator itself remembers with the ranks at fault.
REMEMBERED = {
    Result.ERR_TIMEOUT,
    Result.ERR_PEER_DEAD,
    Result.ERR_PEER_STALLED,
    Result.ERR_PEER_LEFT,
    Result.ERR_MISMATCH,
    Result.ERR_REVOKED,
    Result.ERR_CALLBACK,
}

_OPS = {op.name.lower(): int(op) for op in _raw.Op}
_locate = _buffers.locate
_known: weakref.WeakValueDictionary[int, Communicator] = weakref.WeakValueDictionary()

Arrays = Union[Any, Sequence[Any]]
AtEnd = Optional[Callable[[], None]]


@dataclass(frozen=True)
class OpStats:
    """Running totals of one operation at one size class."""

    operation: str
    bytes_class: int
    count: int
    bytes: int
    waiting_ns: int
    moving_ns: int

    @property
    def op(self) -> str:
        """The operation, under the name that exceptions use too."""
        return self.operation


class Communicator:
    """A group of ranks. Made by init_distributed(), split() and create_group(), never directly.

    All ranks call its collective operations in the same order. Arrays are anything with the buffer protocol,
    ``__array_interface__``, ``__cuda_array_interface__`` or DLPack; they are used in place, never copied. 16- and
    8-bit floats that numpy lacks travel as uint16 or uint8 arrays with ``dtype="bf16"`` and the like, or as
    ml_dtypes arrays.

    With ``async_op=True`` an operation returns a Work at once, which keeps the arrays alive; they must not be
    touched until it has completed. Otherwise the call returns None when the result is there; Ctrl-C then aborts the
    communicator on all ranks.

    As a context manager it ends with finalize() and close(), or with abort() and close() after an exception.
    """

    def __init__(self, handle: int, is_world: bool = False) -> None:
        self._handle = handle
        self._is_world = is_world
        self._rank = self._query(lib.dsc_comm_rank)
        self._size = self._query(lib.dsc_comm_size)
        self._name = self._read_name()
        _known[handle] = self

    def __repr__(self) -> str:
        state = "" if self._handle else ", closed"
        return f"<libdsc.Communicator {self.name!r}, rank {self._rank} of {self._size}{state}>"

    # ---- queries -----------------------------------------------------------------------------------------------

    def _query(self, function: Any, *arguments: Any) -> int:
        value = c_int32()
        check(function(self._handle, *arguments, byref(value)))
        return value.value

    def _read_name(self) -> str:
        text = ctypes.create_string_buffer(64)
        check(lib.dsc_comm_name(self._handle, text, len(text)))
        return text.value.decode(errors="replace")

    @property
    def rank(self) -> int:
        """This process's number in the group, 0 to size - 1."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks in the group."""
        return self._size

    @property
    def local_rank(self) -> int:
        """This process's number among the ranks of the world on its host."""
        return self._query(lib.dsc_comm_local_rank)

    @property
    def local_size(self) -> int:
        """The number of ranks of the world on this host."""
        return self._query(lib.dsc_comm_local_size)

    @property
    def backend(self) -> str:
        """What moves host memory, such as "host"."""
        return _raw.Backend(self._query(lib.dsc_comm_backend)).name.lower()

    @property
    def name(self) -> str:
        """The name that stands in errors; "world" for the world."""
        return self._name

    def env(self, variable: str) -> str:
        """Returns a setting as this world has it.

        Args:
            variable: "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                "DSC_SOURCE" (where rank and size came from) or "DSC_REPORT" (what start-up found).
        """
        text = ctypes.create_string_buffer(1 << 16)
        check(lib.dsc_comm_env(self._handle, variable.encode(), text, len(text)))
        return text.value.decode(errors="replace")

    def global_rank(self, group_rank: int) -> int:
        """Translates a rank of this group into the world's."""
        return self._query(lib.dsc_comm_global_rank, group_rank)

    def group_rank(self, global_rank: int) -> Optional[int]:
        """Translates a rank of the world into this group's; None if it is not a member."""
        rank = self._query(lib.dsc_comm_group_rank, global_rank)
        return None if rank < 0 else rank

    def error(self) -> Optional[errors.DscError]:
        """Returns the first failure of this communicator, or a stalled rank that is being waited for, or None."""
        info = self._error_info()
        return error_of(info, self) if info.code < 0 else None

    def stats(self) -> list[OpStats]:
        """Returns the running totals per operation and size class."""
        return read_stats(lib.dsc_comm_stats, self._handle)

    # ---- collective operations ---------------------------------------------------------------------------------

    def all_reduce(
        self, x: Any, op: Any = "sum", out: Any = None, async_op: bool = False, dtype: Any = None
    ) -> Optional[Work]:
        """Combines the elements of all ranks' x; every rank gets the result in x, or in out if that is given.

        Args:
            x: an array, the same count and type on all ranks.
            op: "sum", "prod", "max", "min" or "avg".
            out: where the result goes; x is not written then.
            async_op: True returns a Work at once.
            dtype: what the elements are, such as "bf16" for an array of uint16.
        """
        send, count, code, owner = _locate(x, "x", dtype, out is None)
        recv = send
        if out is not None:
            recv, owner = self._like(out, "out", dtype, count, code, owner)
        number = _OPS.get(op) or _dtypes.op_code(op)
        return self._run(lib.dsc_all_reduce, (send, recv, count, code, number), owner, async_op)

    def broadcast(self, x: Any, root: int = 0, async_op: bool = False, dtype: Any = None) -> Optional[Work]:
        """Copies the root's x into the x of all ranks."""
        address, count, code, owner = _locate(x, "x", dtype, self._rank != root)
        return self._run(lib.dsc_broadcast, (address, address, count, code, root), owner, async_op)

    def all_gather(self, out: Arrays, x: Any, async_op: bool = False, dtype: Any = None) -> Optional[Work]:
        """Gathers the x of every rank, in rank order, into out on all ranks.

        Args:
            out: an array of size times as many elements as x, or a list of size arrays like x.
            x: an array, the same count and type on all ranks; may be this rank's own part of out.
        """
        send, count, code, owner = _locate(x, "x", dtype, False)
        at_end: AtEnd = None
        if isinstance(out, (list, tuple)):
            parts = self._parts(out, "out", dtype, count, code, True)
            part_bytes = count * _dtypes.BYTES[_raw.Dtype(code)]
            packed = ctypes.create_string_buffer(max(1, part_bytes * self._size))
            recv = ctypes.addressof(packed)
            at_end = lambda: _unpack(recv, parts, part_bytes)
            owner = (owner, packed, parts)
        else:
            recv, owner = self._like(out, "out", dtype, count * self._size, code, owner)
        return self._run(lib.dsc_all_gather, (send, recv, count, code), owner, async_op, at_end)

    def reduce_scatter(
        self, out: Any, x: Arrays, op: Any = "sum", async_op: bool = False, dtype: Any = None
    ) -> Optional[Work]:
        """Combines the elements of all ranks' x; rank r gets part r in out.

        Args:
            out: an array; may be this rank's own part of x.
            x: an array of size times as many elements as out, or a list of size arrays like out.
            op: as in all_reduce().
        """
        recv, count, code, owner = _locate(out, "out", dtype)
        if isinstance(x, (list, tuple)):
            parts = self._parts(x, "x", dtype, count, code, False)
            packed = _pack(parts, count * _dtypes.BYTES[_raw.Dtype(code)])
            send = ctypes.addressof(packed)
            owner = (owner, packed)
        else:
            send, owner = self._like(x, "x", dtype, count * self._size, code, owner, False)
        number = _OPS.get(op) or _dtypes.op_code(op)
        return self._run(lib.dsc_reduce_scatter, (send, recv, count, code, number), owner, async_op)

    def barrier(self, async_op: bool = False) -> Optional[Work]:
        """Waits until all ranks have called it."""
        return self._run(lib.dsc_barrier, (), None, async_op)

    # ---- point to point ----------------------------------------------------------------------------------------

    def send(self, x: Any, peer: int, async_op: bool = False, dtype: Any = None) -> Optional[Work]:
        """Sends x to one rank; complete when the receiver has it, whatever the size."""
        address, count, code, owner = _locate(x, "x", dtype, False)
        return self._run(lib.dsc_send, (address, count, code, peer), owner, async_op)

    def recv(self, x: Any, peer: int, async_op: bool = False, dtype: Any = None) -> Optional[Work]:
        """Receives x from one rank, which sends as many elements of the same type."""
        address, count, code, owner = _locate(x, "x", dtype)
        return self._run(lib.dsc_recv, (address, count, code, peer), owner, async_op)

    def isend(self, x: Any, peer: int, dtype: Any = None) -> Work:
        """As send() with async_op=True."""
        work = self.send(x, peer, True, dtype)
        assert work is not None
        return work

    def irecv(self, x: Any, peer: int, dtype: Any = None) -> Work:
        """As recv() with async_op=True."""
        work = self.recv(x, peer, True, dtype)
        assert work is not None
        return work

    # ---- pipeline ----------------------------------------------------------------------------------------------

    def pipe_run(
        self,
        schedule: PipeSchedule,
        *,
        forward: _pipe_run.Forward,
        backward: Optional[_pipe_run.Backward] = None,
        load_micro_batch: Optional[_pipe_run.Callback] = None,
        reduce_tied_grads: Optional[_pipe_run.Callback] = None,
        reduce_grads: Optional[_pipe_run.Callback] = None,
        optimizer_step: Optional[_pipe_run.Callback] = None,
        backward_input: Optional[_pipe_run.Backward] = None,
        backward_weight: Optional[_pipe_run.Backward] = None,
        inputs: Sequence[tuple[_pipe_run.Shape, Any]] = (),
        outputs: Sequence[tuple[_pipe_run.Shape, Any]] = (),
    ) -> float:
        """Runs a pipeline schedule once; rank s of this communicator is stage s. Collective.

        The callbacks compute, the library sends and receives between them. Each gets the instruction as iterating
        over the schedule gives it. Those that get arrays get lists of numpy arrays over the library's own memory,
        one per tensor: what stands in them stays from a micro-batch's forward pass to the end of its backward
        pass, and is overwritten then. Copy what is needed longer. The memory itself lives as long as the
        schedule, unless a run with other shapes or another communicator replaces it.

        An exception in a callback ends the run on all ranks and is raised here; the other ranks get
        CallbackError, and the communicator is revoked. So does Ctrl-C.

        Args:
            schedule: the schedule of this stage.
            forward: forward(instruction, inputs, outputs) writes outputs; on the last stage it returns the loss of
                the micro-batch (in an inference schedule it may return None, which counts as 0).
            backward: backward(instruction, inputs, outputs, output_grads, input_grads) reads output_grads and
                writes input_grads. A gradient of integers is None.
            load_micro_batch: f(instruction) gets inputs on the first stage and labels on the last.
            reduce_tied_grads: f(instruction) adds up gradients of weights that stages share.
            reduce_grads: f(instruction) reduces gradients over data-parallel ranks.
            optimizer_step: f(instruction) updates the weights.
            backward_input: as backward; the half that writes input_grads.
            backward_weight: as backward; the half that computes gradients of weights.
            inputs: (shape, dtype) of each tensor that the previous stage sends; none on the first stage.
            outputs: the same for the next stage; none on the last stage.

        Returns:
            The mean loss of all micro-batches, on all ranks.
        """
        functions = {
            "load_micro_batch": load_micro_batch,
            "forward": forward,
            "backward": backward,
            "backward_input": backward_input,
            "backward_weight": backward_weight,
            "reduce_tied_grads": reduce_tied_grads,
            "reduce_grads": reduce_grads,
            "optimizer_step": optimizer_step,
        }
        return _pipe_run.run(self, schedule, functions, inputs, outputs)

    # ---- groups and memory -------------------------------------------------------------------------------------

    def split(
        self, color: Optional[int], key: int = 0, name: Optional[str] = None, timeout: Optional[float] = None
    ) -> Optional[Communicator]:
        """Divides the communicator: ranks of one color form a group, ordered by key, then by rank.

        Collective. With color None this rank joins no group and gets None.
        """
        number = -1 if color is None else color
        return self._make_group(lib.dsc_comm_split, (number, key), name, timeout)

    def create_group(
        self, ranks: Sequence[int], name: Optional[str] = None, timeout: Optional[float] = None
    ) -> Optional[Communicator]:
        """Makes a group of the listed ranks, in that order. Collective: every rank passes the same list.

        A rank that is not listed gets None.
        """
        listed = (c_int32 * len(ranks))(*ranks)
        return self._make_group(lib.dsc_comm_create_group, (listed, len(ranks)), name, timeout)

    def _make_group(
        self, function: Any, arguments: tuple[Any, ...], name: Optional[str], timeout: Optional[float]
    ) -> Optional[Communicator]:
        options = _group_options(name, timeout)
        group = c_void_p()
        self._call(function, *arguments, byref(options), byref(group))
        return None if group.value is None else Communicator(group.value)

    # ---- after a failure ---------------------------------------------------------------------------------------

    def agree(self, flags: Union[bool, int]) -> Any:
        """Combines flags of all ranks that live by bitwise AND; works after a failure too.

        Collective among the ranks that live. All that get a value get the same one, whenever ranks die. With a bool
        the value is a bool: whether all of them passed True. Ctrl-C ends it, with RevokedError on the others.

        Raises TimeoutError, with .ranks, on all ranks when one lives and does not come; the call may be repeated.
        """
        agreed = c_int32()
        self._recover(lib.dsc_comm_agree, int(flags), byref(agreed))
        return bool(agreed.value & 1) if isinstance(flags, bool) else agreed.value

    def shrink(self, name: Optional[str] = None, timeout: Optional[float] = None) -> Communicator:
        """Returns a working communicator of the ranks that live, in their old order.

        Collective among the ranks that live. Works after a failure and without one, and again on what it returned.
        Arrays of empty() move without copying on the new communicator too. Close the old one when nothing of it is
        needed any more; finalize() of the world waits for the ranks of the new one.
        """
        options = _group_options(name, timeout)
        shrunk = c_void_p()
        self._recover(lib.dsc_comm_shrink, byref(options), byref(shrunk))
        assert shrunk.value is not None
        return Communicator(shrunk.value)

    @property
    def missing(self) -> list[int]:
        """The ranks that the latest agree() or shrink() missed, the same on all ranks."""
        ranks, count = (c_int32 * self._size)(), c_int32()
        check(lib.dsc_comm_missing(self._handle, ranks, self._size, byref(count)))
        return ranks[: count.value]

    def _recover(self, function: Any, *arguments: Any) -> None:
        """Makes a call whose failure is not the communicator's first one: who is to blame is in missing."""
        code = _interrupt.call(self._stop, function, self._handle, *arguments)
        if code >= 0:
            return
        text, blamed = last_message(), tuple(self.missing) if self._handle else ()
        if text.endswith("aborted the communicator"):
            _interrupt.let_own_signal_come()
        rank = blamed[0] if blamed else None
        raise errors.from_code(code, text, op=_op_name(function), group=self._name, rank=rank, ranks=blamed)

    def empty(self, shape: Union[int, Sequence[int]], dtype: Any = "float32") -> Any:
        """Returns a zeroed numpy array in memory that operations of this communicator move without copying.

        Collective, with equal bytes on all ranks; operations of all groups made from this communicator profit
        too. The memory is freed when the last view of the array is gone.

        Args:
            shape: one extent or several.
            dtype: a name such as "float32", or a numpy type; "bf16" makes an array of uint16.
        """
        extents = tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)  # type: ignore[arg-type]
        element = numpy_module().dtype(_dtypes.numpy_type(_dtypes.dtype_code(dtype), dtype))
        size_bytes = max(1, math.prod(extents) * element.itemsize)
        address = c_void_p()
        self._call(lib.dsc_mem_alloc, size_bytes, int(MemoryKind.HOST), byref(address))
        assert address.value is not None
        return array_over(address.value, extents, element, SharedMemory(address.value))

    # ---- life and failure --------------------------------------------------------------------------------------

    def set_timeout(self, seconds: float) -> None:
        """Sets the deadline of the operations that start from now on; give all ranks the same."""
        check(lib.dsc_comm_set_timeout(self._handle, milliseconds(seconds)))

    def abort(self) -> None:
        """Revokes the communicator on all ranks: pending and later operations raise RevokedError."""
        check(lib.dsc_comm_abort(self._handle))

    def finalize(self) -> None:
        """Waits until all ranks have called it and all operations are done. Collective."""
        self._call(lib.dsc_comm_finalize)

    def close(self) -> None:
        """Releases the communicator; ranks that wait for this one get PeerLeftError. Closing twice is fine."""
        handle, self._handle = self._handle, 0
        if handle:
            lib.dsc_comm_destroy(handle)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if self._handle and kind is None:
                self.finalize()
            elif self._handle:
                self.abort()
        finally:
            self.close()

    def __del__(self) -> None:
        try:
            if not self._is_world:  # the world lives until finalize(), whoever holds it
                self.close()
        except Exception:  # at interpreter shutdown, or when __init__ failed
            pass

    # ---- how calls are made ------------------------------------------------------------------------------------

    def _like(
        self, x: Any, argument: str, dtype: Any, count: int, code: int, owner: Any, writable: bool = True
    ) -> tuple[int, Any]:
        """Locates an array that must have so many elements of a type; returns address and all owners."""
        address, found, found_code, second = _locate(x, argument, dtype, writable)
        if found != count:
            raise ValueError(f"{argument} has {found} elements; expected {count} (this group has {self._size} ranks)")
        if found_code != code:
            names = (_raw.Dtype(found_code).name.lower(), _raw.Dtype(code).name.lower())
            raise ValueError(f"{argument} has element type {names[0]}; expected {names[1]} as the other array")
        return address, (owner, second)

    def _parts(
        self, arrays: Sequence[Any], argument: str, dtype: Any, count: int, code: int, writable: bool
    ) -> list[tuple[int, Any]]:
        """Locates a list of one array per rank."""
        if len(arrays) != self._size:
            raise ValueError(f"{argument} has {len(arrays)} arrays; expected one per rank, {self._size}")
        return [
            self._like(part, f"{argument}[{index}]", dtype, count, code, None, writable)
            for index, part in enumerate(arrays)
        ]

    def _run(
        self, function: Any, arguments: tuple[Any, ...], owner: Any, async_op: bool, at_end: AtEnd = None
    ) -> Optional[Work]:
        """Calls an operation: at once with a Work, or blocking."""
        if async_op:
            work = c_void_p()
            code = function(self._handle, *arguments, None, byref(work))
            if code < 0:
                self._fail(code, last_message(), _op_name(function))
            assert work.value is not None
            return Work(work.value, self, _op_name(function), (owner,), at_end)
        if self._size > 1:
            code = _interrupt.call(self._stop, function, self._handle, *arguments, None, None)
        else:
            code = function(self._handle, *arguments, None, None)
        if code < 0:
            self._fail(code, last_message(), _op_name(function))
        if at_end is not None:
            at_end()
        return None

    def _call(self, function: Any, *arguments: Any) -> None:
        """Makes a call that blocks and has no work form."""
        code = _interrupt.call(self._stop, function, self._handle, *arguments)
        if code < 0:
            self._fail(code, last_message(), _op_name(function))

    def _stop(self) -> None:
        """Ends the call that another thread is in; Ctrl-C needs no further exception from here."""
        lib.dsc_comm_abort(self._handle)

    def _error_info(self) -> _raw.ErrorInfo:
        info = _raw.ErrorInfo(struct_size=ctypes.sizeof(_raw.ErrorInfo))
        check(lib.dsc_comm_error(self._handle, byref(info)))
        return info

    def _fail(self, code: int, text: str, op: str) -> NoReturn:
        """Raises the exception of a call that failed, with what the communicator knows of the cause."""
        if not self._handle and code == _raw.Result.ERR_BAD_HANDLE:
            text = f"{op}: the communicator was closed or finalized"
        if text.endswith("aborted the communicator"):
            _interrupt.let_own_signal_come()
        details: dict[str, Any] = {"op": op, "group": self._name}
        if code in REMEMBERED and self._handle:
            info = self._error_info()
            if info.code < 0:
                known = error_of(info, self)
                details |= {"rank": known.rank, "ranks": known.ranks, "sequence": known.sequence}
        raise errors.from_code(code, text, **details)


class SharedMemory:
    """Owns memory of dsc_mem_alloc()."""

    __slots__ = ("_address", "__weakref__")

    def __init__(self, address: int) -> None:
        self._address = address

    def __del__(self) -> None:
        try:
            lib.dsc_mem_free(self._address)
        except Exception:  # at interpreter shutdown
            pass


def communicator_of(handle: int, is_world: bool) -> Communicator:
    """Returns the one object for a handle."""
    return _known.get(handle) or Communicator(handle, is_world)


def milliseconds(seconds: float) -> int:
    """A time-out as the library wants it, never rounded down to nothing."""
    if not seconds > 0:
        raise ValueError(f"a time-out is a number of seconds above 0; got {seconds}")
    return min(2**31 - 1, math.ceil(seconds * 1000))


def read_stats(function: Any, handle: int) -> list[OpStats]:
    """Reads an array of totals whose length may grow between asking for it and reading it."""
    count = c_size_t()
    check(function(handle, None, 0, byref(count)))
    while True:
        room = count.value
        found = (_raw.OpStats * max(1, room))()
        found[0].struct_size = ctypes.sizeof(_raw.OpStats)
        check(function(handle, found, room, byref(count)))
        if count.value <= room:
            break
    return [
        OpStats(s.operation.decode(), s.bytes_class, s.count, s.bytes, s.waiting_ns, s.moving_ns)
        for s in itertools.islice(found, count.value)
    ]


def _group_options(name: Optional[str], timeout: Optional[float]) -> _raw.GroupOptions:
    options = _raw.GroupOptions()
    check(lib.dsc_group_options_init(byref(options), ctypes.sizeof(options)))
    options.name = None if name is None else name.encode()
    if timeout is not None:
        options.timeout_ms = milliseconds(timeout)
    return options


def _op_name(function: Any) -> str:
    return str(function.__name__).removeprefix("dsc_").removeprefix("comm_")


def _pack(parts: list[tuple[int, Any]], part_bytes: int) -> Any:
    packed = ctypes.create_string_buffer(max(1, part_bytes * len(parts)))
    for index, (address, _) in enumerate(parts):
        ctypes.memmove(ctypes.addressof(packed) + index * part_bytes, address, part_bytes)
    return packed


def _unpack(packed: int, parts: list[tuple[int, Any]], part_bytes: int) -> None:
    for index, (address, _) in enumerate(parts):
        ctypes.memmove(address, packed + index * part_bytes, part_bytes)
