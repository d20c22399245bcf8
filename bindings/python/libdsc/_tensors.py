"""Lists of arrays: their description for C, and checks that apply to the whole list."""

from __future__ import annotations

import ctypes
from ctypes import c_int64
from typing import TYPE_CHECKING, Any, Optional, Sequence

from libdsc import _buffers, _raw
from libdsc._arguments import expect_communicator, optional_string
from libdsc._buffers import DeviceMemory
from libdsc._streams import LEGACY, place_of, wait_for

if TYPE_CHECKING:
    from libdsc._calls import Calls

DATA_S = 300  # the longest wait for arrays that a GPU still computes


class Tensors:
    """The description of a list of arrays for C."""

    def __init__(
        self,
        comm: Calls,
        arrays: Sequence[Any],
        argument: str,
        dtype: Any,
        writable: bool,
        names: Optional[Sequence[str]] = None,
        paths: Optional[Sequence[str]] = None,
    ) -> None:
        expect_communicator("comm", comm)
        arrays = _buffers.list_of_arrays(argument, arrays)
        paths = paths or [f"{argument}[{index}]" for index in range(len(arrays))]
        if names is not None and len(names) != len(arrays):
            raise ValueError(f"names has {len(names)} entries; expected {len(arrays)}, one per array")
        self.buffers = [
            _buffers.describe(x, path, dtype, writable) for path, x in zip(paths, arrays)
        ]
        self.length = len(arrays)
        self.memory = next((b.owner for b in self.buffers if isinstance(b.owner, DeviceMemory)), None)
        self.place = place_of(comm, [buffer.owner for buffer in self.buffers], None)
        self.array = (_raw.Tensor * max(1, self.length))()
        self.keep: list[Any] = []
        for index, buffer in enumerate(self.buffers):
            self._fill(self.array[index], buffer, None if names is None else names[index])
            if isinstance(buffer.owner, DeviceMemory):
                self.array[index].device = comm._device

    def _fill(self, tensor: _raw.Tensor, buffer: _buffers.Buffer, name: Optional[str]) -> None:
        shape = (c_int64 * max(1, len(buffer.shape)))(*buffer.shape)
        self.keep.append(shape)
        tensor.struct_size = ctypes.sizeof(_raw.Tensor)
        tensor.data, tensor.count, tensor.dtype = buffer.address, buffer.count, buffer.dtype
        tensor.shape, tensor.ndim = shape, len(buffer.shape)
        tensor.name = optional_string("names", name)
        tensor.device = -1


def wait_for_data(tensors: Tensors) -> None:
    """Waits until arrays on a GPU are computed. Their stream may be another one than the default stream."""
    if tensors.place is not None and tensors.place.stream != LEGACY:
        wait_for(tensors.place.stream, DATA_S)
