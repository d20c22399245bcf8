"""Keeps Ctrl-C working while the library blocks.

Python runs its signal handlers on the main thread, and only between two of its own instructions: not while a call
blocks in C. So while the main thread is in such a call, Python's signal handler in C also writes the signal's number
into a pipe (signal.set_wakeup_fd); a thread reads it and makes the call return, mostly by aborting the communicator.
Calling in slices instead would cost two changes of threads per call.

Only the handler that raises KeyboardInterrupt has this effect at once. A handler of the program's own is called when
the call returns, and may want the call to succeed; a second Ctrl-C ends the call in any case.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import select
import signal
import threading
import time
from typing import Any, Callable, Optional

from libdsc._library import last_message, last_ranks

SLICE_MS = 100
AFTER_ABORT_S = 5.0
AFTER_PEERS_ABORT_S = 0.1

STARTING_S = 10.0
NUMBERS = 64  # of signals that are read at once

_stop: Optional[Callable[[], None]] = None  # ends the call that the main thread is in
_interrupts = 0  # during that call
_previous = -1  # the descriptor that somebody else, such as asyncio, wants the numbers on
_read_end, _write_end = -1, -1  # of the pipe; -1: not made yet
_reading = threading.Lock()  # held from taking numbers out of the pipe until what they ask for is done
_unsettled = False  # the call before was left by an exception, and the reader may not have seen yet why
_main_thread = threading.main_thread().ident


def on_main_thread() -> bool:
    """Says whether signal handlers may be waiting for this thread."""
    return _thread.get_ident() == _main_thread


def call(stop: Callable[[], None], function: Any, *arguments: Any) -> int:
    """Calls a function of the library that blocks; stop(), from any thread, has to make it return.

    A callback of one call may make another; Ctrl-C then ends the inner one, whose exception ends the outer one.
    """
    global _stop, _interrupts, _previous, _unsettled
    if not on_main_thread():
        return function(*arguments)  # type: ignore[no-any-return]
    if _write_end < 0:
        _start()
    outer = _stop
    if outer is None:
        if _unsettled:
            settle()
        _unsettled = True
        previous, _interrupts = signal.set_wakeup_fd(_write_end), 0
        if previous != _write_end:  # a Ctrl-C between these lines leaves it set
            _previous = previous
    _stop = stop
    try:
        result = function(*arguments)
    except ctypes.ArgumentError:  # the function was not called: nothing is to be stopped
        _stop = outer
        raise
    except BaseException:
        stop()
        _stop = outer
        settle()
        raise
    finally:
        _stop = outer
        if outer is None:
            signal.set_wakeup_fd(_previous)  # which may raise what a signal wants, outside of the clause above
    if outer is None:
        _unsettled = False
    return result  # type: ignore[no-any-return]


def settle() -> None:
    """Takes out what came during a call that raised, so that it does not end the next call too.

    The reader may have taken it already: then it has also done what was asked for, since it holds the lock meanwhile.
    """
    if on_main_thread() and _read_end >= 0:
        with _reading:
            _take_numbers()


def _start() -> None:
    """Makes the pipe and its reader, in every process that needs them."""
    global _read_end, _write_end
    read_end, write_end = os.pipe()
    for end in (read_end, write_end):
        os.set_blocking(end, False)
    runs = _thread.allocate_lock()
    runs.acquire()
    try:
        _thread.start_new_thread(_watch, (read_end, runs))
    except BaseException:
        os.close(read_end)
        os.close(write_end)
        raise
    # threading.Thread would wait for ever for a thread that has no memory to begin. This one is waited for, because a
    # thread that only starts while the interpreter ends may crash it. If it starts late it still has the pipe.
    if not runs.acquire(timeout=STARTING_S):
        raise MemoryError(f"the thread that handles Ctrl-C did not start within {STARTING_S:g} s; there may be too little memory for it")
    _read_end, _write_end = read_end, write_end


def _watch(read_end: int, runs: _thread.LockType) -> None:
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    runs.release()
    while True:
        poll.poll()
        with _reading:
            if signal.SIGINT in _take_numbers():
                _interrupt()


def _take_numbers() -> bytes:
    """Empties the pipe, and passes on what somebody else wants to know."""
    try:
        numbers = os.read(_read_end, NUMBERS)
    except BlockingIOError:  # settle() was faster
        return b""
    if _previous >= 0:
        try:
            os.write(_previous, numbers)
        except OSError:  # full or closed, which is its owner's business
            pass
    return numbers


def _interrupt() -> None:
    global _interrupts
    _interrupts += 1
    stop = _stop
    if stop is not None and (_interrupts > 1 or signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        stop()


def let_own_signal_come() -> None:
    """Waits a moment after another rank's end: a Ctrl-C reaches all ranks, but not at the same instant."""
    if on_main_thread():
        time.sleep(AFTER_PEERS_ABORT_S)  # ended by KeyboardInterrupt


def let_own_signal_come_after(text: str) -> None:
    """As let_own_signal_come(), if the text of a failure says that another rank has aborted."""
    if text.endswith("aborted the communicator"):
        let_own_signal_come()


def _forget() -> None:
    """A child made by fork() has the parent's pipe and not its thread."""
    global _read_end, _write_end, _reading, _stop, _main_thread
    _read_end, _write_end, _stop, _main_thread = -1, -1, None, _thread.get_ident()
    _reading = threading.Lock()


os.register_at_fork(after_in_child=_forget)


def call_on_other_thread(function: Any, *arguments: Any) -> tuple[int, str, tuple[int, ...]]:
    """Calls a function that nothing can make return; Ctrl-C leaves it behind. Returns its result, error text and ranks
    at fault."""
    results: list[tuple[int, str, tuple[int, ...]]] = []

    def run() -> None:
        code = function(*arguments)
        results.append((code, last_message(), last_ranks()) if code < 0 else (code, "", ()))

    thread = threading.Thread(target=run, name="libdsc-call", daemon=True)
    thread.start()
    thread.join()  # a signal handler that raises ends the wait
    return results[0]
