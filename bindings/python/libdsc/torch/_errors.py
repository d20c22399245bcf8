"""Converts failures of libdsc to exceptions of torch."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, Optional

import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

from libdsc import errors


class Error(dist.DistBackendError):  # type: ignore[misc]
    """A failure of a process group of libdsc.

    Attributes:
        code, rank, ranks, op, sequence: as in libdsc.DscError, which is the __cause__. Ranks are numbered as in the
            group.
    """

    def __init__(self, message: str, cause: Optional[errors.DscError] = None) -> None:
        super().__init__(message)
        self.code = None if cause is None else cause.code
        self.rank = None if cause is None else cause.rank
        self.ranks = () if cause is None else cause.ranks
        self.op = None if cause is None else cause.op
        self.sequence = None if cause is None else cause.sequence


def translated(error: errors.DscError, group: str) -> Exception:
    """Returns torch's exception for an exception of libdsc. InvalidArgError stays unchanged: it is a ValueError.

    Each group of torch is a separate world of libdsc, so the text names the group.
    """
    if isinstance(error, errors.InvalidArgError):
        return error
    text = str(error).replace('group "world"', f'process group "{group}"')
    if isinstance(error, errors.TimeoutError):
        text += "; the timeout of the process group has passed"
    made = Error(text, error)
    made.__cause__ = error
    return made


@contextmanager
def as_torch(group: str) -> Iterator[None]:
    """Converts failures of libdsc in its block to torch's exceptions."""
    try:
        yield
    except errors.DscError as error:
        made = translated(error, group)
        raise made from made.__cause__


def state_of(error: Optional[errors.DscError]) -> ErrorType:
    """Returns the state of a process group for torch's get_error()."""
    if error is None:
        return ErrorType.SUCCESS
    if isinstance(error, errors.TimeoutError):
        return ErrorType.TIMEOUT
    return ErrorType.REMOTE_ERROR if isinstance(error, errors.PeerError) else ErrorType.COMM_ERROR
