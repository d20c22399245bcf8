"""Finds the GPU stream of an operation, without importing the library of the arrays."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

from libdsc import _buffers
from libdsc._arguments import SIZE, brief, integer
from libdsc._blocks import Blocks
from libdsc._buffers import DeviceMemory

if TYPE_CHECKING:
    from libdsc._calls import Calls

# CUDA's number for its default stream. NULL would be ambiguous: a call without memory could be for the host or for a
# GPU.
LEGACY = 1
driver_file: Optional[str] = None  # the path that init_distributed() got
_NOT_READY = 600  # CUDA_ERROR_NOT_READY


class Place:
    """The stream of an operation, and one of its arrays, whose library may have a current stream."""

    __slots__ = ("stream", "_memory")

    def __init__(self, stream: int, memory: Optional[DeviceMemory]) -> None:
        self.stream = stream
        self._memory = memory

    def waiting(self, stream: Any) -> int:
        """Returns the stream that waits: the given stream, else the library's current one, else that of the operation.
        """
        if stream is not None:
            return handle_of(stream)
        current = None if self._memory is None else current_of(self._memory)
        return self.stream if current is None else current


def place_of(comm: Calls, owner: Any, stream: Any) -> Optional[Place]:
    """Returns the stream for an operation with these arrays; None if it does not involve a GPU."""
    memory = None
    for found in _memory_in(owner):
        _expect_device(comm, found)
        memory = memory or found
    if stream is not None:
        return Place(handle_of(stream), memory)
    if memory is None:
        return None
    current = current_of(memory)
    return Place(LEGACY if current is None else current, memory)


def _memory_in(owner: Any) -> Iterator[DeviceMemory]:
    """Yields the arrays on a GPU among the objects that an operation keeps alive."""
    if isinstance(owner, DeviceMemory):
        yield owner
    elif isinstance(owner, Blocks):
        yield from _memory_in(owner.owner)
    elif isinstance(owner, (tuple, list)):
        for part in owner:
            yield from _memory_in(part)


def _expect_device(comm: Calls, memory: DeviceMemory) -> None:
    if comm._device < 0:
        advice = 'expected host memory, or a world from init_distributed() with backend="device" or device='
        raise ValueError(f"{memory.argument} is on a GPU, but this communicator is not bound to a GPU; {advice}")
    if memory.device not in (None, comm._device):
        bound = f"expected device {comm._device}, which this communicator is bound to"
        raise ValueError(f"{memory.argument} is on device {memory.device}; {bound}")


def current_of(memory: DeviceMemory) -> Optional[int]:
    """Returns the current stream of the array's library (torch or CuPy), or else the stream that the array names."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(memory.owner, torch.Tensor):
        return int(torch.cuda.current_stream(memory.device).cuda_stream) or LEGACY
    if cupy is not None and isinstance(memory.owner, cupy.ndarray):
        with memory.owner.device:
            return int(cupy.cuda.get_current_stream().ptr) or LEGACY
    return memory.stream


def of_call(memory: Optional[DeviceMemory], owner: Any, stream: Any) -> Optional[int]:
    """Returns the stream of a call on an object with arrays in `memory`; None for host memory."""
    if stream is not None:
        return handle_of(stream)
    if memory is None:
        return None
    own = current_of(owner) if isinstance(owner, DeviceMemory) else None
    return own or current_of(memory) or LEGACY


def handle_of(stream: Any) -> int:
    """Returns CUDA's handle of a stream.

    It accepts a number, a stream of torch or CuPy, or any with __cuda_stream__.
    """
    value = stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version, value = protocol() if callable(protocol) else protocol
        if version != 0:
            raise ValueError(f"stream offers version {version} of __cuda_stream__; expected 0")
    else:
        value = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    try:
        return integer("stream", value, *SIZE) or LEGACY
    except TypeError:
        accepted = "an integer, or an object with cuda_stream, ptr or __cuda_stream__"
        raise TypeError(f"stream is {brief(stream)}; expected {accepted}") from None


def _current_context(driver: ctypes.CDLL) -> Optional[ctypes.c_void_p]:
    context = ctypes.c_void_p()
    found = driver.cuCtxGetCurrent(ctypes.byref(context)) == 0 and context.value is not None
    return context if found else None


def context_is_current() -> bool:
    """Whether this thread has a current CUDA context. It does not load CUDA if the program has not loaded it."""
    driver = _loaded_driver()
    return driver is not None and _current_context(driver) is not None


def in_own_context(function: Callable[..., int]) -> Callable[..., int]:
    """Returns a function that calls `function` on another thread, in the CUDA context of the current thread."""
    driver = _loaded_driver()
    context = None if driver is None else _current_context(driver)
    if driver is None or context is None:
        return function

    set_current = driver.cuCtxSetCurrent

    def call(*arguments: Any) -> int:
        set_current(context)
        return function(*arguments)

    return call


def wait_for(stream: Optional[int], seconds: float) -> None:
    """Waits until the work on a stream is complete. It is for calls that have no stream argument."""
    driver = _loaded_driver()
    deadline = time.monotonic() + seconds
    while driver is not None and driver.cuStreamQuery(ctypes.c_void_p(stream)) == _NOT_READY:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the work on the stream did not finish within {seconds:g} s")
        time.sleep(0.0002)


def copy(to: int, source: int, size_bytes: int, stream: Optional[int], seconds: float) -> None:
    """Copies between the host and a GPU, after the work that is queued on a stream, and waits for the copy."""
    if size_bytes == 0:
        return
    driver = _loaded_driver()
    if driver is None:
        raise RuntimeError("the CUDA driver library is not loaded, but an array on a GPU needs it")
    # The copy may itself wait for the stream, but without a time limit. So this call first waits with a limit.
    wait_for(stream, seconds)
    places = ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size_bytes)
    result = driver.cuMemcpyAsync(*places, ctypes.c_void_p(stream))
    if result != 0:
        raise RuntimeError(f"the CUDA driver returned error {result} for a copy of {size_bytes} bytes")
    wait_for(stream, seconds)


def of_driver(file: Optional[str]) -> Optional[str]:
    """Stores and returns the path of CUDA's driver that was passed to start-up. Streams use this driver from now on."""
    global driver_file
    driver_file = file or driver_file
    return file


def _loaded_driver() -> Optional[ctypes.CDLL]:
    """Returns CUDA's driver if this process has loaded it. Otherwise no thread can have a CUDA context."""
    name = driver_file or os.environ.get("DSC_CUDA_LIBRARY") or "libcuda.so.1"
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
