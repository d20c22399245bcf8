"""Communication hooks of reducers: user-defined functions that reduce a bucket."""

from __future__ import annotations

import inspect
from ctypes import byref, c_char, c_size_t, c_void_p
from typing import Any, Callable, Generator, Optional, Union

from libdsc import _dtypes, _raw
from libdsc._callback_errors import FAILED, failed
from libdsc._communicator import Communicator
from libdsc._library import check, lib, text_of
from libdsc._memory import DeviceArray, array_over
from libdsc._shared_memory import SharedMemory
from libdsc._work import Work

HookSteps = Generator[Optional[Work], None, None]
Hook = Callable[["Bucket"], Union[Work, HookSteps, None]]


def hooks() -> list[str]:
    """The built-in hooks, one per line: name, options with their defaults, and what it does."""
    return text_of(lib.dsc_bucket_hooks).splitlines()


class _Group(Communicator):
    """The group of a reducer. The reducer owns it."""

    __slots__ = ()

    def close(self) -> None:
        """Forgets the group without closing it."""
        self._handle = 0

    def __del__(self) -> None:
        self._handle = 0


class Bucket:
    """A complete bucket, as a hook sees it.

    Attributes:
        comm: the reducer's group, for the hook's operations.
        buffer: the gradients, not yet divided, one after another in an array of one dimension. The hook must leave the
            mean over all ranks here. 16- and 8-bit floats that numpy lacks are unsigned integers. An array that your
            program keeps remains valid, even after the buckets were rebuilt or the reducer was closed: its memory is
            freed with the last array over it. After finish() the next iteration may overwrite the contents; use
            bucket.buffer.copy() to keep them.
        divisor: the number of ranks that take part; the mean is the sum divided by it.
        dtype: the element type, for operations, such as "f32".
        index: number of the bucket in launch order.
        is_last: whether it is the last bucket of the iteration.
        params: indices of the parameters in the bucket.
        stream: on a GPU, the stream on which the gradients are computed.
    """

    __slots__ = ("comm", "_buffer", "divisor", "dtype", "index", "is_last", "params", "stream", "_offsets", "_counts")

    def __init__(self, comm: Communicator, raw: _raw.Bucket) -> None:
        n = raw.n_params
        element = _dtypes.NUMPY[_raw.Dtype(raw.dtype)]
        place = (raw.buffer or 0, (raw.count,), element)
        memory = c_void_p()
        check(lib.dsc_mem_retain(raw.buffer, byref(memory)))
        owner = SharedMemory(memory.value or 0)
        self.comm = comm
        self._buffer: Any = array_over(*place, owner) if not raw.stream else DeviceArray(*place, comm._device, owner)
        self.divisor: int = raw.divisor
        self.dtype: str = _raw.Dtype(raw.dtype).name.lower()
        self.index: int = raw.index
        self.is_last = bool(raw.is_last)
        self.params: list[int] = list(raw.params[:n])
        self.stream: Optional[int] = raw.stream
        self._offsets: list[int] = list(raw.offsets[:n])
        self._counts: list[int] = list(raw.counts[:n])

    @property
    def buffer(self) -> Any:
        """The gradients; after the hook, the mean."""
        return self._buffer

    @buffer.setter
    def buffer(self, value: Any) -> None:
        # An expression such as buffer /= n assigns the same object.
        if value is not self._buffer:
            raise AttributeError("buffer cannot be replaced, because it is the memory of the bucket; expected bucket.buffer[...] = x, or bucket.buffer /= n")

    def gradients(self) -> list[Any]:
        """The parts of buffer that belong to the parameters, in the order of params."""
        return [self.buffer[at : at + n] for at, n in zip(self._offsets, self._counts)]

    def __repr__(self) -> str:
        return f"<libdsc.Bucket {self.index} of {len(self.params)} parameters, {sum(self._counts)} elements>"


class HookEntry:
    """Calls a hook from C. A hook is a function, or a generator function that yields a Work between its steps."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._steps: dict[int, HookSteps] = {}
        self._works: dict[int, Any] = {}  # for each bucket, objects to keep alive until the next step
        self._comm: Optional[_Group] = None
        self.raised: Optional[BaseException] = None
        self.told = False  # whether the exception was already raised to the program
        self.function = _raw.BucketHookFn(self._called)

    def _called(self, _context: Any, raw: Any, work: Any) -> int:
        try:
            if self.raised is None:
                self._step(raw.contents, work)
                return 0
        except BaseException as error:  # an exception must not propagate through C code
            self.raised = error
            return failed(raw.contents, error)
        return FAILED

    def _step(self, raw: _raw.Bucket, work: Any) -> None:
        index = raw.index
        self._finish(index)
        if raw.step == 0:
            self._steps.pop(index, None)
            result = self._hook(Bucket(self._group(raw), raw))
            if inspect.isgenerator(result):
                self._steps[index] = result
            else:
                self._wait_for(index, result, work)
                return
        steps = self._steps.get(index)
        while steps is not None:
            try:
                result = next(steps)
            except StopIteration:
                self._steps.pop(index)
                return
            if self._wait_for(index, result, work):
                return

    def _wait_for(self, index: int, result: Any, work: Any) -> bool:
        """Passes the Work that a step returned to the library. Returns False if there is nothing to wait for."""
        if result is None:
            return False
        if not isinstance(result, Work):
            raise TypeError(f"the hook returned a {type(result).__name__}; expected a Work, from async_op=True, or None")
        handle, self._works[index] = result._hand_over()
        if handle:
            work[0] = handle
        return bool(handle)

    def _finish(self, index: int) -> None:
        """Releases the Work that the library has waited for."""
        kept = self._works.pop(index, None)
        if kept is not None and kept[0] is not None:
            kept[0]()

    def _group(self, raw: _raw.Bucket) -> _Group:
        if self._comm is None or self._comm._handle != raw.comm:
            self._comm = _Group(raw.comm or 0)
        return self._comm


def save(handle: int) -> bytes:
    """Returns the saved state of a reducer's hook."""
    size = c_size_t()
    check(lib.dsc_bucket_reducer_save_hook(handle, None, 0, byref(size)))
    room = (c_char * max(1, size.value))()
    check(lib.dsc_bucket_reducer_save_hook(handle, room, size.value, byref(size)))
    return room.raw[: size.value]
