"""Lists of arrays: their C description, and what is done once with all of them."""

from __future__ import annotations

import ctypes
from ctypes import c_int64
from typing import Any, Optional, Sequence

from libdsc import _buffers, _raw
from libdsc._arguments import SIZE, expect_communicator, integer, member, optional_string
from libdsc._buffers import DeviceMemory
from libdsc._communicator import Communicator
from libdsc._library import lib
from libdsc._ops import number_of
from libdsc._streams import LEGACY, place_of, wait_for
from libdsc._types import OpLike

DATA_S = 300  # for arrays that are still being computed on a GPU


class Tensors:
    """The C description of a list of arrays."""

    def __init__(
        self,
        comm: Communicator,
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
    """Elements on a GPU may still be on their way, on another stream than the default one."""
    if tensors.place is not None and tensors.place.stream != LEGACY:
        wait_for(tensors.place.stream, DATA_S)


def verify_params(
    comm: Communicator, arrays: Sequence[Any], names: Optional[Sequence[str]] = None, dtype: Any = None
) -> None:
    """Checks that all ranks have the same parameters in number, type and shape. Collective.

    Raises MismatchError on all ranks, naming the ranks, the parameter and both descriptions; the communicator keeps
    working.
    """
    tensors = Tensors(comm, arrays, "arrays", dtype, False, names)
    comm._call(lib.dsc_comm_verify_params, tensors.array, tensors.length)


def broadcast_coalesced(
    comm: Communicator, arrays: Sequence[Any], root: int = 0, buffer_bytes: int = 0, dtype: Any = None
) -> None:
    """Copies the root's arrays to all ranks, packed into buffers per type. Collective.

    Args:
        comm: the communicator.
        arrays: as many and of the same types on all ranks, on the host or on a GPU; written on the ranks other than
            root. On a GPU the call waits for the current stream.
        root: the rank whose arrays are copied.
        buffer_bytes: a buffer is sent when it holds so much; 0: 250 MiB.
        dtype: what the elements of all arrays are, such as "bf16".
    """
    expect_communicator("comm", comm)
    root, buffer_bytes = member("root", root, comm.size), integer("buffer_bytes", buffer_bytes, *SIZE)
    tensors = Tensors(comm, arrays, "arrays", dtype, comm.rank != root)
    wait_for_data(tensors)
    comm._call(lib.dsc_broadcast_coalesced, tensors.array, tensors.length, root, buffer_bytes)


def all_reduce_coalesced(
    comm: Communicator, arrays: Sequence[Any], op: OpLike = "sum", buffer_bytes: int = 0, dtype: Any = None
) -> None:
    """Combines the elements of all ranks' arrays, packed into buffers per type. Collective.

    As all_reduce() of each array, in fewer operations. Where lists differ, nothing is written, and the message of
    MismatchError shows how many arrays each rank gave, with index and count of the first ones, as in
    "2 tensors, [0]: 3, [1]: 4"; verify_params() names the array where these are equal.

    Args:
        comm: the communicator.
        arrays: as many and of the same counts and types on all ranks, on the host or on a GPU; they are written, and must
            not overlap. On a GPU the call waits for the current stream.
        op: as for all_reduce().
        buffer_bytes: a buffer is reduced when it holds so much; 0: 250 MiB.
        dtype: what the elements of all arrays are, such as "bf16".
    """
    buffer_bytes, number = integer("buffer_bytes", buffer_bytes, *SIZE), number_of(op)
    tensors = Tensors(comm, arrays, "arrays", dtype, True)
    wait_for_data(tensors)
    comm._call(lib.dsc_all_reduce_coalesced, tensors.array, tensors.length, number, buffer_bytes, owner=op)
