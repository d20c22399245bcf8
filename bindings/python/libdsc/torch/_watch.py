"""Completes the futures of operations that nobody waits for, on one thread for all of them.

torch's C++ code, such as DistributedDataParallel, waits for a future and not for its work. Without this thread nothing
would notice that the operation is over.
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

ENDING_S = 5.0  # for what a program has chained behind a future

_lock = threading.Lock()
_added: list[tuple[Work, Any]] = []
_write_end = -1  # of the pipe that wakes the thread; -1: there is no thread yet
_thread: Optional[threading.Thread] = None
_is_ending = False  # the interpreter ends


def watch(work: Work, ready: Any) -> None:
    """Sets a result of `ready` once a work is over, also if it failed."""
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
    """Ends the thread before the interpreter exits: ending it inside torch's C++ code would abort the process."""
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
    """Sets the result if the work is over, or if it can no longer be found out."""
    try:
        if not work.is_completed():
            return False
    except Exception as error:  # such as that of a group that was aborted
        work.fail(error)
    work.complete(ready)
    return True


def _descriptors_of(work: Work) -> list[int]:
    """Copies of the descriptors that a work waits for; they stay open when another thread completes it. If it waits
    for nothing, one that is readable at once."""
    found = []
    try:
        for part in work.parts():
            with _completing:  # no other thread closes the descriptor meanwhile
                if not part._completed:
                    found.append(os.dup(part.fileno()))
    except (DscError, OSError, RuntimeError):
        pass  # _completed() asks the work itself, and takes what it raises
    return found or [_readable()]


def _readable() -> int:
    return os.open(os.devnull, os.O_RDONLY)


def _forget() -> None:
    """A child made by fork() has no such thread."""
    global _write_end, _lock, _thread
    _write_end, _lock, _thread = -1, threading.Lock(), None
    _added.clear()


os.register_at_fork(after_in_child=_forget)
