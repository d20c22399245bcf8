"""Operations that were started and not waited for."""

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
POLL_S = 0.001  # how often an awaited operation is driven where no thread does
MISSES = 2  # dropped operations that one call may find running, so that many cost each call no more than few
ENDING_S = 1.0  # how long operations of a communicator that has ended may take to end on other threads

# What an operation that runs needs alive, and its communicator; by handle, or by an object of no meaning while it is
# being started. A Work that is dropped leaves its entry to reap().
_running: dict[object, tuple[Any, Calls]] = {}
_dropped: deque[tuple[int, AtEnd]] = deque()
_completing = threading.RLock()  # what it frees may end in a Work of the caller's that is completed in turn


class Work(OnlyOne):
    """An operation that runs in the background. It keeps its arrays alive until it has completed.

    Wait for it with wait(), or with ``await`` in an asyncio program. Or poll test() until it returns True, then call
    wait(), which raises the failure, if any.

    If you drop the object, the operation still finishes; results for a list of arrays are then copied during a later
    call. If it fails and the program was not told of the failure, a RuntimeWarning is issued after the object is gone
    and the operation has completed.
    """

    __slots__ = ("_handle", "_comm", "_op", "_completed", "_failure", "_told", "_at_end", "_place", "__weakref__")

    def __init__(
        self, handle: int, comm: Calls, op: str, owners: tuple[Any, ...], at_end: AtEnd, place: Optional[Place]
    ) -> None:
        _running[handle] = (owners, comm)  # before anything that may raise
        self._handle = handle
        self._comm = comm
        self._op = op
        self._completed = False
        self._failure: Optional[errors.DscError] = None
        self._told = False  # whether the program got the failure
        self._at_end = at_end
        self._place = place  # None: on host memory
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
                elif code < 0 and not self._completed:  # another thread may have completed it just now
                    check(code)
            return self._completed
        except Exception as error:
            raise shown(error)

    def wait(self, timeout: Optional[Seconds] = None, *, stream: Any = None) -> bool:
        """Waits until the operation has completed; raises its failure.

        With a timeout it returns False when that has passed, and the operation continues. Ctrl-C aborts the
        communicator.

        For arrays on a GPU the caller does not wait: work queued on the stream afterwards waits for the operation.
        synchronize() and later operations raise a failure that occurs after this call.

        Args:
            timeout: seconds.
            stream: the stream that waits, as in the operations; if not given, the caller's current one.
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
            if not self._comm._failure_told:  # once, and not for each of many works
                _interrupt.let_own_signal_come_after(str(self._failure))
            self._told = True
            _note_told(self._failure, self._comm)
            raise self._failure.with_traceback(None)

    def _see(self, code: int) -> None:
        """Takes the result of a wait. A failure, and any result of a stream, may have arrived before the end."""
        if self._place is None and code == 0:
            self._complete(succeeded=True)
        else:
            text = last_message() if code < 0 else ""
            if not self.test() and code < 0:
                self._comm._fail(code, text, "work_wait")
        reap()

    def _wait(self, wait_for_ms: Callable[[int], int], seconds: Optional[float]) -> int:
        """Waits in slices on the main thread, where a signal handler may have to run."""
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
        with _completing:  # another thread may complete it, and its descriptor be closed
            if self._completed:
                return
            descriptor = os.dup(self.fileno())  # a loop knows one reader per descriptor, and several may await
        import asyncio  # who awaits has it already; for all others it would only make `import libdsc` slower

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
        """Without a thread of the library the loop's own turns move the operations."""
        import asyncio

        delay = 0.0
        while not self.test():
            await asyncio.sleep(delay)
            delay = min(POLL_S, delay + POLL_S / 20)

    def _complete(self, succeeded: bool = False) -> None:
        """Takes the result, gives the handle back and lets go of the arrays; once, whichever thread comes first."""
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
        """Gives the handle away, with what to do and to keep until its new owner has waited; 0: nothing is left."""
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
        except Exception:  # at interpreter shutdown anything may be gone already
            pass


def details_of(info: _raw.ErrorInfo) -> dict[str, Any]:
    """What an error record of the library says in addition to code and text, as exceptions name it."""
    return {
        "rank": info.rank if info.rank >= 0 else None,
        "ranks": tuple(info.ranks[: min(info.n_ranks, len(info.ranks))]),
        "group": info.group.decode(errors="replace") or None,
        "op": info.operation.decode() or None,
        "sequence": info.sequence or None,
        "index": info.index if info.code == _raw.Result.ERR_NONFINITE else None,
    }


def error_of(info: _raw.ErrorInfo, comm: Calls) -> errors.DscError:
    """Makes the exception that an error record of the library describes."""
    details = details_of(info)
    details["group"] = details["group"] or comm.name
    return errors.from_code(info.code, info.text.decode(errors="replace"), **details)


def _failure_of(handle: int, comm: Calls) -> Optional[errors.DscError]:
    """The failure of a completed operation; None also in a process that cannot ask, such as a forked child."""
    info = _raw.ErrorInfo(struct_size=ctypes.sizeof(_raw.ErrorInfo))
    code = int(lib.dsc_work_error_info(handle, byref(info)))
    return error_of(info, comm) if code >= 0 and info.code < 0 else None


def _note_told(failure: errors.DscError, comm: Calls) -> None:
    """Notes that the program knows a failure. All but these two end the communicator, with all operations in it."""
    if failure.code not in (_raw.Result.ERR_NONFINITE, _raw.Result.ERR_STATE):
        comm._failure_told = True


class _Warning:
    """Warns when it goes. Where the program makes exceptions of warnings, one in a destructor is shown and goes no
    further, as Python has it, so that no other call fails that happens to find the dropped operation."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __del__(self) -> None:
        level, frame = 2, sys._getframe().f_back
        while frame is not None and frame.f_globals.get("__name__", "").startswith("libdsc."):
            level, frame = level + 1, frame.f_back  # to the line of the program that met the failure
        warnings.warn(self._text, RuntimeWarning, level)


def _warn_of(failure: errors.DscError, comm: Calls) -> None:
    """Warns of a failure that the program was not told. If the end of the communicator causes several, it warns of the
    first."""
    if comm._failure_told and failure.code != _raw.Result.ERR_NONFINITE:
        return
    _note_told(failure, comm)
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
    """Starts an operation; returns its Work, or the code with which it was refused.

    The signal handlers of a program may raise anywhere. Between the library's start and the Work nobody would own the
    arrays, so they are kept from before on; after such an exception permanently.
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
    del owners  # not before at_end(), which reads from what they own


def reap(misses: int = MISSES) -> None:
    """Lets go of the arrays of dropped operations that have completed since, until so many are found running.

    Who has taken an entry out owns it: threads, and destructors that run during a release, meet no half-done ones.
    """
    while _dropped and misses > 0:
        try:
            handle, at_end = _dropped.popleft()
        except IndexError:  # another thread took the last one
            return
        completed = c_int32()
        code = lib.dsc_work_test(handle, byref(completed))
        if code == _raw.Result.ERR_REENTRANT:  # inside a function of user_op()
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
    """Looks at all dropped operations once, so that a failure does not go unnoticed because others still run."""
    reap(len(_dropped) + 1)


def reap_ended(comm: Calls) -> None:
    """Looks at the dropped operations of a communicator that has ended, so that they end soon on other threads."""
    end = time.monotonic() + ENDING_S
    while True:
        reap_all()
        left = [handle for handle, _ in list(_dropped) if handle in _running and _running[handle][1] is comm]
        if not left or time.monotonic() > end:
            return
        time.sleep(0.001)


@atexit.register
def _leave_running() -> None:
    """The process ends while operations run: their arrays must not be freed under the library's hands.

    A function of user_op() cannot be called once the interpreter is gone, so operations with one end now.
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
