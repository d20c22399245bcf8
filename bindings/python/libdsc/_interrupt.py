"""Keeps Ctrl-C working while the library blocks.

Python runs its signal handlers on the main thread, and only between two Python instructions, so not while a call blocks
in C. While the main thread is in such a call, Python's low-level C handler therefore also writes the signal's number
into a pipe (signal.set_wakeup_fd). A thread reads the pipe and makes the call return, usually by aborting the
communicator. The alternative, blocking in short slices, would cost two thread switches per call.

Only the default handler, which raises KeyboardInterrupt, ends the call at the first Ctrl-C. A user-defined handler runs
when the call returns, and may want the call to succeed. A second Ctrl-C ends the call in any case.
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
NUMBERS = 64  # the most signals that one read takes from the pipe

_stop: Optional[Callable[[], None]] = None  # makes the main thread's current call return
_interrupts = 0  # the number of Ctrl-C during that call
_previous = -1  # the descriptor that another module, such as asyncio, has set with set_wakeup_fd()
_read_end, _write_end = -1, -1  # the ends of the pipe; -1: not created yet
_reading = threading.Lock()  # held from reading signals from the pipe until they are handled
# Whether an exception has ended the previous call. The reader thread may then still have to read a signal of that call.
_unsettled = False
_main_thread = threading.main_thread().ident


def on_main_thread() -> bool:
    """Whether this is the main thread, on which Python runs signal handlers."""
    return _thread.get_ident() == _main_thread


def call(stop: Callable[[], None], function: Any, *arguments: Any) -> int:
    """Makes a blocking call of the library. stop() must make it return, and may be called from any thread.

    A callback of a call may make another call. Ctrl-C then ends the inner call, whose exception ends the outer one.
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
        if previous != _write_end:  # equal if a Ctrl-C interrupted the end of an earlier call
            _previous = previous
    _stop = stop
    try:
        result = function(*arguments)
    except ctypes.ArgumentError:  # the function was not called, so there is nothing to stop
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
            # This call may raise the exception of a signal handler. It is here so that the `except` clause above does
            # not catch that exception.
            signal.set_wakeup_fd(_previous)
    if outer is None:
        _unsettled = False
    return result  # type: ignore[no-any-return]


def settle() -> None:
    """Removes the signals of a call that raised an exception, so that they do not end the next call too.

    If the reader thread has already read a signal, the lock makes sure that the thread has also finished handling it.
    """
    if on_main_thread() and _read_end >= 0:
        with _reading:
            _take_numbers()


def _start() -> None:
    """Creates the pipe and starts its reader thread. Called once in each process that needs them."""
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
    # threading.Thread would wait forever for a thread that has no memory to start, so this code waits with a limit. It
    # must wait, because a thread that starts only while the interpreter ends may crash it. A thread that starts later
    # than the limit still finds an open pipe.
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
    """Reads all signals from the pipe, and forwards them to the descriptor of the other module if there is one."""
    try:
        numbers = os.read(_read_end, NUMBERS)
    except BlockingIOError:  # settle() has already emptied the pipe
        return b""
    if _previous >= 0:
        try:
            os.write(_previous, numbers)
        except OSError:  # full or closed: the owner of the descriptor has to handle that
            pass
    return numbers


def _interrupt() -> None:
    global _interrupts
    _interrupts += 1
    stop = _stop
    if stop is not None and (_interrupts > 1 or signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        stop()


def let_own_signal_come() -> None:
    """Waits a moment after another rank has aborted. Ctrl-C reaches all ranks, but not at the same instant."""
    if on_main_thread():
        time.sleep(AFTER_PEERS_ABORT_S)  # KeyboardInterrupt ends the sleep


def let_own_signal_come_after(text: str) -> None:
    """Calls let_own_signal_come() if the text of a failure says that another rank has aborted."""
    if text.endswith("aborted the communicator"):
        let_own_signal_come()


def _forget() -> None:
    """Resets the state in a child process of fork(), which has the parent's pipe, but not its reader thread."""
    global _read_end, _write_end, _reading, _stop, _main_thread
    _read_end, _write_end, _stop, _main_thread = -1, -1, None, _thread.get_ident()
    _reading = threading.Lock()


os.register_at_fork(after_in_child=_forget)


def call_on_other_thread(function: Any, *arguments: Any) -> tuple[int, str, tuple[int, ...]]:
    """Calls a function that cannot be interrupted, on another thread. Ctrl-C stops only the wait for that thread.

    Returns the function's result, its error text and the ranks at fault.
    """
    results: list[tuple[int, str, tuple[int, ...]]] = []

    def run() -> None:
        code = function(*arguments)
        results.append((code, last_message(), last_ranks()) if code < 0 else (code, "", ()))

    thread = threading.Thread(target=run, name="libdsc-call", daemon=True)
    thread.start()
    thread.join()  # an exception of a signal handler ends this wait
    return results[0]
