"""Why one rank cannot do what all do, as all ranks raise it."""

from __future__ import annotations

from typing import NamedTuple, Optional

from libdsc import errors


class Reason(NamedTuple):
    """What a rank tells the others."""

    text: str
    errno: Optional[int]  # of a file that could not be written


def reason_of(error: Exception, of_file: bool) -> Reason:
    """The reason for an exception; of_file: an OSError is the failure of a file, and all ranks raise the same one."""
    if of_file and isinstance(error, OSError):
        return Reason(str(error), error.errno)
    return Reason(f"{type(error).__name__}: {error}", None)


def is_for_all(reason: Optional[Reason]) -> bool:
    """Whether the rank itself raises what the others raise, and not its own exception."""
    return reason is not None and reason.errno is not None


def failure_of(text: str, reason: Reason, rank: int, op: str) -> errors.DscError:
    """SystemError with the errno of a file, otherwise InvalidArgError."""
    if reason.errno is None:
        return errors.InvalidArgError(text, rank=rank, ranks=(rank,), op=op)
    error = errors.SystemError(text, rank=rank, ranks=(rank,), op=op)
    error.errno = reason.errno
    return error
