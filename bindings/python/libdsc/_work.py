"""Asynchronous operations: works, and the arrays that must stay alive until an operation has completed."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
import warnings
from collections import deque
from ctypes import byref, c_int32, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Generator, Optional, Union

from libdsc import _callbacks, _interrupt, _raw, errors
from libdsc._arguments import Seconds, wait_seconds
from libdsc._library import OnlyOne, check, last_message, lib
from libdsc._ops import raised_in, user_ops_in
from libdsc._tracebacks import shown

if TYPE_CHECKING:
    from libdsc._calls import Calls
    from libdsc._streams import Place

AtEnd = Optional[Callable[[], None]]

IN_PROGRESS = int(_raw.Result.IN_PROGRESS)
FOREVER_MS = -1
# The interval at which an awaited operation is advanced if no thread of the library does it.
POLL_S = 0.001
# A call stops after it has found this many dropped operations still running, to bound its cost.
MISSES = 2
# The longest wait for operations of a communicator that was closed, which other threads may still be ending.
ENDING_S = 1.0

# The objects that a running operation needs alive, and its communicator. The key is the operation's handle, or a unique
# token until it has started. The entry of a Work that was dropped is removed by reap().
_running: dict[object, tuple[Any, Calls]] = {}
_dropped: deque[tuple[int, AtEnd]] = deque()
# A reentrant lock: releasing an operation's objects may run the destructor of another Work, which completes too.
_completing = threading.RLock()


class Work(OnlyOne):
    """An operation that runs in the background. It keeps its arrays alive until it has completed.

    Wait for it with wait(), or with ``await`` in an asyncio program. Or poll test() until it returns True, then call
    wait(), which raises the failure, if any.

    If you drop the object, the operation still finishes; results for a list of arrays are then copied during a later
    call. If the operation fails and the failure was not raised by any call, a RuntimeWarning is issued after the object
    is gone and the operation has completed.
    """

    __slots__ = ("_handle", "_comm", "_op", "_completed", "_failure", "_told", "_at_end", "_place", "__weakref__")

    def __init__(
        self, handle: int, comm: Calls, op: str, owners: tuple[Any, ...], at_end: AtEnd, place: Optional[Place]
    ) -> None:
        _running[handle] = (owners, comm)  # first, because the following lines may raise
        self._handle = handle
        self._comm = comm
        self._op = op
        self._completed = False
        self._failure: Optional[errors.DscError] = None
        self._told = False  # whether the failure was raised to the program
        self._at_end = at_end
        self._place = place  # None: host memory
        reap()

    def __repr__(self) -> str:
        state = "failed" if self._failure is not None else "completed" if self._completed else "started"
        return f"<libdsc.Work {self._op} on {self._comm.name!r}, {state}>"

    def test(self) -> bool:
        """Returns whether the operation has completed; never blocks. Also True if it failed: call wait() or error().

        In a world without a progress thread each call advances the operations by one step.
        """
        try:
            if not self._completed:
                completed = c_int32()
                code = lib.dsc_work_test(self._handle, byref(completed))
                if completed.value:
                    self._complete()
                elif code < 0 and not self._completed:  # another thread may have completed it meanwhile
                    check(code)
            return self._completed
        except Exception as error:
            raise shown(error)

    def wait(self, timeout: Optional[Seconds] = None, *, stream: Any = None) -> bool:
        """Waits until the operation has completed, and raises its failure.

        With a timeout it returns False when that has passed, and the operation continues. Ctrl-C aborts the
        communicator.

        For arrays on a GPU the caller does not wait: work queued on the stream afterwards waits for the operation.
        synchronize() and later operations raise a failure that occurs after this call.

        Args:
            timeout: seconds.
            stream: the stream that waits, as in the operations; if not given, the caller's current stream.
        """
        try:
            seconds = wait_seconds(timeout)
            if not self._completed:
                waiting = None if self._place is None else self._place.waiting(stream)
                code = self._wait(lambda wait_ms: int(lib.dsc_work_wait(self._handle, wait_ms, waiting)), seconds)
                if code == IN_PROGRESS:
                    return False
                self._see(code)
            self._raise_failure()
            return True
        except Exception as error:
            raise shown(error)

    def synchronize(self, timeout: Optional[Seconds] = None) -> bool:
        """Like wait(), but also waits for the GPU: on return no operation uses the arrays any more."""
        try:
            seconds = wait_seconds(timeout)
            if not self._completed:
                code = self._wait(lambda wait_ms: int(lib.dsc_work_synchronize(self._handle, wait_ms)), seconds)
                if code == IN_PROGRESS:
                    return False
                self._see(code)
            self._raise_failure()
            return True
        except Exception as error:
            raise shown(error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            if not self._comm._failure_told:  # only for the first failure, not for each of many works
                _interrupt.let_own_signal_come_after(str(self._failure))
            self._told = True
            _note_told(self._failure, self._comm)
            raise self._failure.with_traceback(None)

    def _see(self, code: int) -> None:
        """Handles the result of a wait. With a failure, or on a stream, the operation may not have completed yet."""
        if self._place is None and code == 0:
            self._complete(succeeded=True)
        else:
            text = last_message() if code < 0 else ""
            if not self.test() and code < 0:
                self._comm._fail(code, text, "work_wait")
        reap()

    def _wait(self, wait_for_ms: Callable[[int], int], seconds: Optional[float]) -> int:
        """Waits for the operation. On the main thread it waits in slices, so that signal handlers can run."""
        if seconds is None and not _interrupt.on_main_thread():
            return wait_for_ms(FOREVER_MS)
        end = None if seconds is None else time.monotonic() + seconds
        try:
            while True:
                left_ms = _interrupt.SLICE_MS
                if end is not None:
                    left_ms = round(max(0, min(left_ms, (end - time.monotonic()) * 1000)))
                code = wait_for_ms(left_ms)
                if code != IN_PROGRESS or end is not None and time.monotonic() >= end:
                    return code
        except BaseException:
            self._comm.abort()
            wait_for_ms(int(_interrupt.AFTER_ABORT_S * 1000))
            raise

    def error(self) -> Optional[errors.DscError]:
        """Returns the exception that wait() would raise; None if the operation succeeded or still runs."""
        self.test()
        if self._failure is not None:
            self._told = True
            _note_told(self._failure, self._comm)
        return self._failure

    def fileno(self) -> int:
        """Returns a descriptor that becomes readable on completion, for select() and event loops; do not read it."""
        if self._completed:
            raise ValueError("the operation has completed and its descriptor is closed; call fileno() only while test() returns False")
        descriptor = c_int32()
        check(lib.dsc_work_eventfd(self._handle, byref(descriptor)))
        return descriptor.value

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait_async().__await__()

    async def _wait_async(self) -> None:
        try:
            if not self.test():
                if self._comm.progress_thread:
                    await self._until_readable()
                else:
                    await self._until_driven()
            self.synchronize()
        except Exception as error:
            raise shown(error)

    async def _until_readable(self) -> None:
        # Without this lock, another thread could complete the operation and close its descriptor.
        with _completing:
            if self._completed:
                return
            # A duplicate, because an event loop allows one reader per descriptor, and several tasks may await this
            # operation.
            descriptor = os.dup(self.fileno())
        # Imported here, because an import at the top would slow down `import libdsc` for programs that do not use
        # asyncio.
        import asyncio

        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()

        def set_readable() -> None:
            if not readable.done():
                readable.set_result(None)

        try:
            loop.add_reader(descriptor, set_readable)
            await readable
        finally:
            try:
                loop.remove_reader(descriptor)
            finally:
                os.close(descriptor)

    async def _until_driven(self) -> None:
        """Advances the operation from the event loop, for a world without a progress thread."""
        import asyncio

        delay = 0.0
        while not self.test():
            await asyncio.sleep(delay)
            delay = min(POLL_S, delay + POLL_S / 20)

    def _complete(self, succeeded: bool = False) -> None:
        """Stores the result and releases the handle and the arrays. Only the first thread that calls it does this."""
        with _completing:
            if self._completed:
                return
            if not succeeded:
                self._failure = _failure_of(self._handle, self._comm)
                if self._failure is not None:
                    self._failure.__cause__ = raised_in(_running[self._handle][0])
            self._completed = True
            _release(self._handle, self._at_end if self._failure is None else None)
            self._at_end = None

    def _hand_over(self) -> tuple[int, tuple[AtEnd, Any]]:
        """Transfers the handle to a new owner, for example a hook's bucket. Returns 0 if the operation has completed.

        Also returns what the new owner must call and keep alive until it has waited.
        """
        with _completing:
            if self._completed:
                self._raise_failure()
                return 0, (None, None)
            self._completed = True
            owners, _ = _running.pop(self._handle)
            return self._handle, (self._at_end, owners)

    def __del__(self) -> None:
        try:
            if not self._completed:
                _dropped.append((self._handle, self._at_end))
                reap()
            elif self._failure is not None and not self._told:
                _warn_of(self._failure, self._comm)
        except Exception:  # at interpreter shutdown, where modules may already be gone
            pass


def details_of(info: _raw.ErrorInfo) -> dict[str, Any]:
    """Returns what an error record contains in addition to code and text, under the names that exceptions use."""
    return {
        "rank": info.rank if info.rank >= 0 else None,
        "ranks": tuple(info.ranks[: min(info.n_ranks, len(info.ranks))]),
        "group": info.group.decode(errors="replace") or None,
        "op": info.operation.decode() or None,
        "sequence": info.sequence or None,
        "index": info.index if info.code == _raw.Result.ERR_NONFINITE else None,
    }


def error_of(info: _raw.ErrorInfo, comm: Calls) -> errors.DscError:
    """Returns the exception for an error record of the library."""
    details = details_of(info)
    details["group"] = details["group"] or comm.name
    return errors.from_code(info.code, info.text.decode(errors="replace"), **details)


def _failure_of(handle: int, comm: Calls) -> Optional[errors.DscError]:
    """Returns the failure of a completed operation. None if there is none, or in a forked child, which cannot ask."""
    info = _raw.ErrorInfo(struct_size=ctypes.sizeof(_raw.ErrorInfo))
    code = int(lib.dsc_work_error_info(handle, byref(info)))
    return error_of(info, comm) if code >= 0 and info.code < 0 else None


def _ends_communicator(failure: errors.DscError) -> bool:
    """Returns whether no operation can follow this failure. Two kinds do not end the communicator."""
    return failure.code not in (_raw.Result.ERR_NONFINITE, _raw.Result.ERR_STATE)


def _note_told(failure: errors.DscError, comm: Calls) -> None:
    """Notes that the program knows of a failure that ends the communicator."""
    comm._failure_told = comm._failure_told or _ends_communicator(failure)


class _Warning:
    """Issues a warning in its destructor.

    A program may turn warnings into exceptions. In a destructor Python only prints them, so that they cannot fail an
    unrelated call that happens to find the dropped operation.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __del__(self) -> None:
        level, frame = 2, sys._getframe().f_back
        while frame is not None and frame.f_globals.get("__name__", "").startswith("libdsc."):
            level, frame = level + 1, frame.f_back  # finds the line of the program during which the failure was found
        warnings.warn(self._text, RuntimeWarning, level)


def _warn_of(failure: errors.DscError, comm: Calls) -> None:
    """Warns of a failure that no call has raised.

    If the end of the communicator makes several operations fail, only the first failure is reported.
    """
    if (comm._failure_told or comm._failure_warned) and failure.code != _raw.Result.ERR_NONFINITE:
        return
    comm._failure_warned = comm._failure_warned or _ends_communicator(failure)
    _Warning(f"an operation failed, and no call waited for it: {failure}")


def start(
    comm: Calls,
    function: Any,
    arguments: tuple[Any, ...],
    owner: Any,
    at_end: AtEnd,
    op: str,
    place: Optional[Place],
) -> Union[int, Work]:
    """Starts an operation. Returns its Work, or the result code if the library refused it.

    Signal handlers of the program may raise an exception anywhere. The arrays are therefore kept alive from before the
    start of the operation until the Work owns them. After such an exception they are kept forever.
    """
    token = object()
    _running[token] = (owner, comm)
    if _callbacks.is_ending() and any(user_ops_in(owner)):
        del _running[token]
        _callbacks.require_interpreter()
    handle = c_void_p()
    code = int(function(comm._handle, *arguments, byref(handle)))
    started: Union[int, Work] = code
    if handle.value is not None:
        started = Work(handle.value, comm, op, (owner,), at_end, place)
    del _running[token]
    return started


def _release(handle: int, at_end: AtEnd) -> None:
    lib.dsc_work_destroy(handle)
    owners = _running.pop(handle, None)
    if at_end is not None:
        at_end()
    # The owners are released only now, because at_end() reads from their memory.
    del owners


def reap(misses: int = MISSES) -> None:
    """Releases the arrays of dropped operations that have completed. It stops after `misses` operations still run.

    Each entry is removed from the queue before it is handled. So neither another thread, nor a destructor that runs
    during a release, can handle it twice.
    """
    while _dropped and misses > 0:
        try:
            handle, at_end = _dropped.popleft()
        except IndexError:  # another thread took the last entry
            return
        completed = c_int32()
        code = lib.dsc_work_test(handle, byref(completed))
        if code == _raw.Result.ERR_REENTRANT:  # this call is inside a function of user_op()
            _dropped.append((handle, at_end))
            return
        if code >= 0 and not completed.value:
            _dropped.append((handle, at_end))
            misses -= 1
            continue
        succeeded = code >= 0 and lib.dsc_work_synchronize(handle, 0) >= 0
        comm = _running[handle][1]
        failure = None if succeeded else _failure_of(handle, comm)
        _release(handle, at_end if succeeded else None)
        if failure is not None:
            _warn_of(failure, comm)


def end_dropped(handle: int, comm: Calls) -> None:
    """Waits for an operation whose Work was dropped, so that the next call does not depend on its progress."""
    if any(handle == dropped for dropped, _ in list(_dropped)):
        _interrupt.call(comm._stop, lib.dsc_work_synchronize, handle, FOREVER_MS)
        reap_all()


def reap_all() -> None:
    """Checks all dropped operations once, so that no failure stays unnoticed while other operations still run."""
    reap(len(_dropped) + 1)


def reap_ended(comm: Calls) -> None:
    """Checks the dropped operations of a communicator that has ended, until other threads have completed them."""
    end = time.monotonic() + ENDING_S
    while True:
        reap_all()
        left = [handle for handle, _ in list(_dropped) if handle in _running and _running[handle][1] is comm]
        if not left or time.monotonic() > end:
            return
        time.sleep(0.001)


@atexit.register
def _leave_running() -> None:
    """At exit, keeps the arrays of running operations alive forever, because the library may still use them.

    Operations with a function of user_op() are ended now, because Python functions cannot be called later.
    """
    _callbacks.end(_interrupt.AFTER_ABORT_S)
    reap_all()
    entries = list(_running.items())
    calling = [(key, comm) for key, (owners, comm) in entries if any(user_ops_in(owners))]
    for _, comm in calling:
        lib.dsc_comm_abort(comm._handle)
    for key, _ in calling:
        if isinstance(key, int):
            lib.dsc_work_synchronize(key, int(_interrupt.AFTER_ABORT_S * 1000))
    for _, owners in entries:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owners))
