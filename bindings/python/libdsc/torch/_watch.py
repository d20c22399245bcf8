"""Completes the futures of operations that nobody waits for, on one thread for all of them.

torch's C++ code waits for a future, and not for its work: DistributedDataParallel does so. Nobody else would notice then
that the operation is over.
"""

from __future__ import annotations

import os
import select
import threading
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from libdsc.torch._work import Work

_lock = threading.Lock()
_added: list[tuple[Work, Any]] = []
_write_end = -1  # of the pipe that wakes the thread; -1: there is no thread yet


def watch(work: Work, ready: Any) -> None:
    """Sets a result of `ready` once a work is over, also if it failed."""
    with _lock:
        _added.append((work, ready))
        if _write_end < 0:
            _start()
        os.write(_write_end, b"+")


def _start() -> None:
    global _write_end
    read_end, _write_end = os.pipe()
    threading.Thread(target=_run, args=(read_end,), name="libdsc-futures", daemon=True).start()


def _run(read_end: int) -> None:
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    pending: dict[int, tuple[Work, Any]] = {}  # by the descriptor that becomes readable next
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == read_end:
                os.read(read_end, 4096)
                for entry in _take_added():
                    _look(entry, poll, pending)
            else:
                poll.unregister(descriptor)
                os.close(descriptor)
                _look(pending.pop(descriptor), poll, pending)


def _take_added() -> list[tuple[Work, Any]]:
    with _lock:
        taken = list(_added)
        _added.clear()
    return taken


def _look(entry: tuple[Work, Any], poll: select.poll, pending: dict[int, tuple[Work, Any]]) -> None:
    """Completes the future of a work that is over; waits on for the first part of it that is not."""
    work, ready = entry
    while not work.is_completed():
        descriptor = _descriptor_of(work)
        if descriptor is not None:
            pending[descriptor] = entry
            poll.register(descriptor, select.POLLIN)
            return
    ready.set_result(None)


def _descriptor_of(work: Work) -> Optional[int]:
    """A copy of the descriptor of the first part that runs, which stays open when another thread completes it."""
    for part in work._works:
        try:
            if not part.test():
                return os.dup(part.fileno())
        except (ValueError, OSError):
            continue  # it is over by now
    return None


def _forget() -> None:
    """A child made by fork() has no such thread."""
    global _write_end, _lock
    _write_end, _lock = -1, threading.Lock()
    _added.clear()


os.register_at_fork(after_in_child=_forget)
