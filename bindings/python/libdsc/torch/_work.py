"""Operations in progress, in the form of torch's Work."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from typing import Any, Callable, Optional, Sequence

import torch
import torch.distributed as dist

from libdsc import errors
from libdsc import _work as _libdsc_work
from libdsc.torch import _watch
from libdsc.torch._elements import Finish
from libdsc.torch._errors import Error, translated

Check = Optional[Callable[[], int]]


class Completed(dist._Work):  # type: ignore[misc]
    """An operation that had completed when its call returned."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._result = result

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> Optional[Exception]:
        return None

    def result(self) -> Any:
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._result)
        return future


class Work(dist._Work):  # type: ignore[misc]
    """One or several operations that run in the background.

    is_completed() is exact. The future becomes ready when the operations have completed, even if no call waits for
    them.
    """

    def __init__(
        self,
        works: Sequence[_libdsc_work.Work],
        result: Any,
        group: str,
        finish: Finish = None,
        check: Check = None,
    ) -> None:
        super().__init__()
        self._works = works
        self._result = result
        self._group = group  # the name of the group
        # A function to call after the operations have completed, or None.
        self._finish = finish
        # Returns the rank that a message came from, or raises if the message is not the expected one; or None.
        self._check = check
        self._source = -1
        self._failure: Optional[Exception] = None
        self._over = False
        self._ending = threading.Lock()
        self._future: Optional[torch.futures.Future[Any]] = None
        # On a GPU, an event after the work that self._finish has queued on a stream.
        self._finished: Optional[torch.cuda.Event] = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits until all operations have completed. Raises the failure, or libdsc.torch.Error after the time-out.

        On a GPU the caller does not wait: work queued on the current stream afterwards waits.
        """
        limit_s = timeout.total_seconds() if timeout is not None and timeout > timedelta(0) else None
        if self._failure is None:
            self._wait_for_all(limit_s)
        self._end()
        if self._finished is not None:
            torch.cuda.current_stream().wait_event(self._finished)
        if self._failure is not None:
            raise self._failure
        return True

    def _wait_for_all(self, limit_s: Optional[float]) -> None:
        """Waits until all operations have completed, with or without success."""
        for work in self._works:
            try:
                if not work.wait(limit_s):
                    raise Error(f"{work!r} did not complete within {limit_s} s; it is still running")
            except errors.DscError as error:
                if not work.test():
                    raise translated(error, self._group) from error

    def synchronize(self) -> None:
        self.wait()

    def parts(self) -> list[_libdsc_work.Work]:
        """Returns the operations that this work is waiting for next."""
        return list(self._works)

    def is_completed(self) -> bool:
        """Returns whether all operations have completed, even if one failed; never blocks.

        On a GPU it becomes True later than the return of wait(), which only makes the stream wait.
        """
        if self._failure is None and not all(work.test() for work in self._works):
            return False
        self._end()
        return self._over

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Optional[Exception]:
        if self.is_completed() and self._failure is None:
            self._failure = self._first_failure()  # on a GPU the failure may occur after wait()
        return self._failure if self._over else None

    def result(self) -> Any:
        """Waits, and returns the tensors that the operations write."""
        self.wait()
        return self._result

    def _source_rank(self) -> int:
        return self._source

    def source_rank(self) -> int:
        """Returns the rank that a message came from."""
        return self._source

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future of the tensors, or of the failure.

        For torch's C++ code the future becomes ready later. If Python code calls this, the call waits: callbacks
        chained to the future may start other operations (PowerSGD does), and all ranks must start these in the same
        order.
        """
        if _is_asked_by_python():
            self._wait_for_all(None)
            self._end()
        with self._ending:
            if self._future is None:
                ready: torch.futures.Future[Any] = torch.futures.Future(devices=_devices_of(self._result))
                self._future = ready.then(self._value)
                if self._over:
                    self.complete(ready)
                else:
                    _watch.watch(self, ready)
            return self._future

    def complete(self, ready: torch.futures.Future[Any]) -> None:
        """Sets the result of a future to the tensors. torch then makes other streams wait for them."""
        ready.set_result(self._result)

    def _value(self, _: Any) -> Any:
        if self._failure is not None:
            raise self._failure
        return self._result

    def _end(self) -> None:
        """Stores the results of completed operations. Only the first thread that calls it does this."""
        with self._ending:
            if self._over:
                return
            self._failure = self._failure or self._first_failure()
            if self._failure is None:
                self._finish_up()
            self._finish = self._check = None
            self._over = True

    def _first_failure(self) -> Optional[Exception]:
        failure = next(filter(None, (work.error() for work in self._works)), None)
        return None if failure is None else translated(failure, self._group)

    def fail(self, error: Exception) -> None:
        """Completes this work with an error, because its own result cannot be read."""
        with self._ending:
            if not self._over:
                self._failure, self._over = error, True

    def _finish_up(self) -> None:
        try:
            if self._check is not None:
                self._source = self._check()
            if self._finish is not None:
                self._finish()
                if _devices_of(self._result):
                    self._finished = torch.cuda.Event()
                    self._finished.record()
        except errors.DscError as error:
            self._failure = translated(error, self._group)
        except Exception as error:
            self._failure = error


def _devices_of(result: Any) -> Optional[list[torch.device]]:
    """Returns the GPUs of tensors in lists of any depth, which a future needs; None if all are on the host."""
    if isinstance(result, torch.Tensor):
        return [result.device] if result.is_cuda else None
    found = [device for part in result or () for device in _devices_of(part) or ()]
    return list(set(found)) or None


def _is_asked_by_python() -> bool:
    """Whether Python code called get_future(). C++ code has no Python frame."""
    try:
        return "get_future" in sys._getframe(2).f_code.co_names
    except ValueError:
        return False
