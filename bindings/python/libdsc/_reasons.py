"""Passes the reason of a failure on one rank to the others, so that all ranks raise it."""

from __future__ import annotations

from typing import NamedTuple, Optional

from libdsc import errors


class Reason(NamedTuple):
    """The reason of a failure, as a rank sends it to the others."""

    text: str
    errno: Optional[int]  # of an error while a file was written


def reason_of(error: Exception, of_file: bool) -> Reason:
    """Returns the reason for an exception.

    If of_file is true and it is an OSError, all ranks will raise SystemError.
    """
    if of_file and isinstance(error, OSError):
        return Reason(str(error), error.errno)
    return Reason(f"{type(error).__name__}: {error}", None)


def is_for_all(reason: Optional[Reason]) -> bool:
    """Whether the failing rank raises the same error as the others, instead of its own exception."""
    return reason is not None and reason.errno is not None


def failure_of(text: str, reason: Reason, rank: int, op: str) -> errors.DscError:
    """Returns SystemError if the reason has an errno of a file, otherwise InvalidArgError."""
    if reason.errno is None:
        return errors.InvalidArgError(text, rank=rank, ranks=(rank,), op=op)
    error = errors.SystemError(text, rank=rank, ranks=(rank,), op=op)
    error.errno = reason.errno
    return error
