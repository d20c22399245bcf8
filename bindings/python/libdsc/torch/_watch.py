"""Completes the futures of operations that no call waits for. One thread does this for all of them.

torch's C++ code, such as DistributedDataParallel, waits for a future and not for its work. Without this thread no code
would notice the end of the operation.
"""

from __future__ import annotations

import atexit
import os
import select
import threading
from typing import TYPE_CHECKING, Any, Optional

from libdsc._work import _completing
from libdsc.errors import DscError

if TYPE_CHECKING:
    from libdsc.torch._work import Work

ENDING_S = 5.0  # the longest wait for callbacks that the program has chained to a future

_lock = threading.Lock()
_added: list[tuple[Work, Any]] = []
# The write end of the pipe that wakes the thread; -1: the thread has not been started.
_write_end = -1
_thread: Optional[threading.Thread] = None
_is_ending = False  # the interpreter is exiting


def watch(work: Work, ready: Any) -> None:
    """Sets the result of the future `ready` when a work has completed, also if the work failed."""
    with _lock:
        if _is_ending:
            return
        _added.append((work, ready))
        if _write_end < 0:
            _start()
        os.write(_write_end, b"+")


def _start() -> None:
    global _write_end, _thread
    read_end, _write_end = os.pipe()
    _thread = threading.Thread(target=_run, args=(read_end,), name="libdsc-futures", daemon=True)
    _thread.start()


@atexit.register
def _end() -> None:
    """Ends the thread before the interpreter exits. If it ended inside torch's C++ code, the process would abort."""
    global _is_ending
    with _lock:
        _is_ending = True
        if _write_end >= 0:
            os.write(_write_end, b"+")
    if _thread is not None:
        _thread.join(ENDING_S)


def _run(read_end: int) -> None:
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    pending: list[tuple[Work, Any]] = []
    while not _is_ending:
        descriptors = [descriptor for work, _ in pending for descriptor in _descriptors_of(work)]
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll()
        for descriptor in descriptors:
            poll.unregister(descriptor)
            os.close(descriptor)
        if any(descriptor == read_end for descriptor, _ in ready):
            os.read(read_end, 4096)
            pending += _take_added()
        pending = [entry for entry in pending if not _completed(*entry)]


def _take_added() -> list[tuple[Work, Any]]:
    with _lock:
        taken = list(_added)
        _added.clear()
    return taken


def _completed(work: Work, ready: Any) -> bool:
    """Sets the result if the work has completed, or if checking it raises an exception. Returns whether it did."""
    try:
        if not work.is_completed():
            return False
    except Exception as error:  # for example, the group was aborted
        work.fail(error)
    work.complete(ready)
    return True


def _descriptors_of(work: Work) -> list[int]:
    """Returns duplicates of the descriptors that a work waits for.

    Duplicates stay open when another thread completes the work. If the work waits for nothing, the result is a
    descriptor that is always readable.
    """
    found = []
    try:
        for part in work.parts():
            with _completing:  # keeps other threads from closing the descriptor
                if not part._completed:
                    found.append(os.dup(part.fileno()))
    except (DscError, OSError, RuntimeError):
        pass  # _completed() will check the work and handle its exception
    return found or [_readable()]


def _readable() -> int:
    return os.open(os.devnull, os.O_RDONLY)


def _forget() -> None:
    """Resets the state in a child process of fork(), which does not have the thread."""
    global _write_end, _lock, _thread
    _write_end, _lock, _thread = -1, threading.Lock(), None
    _added.clear()


os.register_at_fork(after_in_child=_forget)
