"""Calls that must succeed on all ranks or on none."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator

from libdsc import errors
from libdsc._communicator import Communicator


@contextmanager
def collective(op: str) -> Iterator[None]:
    """Names what the program has called in failures of its operations, which a rank that does not call it causes."""
    try:
        yield
    except (errors.PeerError, errors.TimeoutError, errors.MismatchError) as error:
        error.message = f"{op}: {error.message}; expected that all ranks call {op}"
        raise


def on_all(comm: Communicator, op: str, prepare: Callable[[], Any]) -> Any:
    """Returns what prepare() gives; if it raises on one rank, that rank raises it, and the others why. Collective."""
    result: Any = None
    why: Any = None
    try:
        result = prepare()
    except Exception as error:
        why = error
    told = comm.all_gather_object(None if why is None else f"{type(why).__name__}: {why}")
    if why is not None:
        raise why
    for rank, reason in enumerate(told):
        if reason is not None:
            raise errors.InvalidArgError(f"{op}: rank {rank} cannot, so no rank does: {reason}", rank=rank, ranks=(rank,), op=op)
    return result


def expect_same(comm: Communicator, op: str, what: str, value: Any) -> None:
    """Raises on all ranks where they have something different. Collective."""
    told = comm.all_gather_object(value)
    for rank, other in enumerate(told):
        if other != told[0]:
            raise errors.MismatchError(
                f"{op}: {what} is {_short(other)} on rank {rank}; expected {_short(told[0])} as on rank 0", rank=rank, ranks=(rank,), op=op
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
