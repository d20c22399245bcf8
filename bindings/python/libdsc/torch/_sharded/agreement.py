"""Makes calls succeed on all ranks, or fail on all ranks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator

from libdsc import errors
from libdsc._communicator import Communicator
from libdsc._reasons import failure_of, is_for_all, reason_of


@contextmanager
def collective(op: str) -> Iterator[None]:
    """Adds the name of the called method to failures that occur if another rank does not call it."""
    try:
        yield
    except (errors.PeerError, errors.TimeoutError, errors.MismatchError) as error:
        error.message = f"{op}: {error.message}; expected all ranks to call {op}"
        raise


def on_all(comm: Communicator, op: str, prepare: Callable[[], Any]) -> Any:
    """Returns the result of prepare(). If it raises on one rank, the other ranks raise the reason. Collective.

    If a save cannot write a file, all ranks raise the same SystemError.
    """
    result: Any = None
    why: Any = None
    try:
        result = prepare()
    except Exception as error:
        why = error
    own = None if why is None else reason_of(why, op == "save" and not isinstance(why, errors.DscError))
    told = comm.all_gather_object(own)
    if why is not None and not is_for_all(own):
        raise why
    for rank, reason in enumerate(told):
        if reason is not None:
            raise failure_of(f"{op}: rank {rank} failed, so all ranks stop: {reason.text}", reason, rank, op) from why
    return result


def expect_same(comm: Communicator, op: str, what: str, value: Any) -> None:
    """Raises MismatchError on all ranks if their values differ. Collective."""
    told = comm.all_gather_object(value)
    for rank, other in enumerate(told):
        if other != told[0]:
            raise errors.MismatchError(
                f"{op}: {what} is {_short(other)} on rank {rank}; expected {_short(told[0])} as on rank 0", rank=rank, ranks=(rank,), op=op
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
