"""Log records of the library. It logs nothing unless DSC_LOG is set or a function of this module is called."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import threading
from ctypes import byref, c_int32, c_size_t
from typing import Any, Callable, Optional

from libdsc import _dtypes, _raw
from libdsc._library import check, lib

logger = logging.getLogger("libdsc")

_LEVELS = {
    _raw.LogLevel.ERROR: logging.ERROR,
    _raw.LogLevel.WARN: logging.WARNING,
    _raw.LogLevel.INFO: logging.INFO,
    _raw.LogLevel.DEBUG: logging.DEBUG,
}
_THREAD = "dsc-log"  # the name of the library's log thread, which Python does not know

# fork() waits at most this long for a log handler: the handler may need a lock that the forking thread holds.
_FORK_S = 1.0

# Held while handlers run, and during fork(). Otherwise the child could inherit a half-written line and write it again.
_delivering = threading.RLock()
_forking = threading.local()
_receiver: Optional[Callable[[str, str], None]] = None  # the callback of set_log()


def log_to_logging(level: Any = "info") -> None:
    """Sends the library's log records to the logger "libdsc" of Python's logging, until a call with "off".

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s rank %(rank)s: %(message)s")
        dsc.log_to_logging()

    Each record has the time when it was made and .rank, the rank in the world. rank is None if it is not yet known, or
    if the record concerns the whole process. Handlers are called on a thread of the library and must not call libdsc.
    While this is on, DSC_LOG does not write the same records to standard error, and set_log() is off. At exit the
    pending records are delivered. In a child process made by fork() the library logs nothing.

    Args:
        level: the least urgent level that is sent: "error", "warn", "info" or "debug". The logger's own level and its
            handlers filter further. "off": nothing is sent.
    """
    global _receiver
    number = _dtypes.level_code(level)
    if number == _raw.LogLevel.OFF:
        set_log(None)
        return
    check(lib.dsc_log_set_callback(_logged_entry, None, number))
    _receiver = None


def set_log(callback: Optional[Callable[[str, str], None]], level: Any = "info") -> None:
    """Sends log records to callback(level, message), on a thread of the library. None stops this.

    It replaces log_to_logging() and an earlier callback.

    Args:
        callback: gets the level's name, such as "warn", and one line. It must not call libdsc.
        level: the least urgent level it receives: "error", "warn", "info" or "debug".
    """
    global _receiver
    number = _dtypes.level_code(level)
    if _receiver is None:
        _receiver = callback
    entry = _raw.LogFn(0) if callback is None else _received_entry
    # This call first delivers earlier records to the previous receiver.
    check(lib.dsc_log_set_callback(entry, None, number))
    _receiver = callback


def read_log(level: Any = "info") -> Optional[tuple[str, str]]:
    """Removes and returns the oldest record, (level, message); None if there is none.

    The first call starts the recording at that level; "off" stops it.
    """
    text, needed, number = ctypes.create_string_buffer(2048), c_size_t(), c_int32()
    code = check(lib.dsc_log_read(_dtypes.level_code(level), text, len(text), byref(needed), byref(number)))
    if code == _raw.Result.DONE:
        return None
    return _level_name(number.value), text.value.decode(errors="replace")


def _level_name(number: int) -> str:
    return _raw.LogLevel(number).name.lower()


def _received(_context: Any, record: Any) -> None:
    receiver, made = _receiver, record.contents
    if receiver is not None:
        receiver(_level_name(made.level), made.message.decode(errors="replace"))


def _logged(_context: Any, record: Any) -> None:
    """Passes a record of the library to the logger, with the rank and the time at which the record was made."""
    made = record.contents
    level = _LEVELS[_raw.LogLevel(made.level)]
    if not logger.isEnabledFor(level):
        return
    passed = _record(level, made.message.decode(errors="replace"), None if made.rank < 0 else made.rank)
    delay_s = passed.created - made.time_ns / 1e9
    passed.created, passed.msecs = made.time_ns / 1e9, float(made.time_ns // 10**6 % 1000)
    passed.relativeCreated -= delay_s * 1000
    passed.threadName = _THREAD
    with _delivering:
        logger.handle(passed)


def tell(text: str, rank: int) -> bool:
    """Logs a text of the package itself at level INFO.

    Returns False if the program's logging does not want this level.
    """
    wanted = logger.isEnabledFor(logging.INFO)
    if wanted:
        logger.handle(_record(logging.INFO, text, rank))
    return wanted


def _record(level: int, text: str, rank: Optional[int]) -> logging.LogRecord:
    """Returns a record for the logger.

    The rank is set afterwards: extra= cannot replace a rank that the program's own record factory may have set.
    """
    record = logger.makeRecord(logger.name, level, "libdsc", 0, text, (), None)
    record.rank = rank
    return record


# The library may call these callbacks until it is unloaded, so they are created only once and never freed.
_received_entry = _raw.LogFn(_received)
_logged_entry = _raw.LogFn(_logged)


def _before_fork() -> None:
    _forking.holds = _delivering.acquire(timeout=_FORK_S)


def _after_fork() -> None:
    if _forking.holds:
        _delivering.release()


def _forget() -> None:
    global _delivering
    _delivering = threading.RLock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forget)


@atexit.register
def _remove() -> None:
    """Removes the callback at exit. The log thread may outlive the interpreter, and must not call Python then.

    The library first delivers the records that are pending.
    """
    lib.dsc_log_set_callback(_raw.LogFn(0), None, 0)
