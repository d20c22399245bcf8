"""One exception class per error code of the library, all derived from DscError."""

from __future__ import annotations

import builtins
from typing import Any, Optional

from libdsc._raw import Result
from libdsc._words import in_python


class DscError(Exception):
    """A call into libdsc failed.

    Attributes:
        code: the code, a ``Result`` such as ``Result.ERR_TIMEOUT``.
        message: what was expected and what was found.
        rank: the first rank at fault, numbered as in group; None if unknown or not in group.
        ranks: all ranks at fault.
        group: the name of the communicator that failed, or None. Reducers, sharded parameters and similar objects have
            their own groups, such as "reducer".
        op: the operation that failed, such as "all_reduce", or None.
        sequence: the number of the operation in group, from 1, or None.
        index: for NonfiniteError, the first element that is not finite, in that rank's array or in the gradient that
            the message names; else None.
    """

    default_code = Result.ERR_INTERNAL

    def __init__(
        self,
        message: str,
        code: Optional[int] = None,
        rank: Optional[int] = None,
        ranks: tuple[int, ...] = (),
        group: Optional[str] = None,
        op: Optional[str] = None,
        sequence: Optional[int] = None,
        index: Optional[int] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.default_code if code is None else code
        self.rank, self.ranks, self.group, self.op, self.sequence = rank, ranks, group, op, sequence
        self.index = index

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        details = (self.message, self.code, self.rank, self.ranks, self.group, self.op, self.sequence, self.index)
        return type(self), details


class InvalidArgError(DscError, ValueError):
    """An argument is wrong. The call had no effect."""

    default_code = Result.ERR_INVALID_ARG


class BadHandleError(DscError, ValueError):
    """The object was closed, or belongs to a world that has ended."""

    default_code = Result.ERR_BAD_HANDLE


class StateError(DscError, RuntimeError):
    """The call is not allowed in the current state of the object."""

    default_code = Result.ERR_STATE


class ForkedError(DscError, RuntimeError):
    """The call was made in a child process of fork()."""

    default_code = Result.ERR_FORKED


class BusyError(DscError, RuntimeError):
    """Another thread is in a call on this communicator."""

    default_code = Result.ERR_BUSY


class ReentrantError(DscError, RuntimeError):
    """The call was made in a callback in which it is not allowed."""

    default_code = Result.ERR_REENTRANT


class NomemError(DscError, MemoryError):
    """Out of memory."""

    default_code = Result.ERR_NOMEM


class NospaceError(DscError, MemoryError):
    """Shared memory could not be reserved."""

    default_code = Result.ERR_NOSPACE


class SystemError(DscError, OSError):
    """A system call failed."""

    default_code = Result.ERR_SYSTEM


class TimeoutError(DscError, builtins.TimeoutError):
    """The deadline passed; the message names the missing ranks."""

    default_code = Result.ERR_TIMEOUT


class PeerError(DscError, ConnectionError):
    """Another rank has ended or no longer runs. Base of three classes for the different cases."""

    default_code = Result.ERR_PEER_DEAD


class PeerDeadError(PeerError):
    """A rank's process ended without leaving."""

    default_code = Result.ERR_PEER_DEAD


class PeerStalledError(PeerError):
    """A rank's process no longer runs: it is stopped, swapped out or dumping core."""

    default_code = Result.ERR_PEER_STALLED


class PeerLeftError(PeerError):
    """A rank left the group or exited normally."""

    default_code = Result.ERR_PEER_LEFT


class MismatchError(DscError, RuntimeError):
    """The ranks called different operations, or the same operation with different arguments."""

    default_code = Result.ERR_MISMATCH


class RevokedError(DscError, RuntimeError):
    """The communicator failed earlier or was aborted; the message gives the first cause."""

    default_code = Result.ERR_REVOKED


class AuthError(DscError, PermissionError):
    """Authentication failed."""

    default_code = Result.ERR_AUTH


class ProtocolError(DscError, RuntimeError):
    """The other side does not speak this protocol."""

    default_code = Result.ERR_PROTOCOL


class VersionError(DscError, RuntimeError):
    """Two versions do not work together."""

    default_code = Result.ERR_VERSION


class ConfigError(DscError, ValueError):
    """Settings are impossible or differ between ranks."""

    default_code = Result.ERR_CONFIG


class AddrInUseError(DscError, OSError):
    """Another job uses the address or name where the ranks meet."""

    default_code = Result.ERR_ADDR_IN_USE


class NoBackendError(DscError, RuntimeError):
    """A library, driver or symbol is missing."""

    default_code = Result.ERR_NO_BACKEND


class BackendError(DscError, RuntimeError):
    """A backend failed; the message carries its code and text."""

    default_code = Result.ERR_BACKEND


class BackendStuckError(DscError, RuntimeError):
    """A call of a backend does not return."""

    default_code = Result.ERR_BACKEND_STUCK


class UnsupportedError(DscError, NotImplementedError):
    """The call is valid, but this version does not support it."""

    default_code = Result.ERR_UNSUPPORTED


class OverflowError(DscError, builtins.OverflowError):
    """A size is too large."""

    default_code = Result.ERR_OVERFLOW


class CallbackError(DscError, RuntimeError):
    """A callback failed."""

    default_code = Result.ERR_CALLBACK


class NonfiniteError(DscError, ArithmeticError):
    """A NaN or an infinity was found."""

    default_code = Result.ERR_NONFINITE


class InternalError(DscError, RuntimeError):
    """A bug in the library."""

    default_code = Result.ERR_INTERNAL


BY_CODE: dict[int, type[DscError]] = {
    kind.default_code: kind
    for kind in globals().copy().values()
    if isinstance(kind, type) and issubclass(kind, DscError) and kind not in (DscError, PeerError)
}


def from_code(code: int, message: str, **details: Any) -> DscError:
    """Returns the exception for a code. A code that this version does not know gives a plain DscError."""
    try:
        code = Result(code)
    except ValueError:
        pass
    return BY_CODE.get(code, DscError)(in_python(code, message), code, **details)
