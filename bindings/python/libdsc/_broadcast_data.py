"""Broadcasts named arrays, such as a batch, from one rank to all. It does the same as Megatron-LM's broadcast_data."""

from __future__ import annotations

import ctypes
import math
from ctypes import c_int64
from typing import Any, Callable, Mapping, Optional, Sequence

from libdsc import _buffers, _dtypes, _raw
from libdsc._arguments import SIZE, member, string
from libdsc._buffers import Buffer, DeviceMemory
from libdsc._collectives import Collectives
from libdsc._library import lib
from libdsc._memory import numpy_module
from libdsc._streams import LEGACY, place_of, wait_for

MOST_DIMS = 16  # the limit of dsc_broadcast_shapes()
DATA_S = 300  # the longest wait for arrays that a GPU still computes
# The numpy types that hold the bits of floats that numpy lacks.
_STAND_INS = {_raw.Dtype.BF16: "uint16", _raw.Dtype.F8E4M3: "uint8", _raw.Dtype.F8E5M2: "uint8"}

Empty = Optional[Callable[[tuple[int, ...], str], Any]]


class NamedArrays(Collectives):
    """Adds the operation on named arrays to Communicator."""

    __slots__ = ()

    def broadcast_data(
        self,
        keys: Sequence[str],
        data: Optional[Mapping[str, Any]],
        dtype: Any,
        root: int = 0,
        *,
        empty: Empty = None,
    ) -> dict[str, Any]:
        """Returns the root's arrays for these keys on all ranks. The other ranks need not know the shapes. Collective.

            batch = comm.broadcast_data(["text", "mask"], next(loader) if comm.rank == 0 else None, "int64")

        The shapes are sent first, then all arrays in one broadcast. If the root's data is wrong, all ranks raise
        InvalidArgError, and the communicator keeps working. If the keys differ between ranks, MismatchError names them.

        Args:
            keys: the same list on all ranks.
            data: on the root, a dict of arrays, of at most 16 dimensions, whose sizes may be 0. Entries that are not in
                keys are ignored. On the other ranks data is ignored.
            dtype: the element type of all arrays, such as "int64"; the same on all ranks.
            root: the rank that has the arrays.
            empty: empty(shape, dtype) makes an array on the other ranks, as in broadcast_array(). None: the arrays are
                views of one numpy array, into which the elements are received without a copy.
        """
        names, code, root = _checked_keys(keys), _dtypes.dtype_code(dtype), member("root", root, self._size)
        if self._rank == root:
            return self._send_data(names, data, code, root)
        raw, kept = _raw_tensors(names)
        shapes = (c_int64 * (MOST_DIMS * max(1, len(names))))()
        self._call(lib.dsc_broadcast_shapes, raw, len(names), code, root, shapes)
        arrays = _make_arrays([tuple(tensor.shape[: tensor.ndim]) for tensor in raw[: len(names)]], code, empty)
        buffers = [_buffers.describe(x, "the array that empty() returned", code) for x in arrays]
        for tensor, buffer in zip(raw, buffers):
            if buffer.count != tensor.count:
                raise ValueError(f"empty() returned an array of {buffer.count} elements; expected {tensor.count}")
            self._place(tensor, buffer)
        self._move(raw, len(names), root, buffers)
        del kept
        return {name.decode(): array for name, array in zip(names, arrays)}

    def _send_data(self, names: list[bytes], data: Optional[Mapping[str, Any]], code: int, root: int) -> dict[str, Any]:
        """Sends the root's arrays.

        If an array cannot be sent, the library must still be called, because only that call reports the error to the
        other ranks. Afterwards this rank raises its own, more precise exception.
        """
        raw, kept = _raw_tensors(names)
        sent: dict[str, Any] = {}
        buffers, trouble = [], None
        for tensor, name in zip(raw, names):
            key = name.decode()
            try:
                if data is None or key not in data:
                    continue
                sent[key] = data[key]
                buffer = _describe(sent[key], f"data[{key!r}]", code)
                place_of(self, buffer.owner, None)
            except Exception as error:
                trouble = trouble or error
            else:
                buffers.append(buffer)
                kept.append(shape := (c_int64 * max(1, len(buffer.shape)))(*buffer.shape))
                tensor.dtype, tensor.count = buffer.dtype, buffer.count
                tensor.shape, tensor.ndim = shape, len(buffer.shape)
                self._place(tensor, buffer)
        try:
            self._call(lib.dsc_broadcast_shapes, raw, len(names), code, root, None)
        except Exception as error:
            raise trouble or error from None
        self._move(raw, len(names), root, buffers)
        return sent

    def _place(self, tensor: _raw.Tensor, buffer: Buffer) -> None:
        tensor.data = buffer.address
        tensor.device = self._device if isinstance(buffer.owner, DeviceMemory) else -1

    def _move(self, raw: Any, length: int, root: int, buffers: list[Buffer]) -> None:
        """Broadcasts all arrays in one operation.

        It first waits for the stream on which arrays on a GPU are computed.
        """
        place = place_of(self, [buffer.owner for buffer in buffers], None)
        if place is not None and place.stream != LEGACY:
            wait_for(place.stream, DATA_S)
        self._call(lib.dsc_broadcast_coalesced, raw, length, root, SIZE[1])


def _checked_keys(keys: Sequence[str]) -> list[bytes]:
    if isinstance(keys, str):
        raise TypeError(f"keys is one string, {keys!r}; expected a list of strings")
    names = [string(f"keys[{index}]", key) for index, key in enumerate(keys)]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"keys contains {name.decode()!r} twice; expected each key once")
    return names


def _raw_tensors(names: list[bytes]) -> tuple[Any, list[Any]]:
    """Returns tensors in which only the names are set, and a list of the objects that must stay alive with them."""
    raw = (_raw.Tensor * max(1, len(names)))()
    for tensor, name in zip(raw, names):
        tensor.struct_size, tensor.name, tensor.device = ctypes.sizeof(_raw.Tensor), name, -1
    return raw, [names]


def _describe(x: Any, argument: str, code: int) -> Buffer:
    """Describes the array, or a contiguous copy of it.

    The array's own element type is used. Only if numpy holds the bits of a float type as plain integers, that float
    type is used instead.
    """
    own = str(getattr(x, "dtype", ""))
    wanted = code if own == _STAND_INS.get(_raw.Dtype(code)) else None
    is_torch, is_numpy = hasattr(x, "is_contiguous"), hasattr(getattr(x, "flags", None), "c_contiguous")
    if is_torch and not x.is_contiguous():
        x = x.contiguous()
    elif is_numpy and not x.flags.c_contiguous:
        x = x.copy("C")
    return _buffers.describe(x, argument, wanted, False)


def _make_arrays(shapes: list[tuple[int, ...]], code: int, empty: Empty) -> list[Any]:
    if empty is not None:
        return [empty(shape, _dtypes.long_name(code)) for shape in shapes]
    block = numpy_module().empty(sum(map(math.prod, shapes)), _dtypes.numpy_type(code))
    arrays, start = [], 0
    for shape in shapes:
        end = start + math.prod(shape)
        arrays.append(block[start:end].reshape(shape))
        start = end
    return arrays
