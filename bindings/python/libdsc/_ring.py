"""Passes blocks around the ranks of a communicator, for ring attention."""

from __future__ import annotations

import math
import sys
from ctypes import byref, c_int32, c_size_t, c_void_p
from typing import Any, Iterator, Optional, Sequence

from libdsc import _buffers, _dtypes, _interrupt, _raw
from libdsc._arguments import Seconds, dimension, expect_communicator, integer, milliseconds, sizes_of_ranks
from libdsc._buffers import Buffer
from libdsc._calls import Calls
from libdsc._library import OnlyOne, last_message, lib
from libdsc._memory import DeviceArray, array_over
from libdsc._streams import place_of
from libdsc._tensor_map import c_sizes
from libdsc._tracebacks import shown
from libdsc._types import Array
from libdsc._work import IN_PROGRESS

# The ring's memory is several times the size of a block, and must fit into the address space.
MOST_BYTES = 2**60 - 1


class _Handle(OnlyOne):
    """Owns a ring of the library.

    Arrays over the ring's memory keep this object alive; it keeps the arrays of a pass.
    """

    __slots__ = ("value", "kept", "__weakref__")

    def __init__(self, value: int) -> None:
        self.value = value
        self.kept: Any = None

    def __del__(self) -> None:
        try:
            lib.dsc_ring_destroy(self.value)
        except Exception:  # at interpreter shutdown
            pass


class Ring(OnlyOne):
    """Passes the blocks of all ranks around, one step at a time, while the caller computes with its current block.

        ring = dsc.Ring(world, keys_and_values.nbytes)
        for source, block in ring(keys_and_values):
            ...     # the next block arrives meanwhile

    Make a ring once and use it for any number of passes. Making it, and beginning a pass, are collective. The first
    step yields the rank's own block, step i the block of rank - i.

    Blocks are numpy arrays, or tensors if the caller passed a tensor. They are views of the ring's memory, or in the
    first step of the caller's memory. Only read them: the next step overwrites them, so copy what you keep.

    With arrays on a GPU a pass runs in the order of its stream, and the loop does not wait for the device. Blocks are
    tensors if the caller passed a tensor, else objects with __cuda_array_interface__. Use them on that stream.

    Args:
        world: the ranks among which the sequence is divided.
        block_bytes: bytes of the longest block, 1 or more, equal on all ranks.
        grad_bytes: bytes of the longest block's gradients, for backward(); 0: there is no backward pass.
    """

    __slots__ = ("_world", "_handle", "_sizes", "_pass", "__weakref__")

    def __init__(self, world: Calls, block_bytes: int, grad_bytes: int = 0) -> None:
        expect_communicator("world", world)
        self._world, self._pass = world, 0
        self._handle: Optional[_Handle] = None
        self._sizes = (integer("block_bytes", block_bytes, 1, MOST_BYTES), integer("grad_bytes", grad_bytes, 0, MOST_BYTES))
        made = c_void_p()
        world._call(lib.dsc_ring_create, *self._sizes, byref(made))
        assert made.value is not None
        self._handle = _Handle(made.value)

    def __repr__(self) -> str:
        state = "" if self._handle else ", closed"
        return f"<libdsc.Ring on {self._world.name!r}: {self._sizes[0]} bytes, gradients {self._sizes[1]}{state}>"

    def __call__(
        self, block: Array, parts: Optional[Sequence[int]] = None, dim: int = 0, *, dtype: Any = None, stream: Any = None
    ) -> Iterator[tuple[int, Any]]:
        """Begins a pass, and yields (source, block) for each rank's block. Collective.

        You may leave the loop early if all ranks leave it at the same step.

        Args:
            block: this rank's array, for example its keys and values. It is not written; do not change it before the
                loop has ended.
            parts: sizes of all ranks' blocks along dim, if they differ; the same list on all ranks.
            dim: the dimension along which blocks may differ.
            dtype: the element type, such as "bf16" for an array of uint16.
            stream: the stream of a pass on a GPU; None: the current stream of torch or CuPy, or the stream that the
                array names.
        """
        try:
            found = _buffers.describe(block, "block", dtype, False)
            return self._loop(*self._begin(found, None, parts, dim, stream), likes=(block, None))
        except Exception as error:
            raise self._world._shown(error, "ring")

    def backward(
        self,
        block: Array,
        grad: Array,
        parts: Optional[Sequence[int]] = None,
        dim: int = 0,
        *,
        dtype: Any = None,
        grad_dtype: Any = None,
        stream: Any = None,
    ) -> Iterator[tuple[int, Any, Any]]:
        """Begins a pass with gradients, and yields (source, block, gradients) for each rank's block. Collective.

        gradients is an array of zeros in the shape of the block. The loop adds to it the gradients that this rank's
        queries contribute. The ring passes the gradients on with their blocks. After the loop, grad has the sum over
        all ranks for this rank's block.

        Args:
            block: as in a pass without gradients.
            grad: where the sum for this rank's block goes: an array in the shape of block, of any element type; on a
                GPU of floats. Each addition rounds to this type, so use float32 for blocks of 16-bit floats.
            parts: sizes of all ranks' blocks along dim, if they differ.
            dim: the dimension along which blocks may differ.
            dtype: the element type of block, such as "bf16" for an array of uint16.
            grad_dtype: the same for grad.
            stream: as in a pass without gradients.
        """
        try:
            found = _buffers.describe(block, "block", dtype, False)
            sums = _buffers.describe(grad, "grad", grad_dtype, "such as numpy.empty()")
            if sums.shape != found.shape:
                raise ValueError(f"grad has shape {sums.shape}; expected {found.shape}, the shape of block")
            return self._loop(*self._begin(found, sums, parts, dim, stream), likes=(block, grad))
        except Exception as error:
            raise self._world._shown(error, "ring")

    def synchronize(self, timeout: Optional[Seconds] = None) -> bool:
        """Waits until the GPU has completed all passes, and raises any failure. Returns False on a time-out.

        Call it before you rely on the results of the last pass. With host memory there is nothing to wait for.
        """
        try:
            timeout_ms = -1 if timeout is None else milliseconds(timeout)
            code = _interrupt.call(self._world._stop, lib.dsc_ring_synchronize, self._opened().value, timeout_ms)
            if code < 0:
                self._world._fail(code, last_message(), "ring_synchronize")
            return bool(code != IN_PROGRESS)
        except Exception as error:
            raise self._world._shown(error, "ring")

    def close(self) -> None:
        """Releases the ring as soon as no array over its memory exists. May be called twice."""
        self._handle = None

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def _begin(
        self, block: Buffer, grad: Optional[Buffer], parts: Optional[Sequence[int]], dim: int, stream: Any
    ) -> tuple[Any, ...]:
        handle = self._opened()
        shapes = self._shapes(block, parts, dim)
        owners = (block.owner, None if grad is None else grad.owner)
        place = place_of(self._world, [owner for owner in owners if owner is not None], stream)
        if grad is not None and (grad.device < 0) != (block.device < 0):
            where = [f"{name} is on {'the host' if x.device < 0 else 'a GPU'}" for name, x in (("block", block), ("grad", grad))]
            raise ValueError(f"{' and '.join(where)}; expected both in the same kind of memory")
        counts = None if parts is None else c_sizes([math.prod(shape) for shape in shapes])
        to, kind = (None, 0) if grad is None else (grad.address, grad.dtype)
        queue = None if place is None or block.device < 0 else place.stream
        arguments = (block.address, block.count, counts, block.dtype, to, kind, queue)
        stop = self._world._stop
        # The arrays of both passes are kept, because a signal handler may raise an exception after the pass has begun.
        handle.kept = (handle.kept, owners)
        code = _interrupt.call(stop, lib.dsc_ring_begin, handle.value, *arguments)
        if code < 0:
            self._world._fail(code, last_message(), "ring_begin")
        handle.kept = owners
        self._pass += 1
        return handle, self._pass, shapes, block, grad

    def _shapes(self, block: Buffer, parts: Optional[Sequence[int]], dim: int) -> list[tuple[int, ...]]:
        """Returns the shape of each rank's block."""
        size, rank = self._world._size, self._world._rank
        if parts is None:
            return [block.shape] * size
        lengths = sizes_of_ranks("parts", parts, size)
        at = dimension(dim, len(block.shape), "block")
        if block.shape[at] != lengths[rank]:
            raise ValueError(f"block has {block.shape[at]} elements along dimension {at}; expected {lengths[rank]}, the value of parts[{rank}]")
        return [block.shape[:at] + (length,) + block.shape[at + 1 :] for length in lengths]

    def _loop(
        self, handle: _Handle, number: int, shapes: Any, own: Buffer, sums: Optional[Buffer], *, likes: tuple[Any, Any]
    ) -> Iterator[Any]:
        while True:
            if number != self._pass:
                raise ValueError("another pass of this ring has started; only the newest pass can continue")
            source, data, grad = self._next(handle)
            if source < 0:
                handle.kept = None
                return
            block = self._view(data, shapes[source], own, handle, likes[0])
            if own.device < 0 and not hasattr(likes[0], "new_empty"):
                block.flags.writeable = False
            if sums is None:
                yield source, block
            else:
                yield source, block, self._view(grad, shapes[source], sums, handle, likes[1])

    def _next(self, handle: _Handle) -> tuple[int, int, int]:
        """Advances to the next step. It waits in short slices, so that Python can run signal handlers."""
        source, count, block, grad = c_int32(), c_size_t(), c_void_p(), c_void_p()
        places = (byref(source), byref(block), byref(count), byref(grad))
        code = IN_PROGRESS
        try:
            while code == IN_PROGRESS:
                code = int(lib.dsc_ring_next(handle.value, _interrupt.SLICE_MS, *places))
        except BaseException:
            self._world.abort()
            raise
        if code < 0:
            try:
                self._world._fail(code, last_message(), "ring_next")
            except Exception as error:
                raise shown(error)
        return source.value, block.value or 0, grad.value or 0

    def _opened(self) -> _Handle:
        if self._handle is None:
            self._world._fail(_raw.Result.ERR_BAD_HANDLE, "ring: the ring was closed", "ring")
        return self._handle

    def _view(self, address: int, shape: tuple[int, ...], own: Buffer, handle: _Handle, like: Any) -> Any:
        """Returns an array over the caller's memory if that is the address, otherwise over the ring's memory.

        It keeps that memory alive. The result is a tensor if the caller passed one.
        """
        owner = own.owner if address == own.address else handle
        is_tensor = hasattr(like, "new_empty")
        if own.device < 0:
            array = array_over(address, shape, _dtypes.view_type(own.dtype), owner)
            return _tensor(like, "from_numpy", array.view(f"i{array.itemsize}")) if is_tensor else array
        if not is_tensor:
            return DeviceArray(address, shape, _dtypes.numpy_type(own.dtype), self._world._device, owner)
        if not math.prod(shape):
            return like.new_empty(shape)
        # An integer type of the same size, because the interface cannot express all element types.
        plain = f"i{_dtypes.BYTES[_raw.Dtype(own.dtype)]}"
        return _tensor(like, "as_tensor", DeviceArray(address, shape, plain, self._world._device, owner), device=like.device)


def _tensor(like: Any, make: str, array: Any, **options: Any) -> Any:
    """Returns a tensor of the type of `like` over an array of integers of the same size."""
    torch = sys.modules[type(like).__module__.partition(".")[0]]
    return getattr(torch, make)(array, **options).view(like.dtype)
