"""How a communicator calls the library: blocking, with a Work, or in a batch. Also turns failures into exceptions."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int32
from typing import TYPE_CHECKING, Any, NoReturn, Optional

from libdsc import _buffers, _callbacks, _interrupt, _ops, _raw, _words, errors
from libdsc._arguments import ranks_text, with_order
from libdsc._blocks import expect_dtype
from libdsc._library import Shared, check, last_info, last_message, lib
from libdsc._ops import raised_in, user_ops_in
from libdsc._raw import Result
from libdsc._streams import place_of
from libdsc._tracebacks import shown
from libdsc._work import AtEnd, Work, error_of, reap, start

if TYPE_CHECKING:
    from libdsc._batch import Batch

# Errors that may end the communicator. The library stores the first one.
REMEMBERED = {
    Result.ERR_TIMEOUT,
    Result.ERR_PEER_DEAD,
    Result.ERR_PEER_STALLED,
    Result.ERR_PEER_LEFT,
    Result.ERR_MISMATCH,
    Result.ERR_REVOKED,
    Result.ERR_CALLBACK,
}

class Calls(Shared):
    """The base class of Communicator: how it calls operations of the library."""

    __slots__ = (
        "_handle",
        "_rank",
        "_size",
        "_device",
        "_name",
        "_progress_thread",
        "_batch",
        "_refused",
        "_failure_told",
        "_failure_warned",
        "_attached",
    )

    _handle: int
    _rank: int
    _size: int
    _device: int  # the GPU it is bound to; -1: none
    _name: str
    _progress_thread: bool
    _batch: Optional[Batch]  # the open batch, if any
    # The number of completed operations when this rank alone refused a call, and the error text of that call.
    _refused: Optional[tuple[int, str]]
    # Whether the program has already seen, or caused, the failure that ended the communicator.
    _failure_told: bool
    # Whether a warning has shown the failure. The end of a with block raises it nevertheless.
    _failure_warned: bool
    _attached: dict[str, Any]  # objects that other modules store here until the communicator is closed

    @property
    def name(self) -> str:
        """The name of the group in errors; "world" for the world."""
        return self._name

    @property
    def progress_thread(self) -> bool:
        """Whether a thread of the library advances operations while no call waits for them."""
        return self._progress_thread

    def abort(self) -> None:
        """Revokes the communicator on all ranks: pending and later operations raise RevokedError."""
        self._failure_told = True
        check(lib.dsc_comm_abort(self._handle))

    def _query(self, function: Any, *arguments: Any) -> int:
        value = c_int32()
        check(function(self._handle, *arguments, byref(value)))
        return value.value

    def _like(
        self, x: Any, argument: str, dtype: Any, count: int, code: int, owner: Any, writable: bool = True
    ) -> tuple[int, Any]:
        """Locates an array that must have this count and type. Returns its address and the owners of both arrays."""
        address, found, found_code, second = _buffers.locate(x, argument, dtype, writable)
        if found != count:
            raise ValueError(f"{argument} has {found} elements; expected {count} ({ranks_text(self._size)})")
        expect_dtype(argument, found_code, code)
        return address, (owner, second)

    def _run(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        owner: Any,
        async_op: bool,
        stream: Any,
        at_end: AtEnd = None,
    ) -> Optional[Work]:
        """Calls an operation: notes it in an open batch, starts it and returns a Work, or waits for its end."""
        place, handle = None, None
        if stream is not None or _buffers.memory_met:
            place = place_of(self, owner, stream)
            handle = None if place is None else place.stream
        if self._batch is not None:
            self._batch.note(function, arguments, owner, async_op, stream, at_end)
            return None
        if async_op:
            started = start(self, function, (*arguments, handle), owner, at_end, op_name(function), place)
            if not isinstance(started, Work):
                self._fail(started, last_message(), op_name(function), owner)
            return started
        if _ops.user_ops_made and any(user_ops_in(owner)):
            call = (_interrupt.call, self._stop, function, self._handle, *arguments, handle, None)
            code = _callbacks.call(self._stop, *call)
        elif self._size > 1:
            code = _interrupt.call(self._stop, function, self._handle, *arguments, handle, None)
        else:
            code = function(self._handle, *arguments, handle, None)
        if code < 0:
            self._fail(code, last_message(), op_name(function), owner)
        if at_end is not None:
            at_end()
        reap()
        return None

    def _call(self, function: Any, *arguments: Any, owner: Any = None) -> None:
        """Makes a blocking call for which the library has no asynchronous form."""
        call = (_interrupt.call, self._stop, function, self._handle, *arguments)
        code = _callbacks.call(self._stop, *call) if any(user_ops_in(owner)) else call[0](*call[1:])
        if code < 0:
            self._fail(code, last_message(), op_name(function), owner)
        reap()

    def _stop(self) -> None:
        """Aborts the communicator to end a call in progress. The failure is not reported again: Ctrl-C caused it."""
        self._failure_told = True
        lib.dsc_comm_abort(self._handle)

    def _error_info(self) -> _raw.ErrorInfo:
        info = _raw.ErrorInfo(struct_size=ctypes.sizeof(_raw.ErrorInfo))
        check(lib.dsc_comm_error_info(self._handle, byref(info)))
        return info

    def _shown(self, error: Exception, op: str) -> Exception:
        """Returns the exception of an operation in the form that shown() gives it.

        If only this rank knows of the error, it is stored, because it may explain a later mismatch.
        """
        if not isinstance(error, errors.DscError) or error.code == Result.ERR_INVALID_ARG:
            self._refused = self._completed(), f"{op} raised {type(error).__name__}: {error}"
        return shown(with_order(error, getattr(type(self), op, None)))

    def _completed(self) -> int:
        """How many operations of this communicator have completed."""
        raise NotImplementedError

    def _details(self, code: int, text: str) -> dict[str, Any]:
        """Returns what is known of a call that has just failed with this text: rank, group, sequence number and so on.

        The record of the call is used, not that of the communicator. The failure may belong to another group, such as a
        reducer's, or to a later operation than the first one that failed in this communicator.
        """
        info, said = last_info(), last_message()
        if info.code != code or not said or not text.startswith(said):
            return {"group": self._name}
        known = error_of(info, self)
        return {name: getattr(known, name) for name in ("rank", "ranks", "group", "sequence", "index")}

    def _fail(self, code: int, text: str, op: str, owner: Any = None) -> NoReturn:
        """Raises the exception of a call that failed, with what the library knows of the cause."""
        if not self._handle and code == _raw.Result.ERR_BAD_HANDLE:
            text = f"{op}: the communicator was closed or finalized"
        details = self._details(code, text) | {"op": op}
        _interrupt.let_own_signal_come_after(text)
        if code == Result.ERR_MISMATCH and self._refused is not None and self._refused[0] == self._completed():
            text += f"; before that, this rank rejected a call that other ranks may have made: {self._refused[1]}"
        if code in REMEMBERED and self._handle:
            self._failure_told = self._failure_told or bool(self._error_info().revoked)
        cause = raised_in(owner) if code == Result.ERR_CALLBACK else None
        if cause is not None and not isinstance(cause, Exception):
            # An exception such as KeyboardInterrupt, raised in a function of user_op(), is passed on unchanged.
            raise cause
        raise errors.from_code(code, text, **details) from cause


def op_name(function: Any) -> str:
    """Returns the name that errors use for the operation of a library function."""
    name = str(function.__name__)
    return _words.OPERATIONS.get(name) or name.removeprefix("dsc_").removeprefix("comm_")
