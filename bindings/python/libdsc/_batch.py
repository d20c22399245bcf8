"""Operations that are started together and complete together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from libdsc._library import last_message, lib
from libdsc._tracebacks import shown
from libdsc._work import AtEnd, Work

if TYPE_CHECKING:
    from libdsc._calls import Calls


class Batch:
    """The result of ``with comm.batch() as b:``.

    After a block with async_op=True, b.work is the Work of all its operations; otherwise it is None.
    """

    __slots__ = ("work", "_comm", "_async_op", "_stream", "_owners", "_at_ends")

    def __init__(self, comm: Calls, async_op: bool, stream: Any) -> None:
        self.work: Optional[Work] = None
        self._comm = comm
        self._async_op = async_op
        self._stream = stream
        self._owners: list[Any] = []
        self._at_ends: list[AtEnd] = []

    def __repr__(self) -> str:
        state = "open" if self._comm._batch is self else f"{len(self._owners)} operations"
        if self.work is not None:
            state = repr(self.work)
        return f"<libdsc.Batch on {self._comm.name!r}, {state}>"

    def __enter__(self) -> Batch:
        try:
            code = lib.dsc_batch_begin(self._comm._handle)
            if code < 0:
                self._comm._fail(code, last_message(), "batch_begin")
            self._comm._batch = self
            return self
        except Exception as error:
            raise shown(error)

    def note(
        self, function: Any, arguments: tuple[Any, ...], owner: Any, async_op: bool, stream: Any, at_end: AtEnd
    ) -> None:
        """Notes an operation in the batch. The library starts it at the end of the batch."""
        if async_op:
            raise ValueError("async_op is True inside batch(); expected batch(async_op=True), which returns one Work for all its operations")
        if stream is not None:
            raise ValueError("stream is given inside batch(); expected batch(stream=...), which applies to all its operations")
        code = function(self._comm._handle, *arguments, None, None)
        if code < 0:
            self._comm._fail(code, last_message(), str(function.__name__).removeprefix("dsc_"))
        self._owners.append(owner)
        if at_end is not None:
            self._at_ends.append(at_end)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self._comm._batch = None
            if error is not None and not isinstance(error, Exception):
                # Ctrl-C must not start the operations of the batch, but abort the communicator.
                self._comm._stop()
            owners, self._owners = tuple(self._owners), []
            try:
                self.work = self._comm._run(lib.dsc_batch_end, (), owners, self._async_op, self._stream, self._finish)
            except Exception:
                if error is None:
                    raise
        except Exception as error:
            raise shown(error)

    def _finish(self) -> None:
        for at_end in self._at_ends:
            if at_end is not None:
                at_end()
