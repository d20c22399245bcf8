"""Memory that operations move without copying: the library's own, and arrays of the program that are registered."""

from __future__ import annotations

import math
from ctypes import byref, c_size_t, c_void_p
from typing import Any, Sequence, Union

from libdsc import _buffers, _dtypes
from libdsc._arguments import SIZE, extents, integer
from libdsc._library import OnlyOne, check, lib
from libdsc._memory import array_over, numpy_module
from libdsc._raw import MemoryKind
from libdsc._tracebacks import shown
from libdsc._trees import TreeOperations


class SharedMemory(OnlyOne):
    """Owns one allocation of dsc_mem_alloc(), or one reference of dsc_mem_retain()."""

    __slots__ = ("_address", "__weakref__")

    def __init__(self, address: int) -> None:
        self._address = address

    def __del__(self) -> None:
        try:
            lib.dsc_mem_free(self._address)
        except Exception:  # at interpreter shutdown
            pass


class Registration(OnlyOne):
    """Registered arrays, made by Communicator.register(). It keeps them alive, and ends with close() or a with block."""

    __slots__ = ("_owners", "__weakref__")

    def __init__(self) -> None:
        self._owners: dict[int, Any] = {}  # by address

    def _add(self, address: int, owner: Any) -> None:
        self._owners[address] = owner

    def close(self) -> None:
        """Makes the memory private again. No operation of this rank may still use it. Local; may be called twice."""
        try:
            while self._owners:
                address = next(iter(self._owners))
                check(lib.dsc_mem_unregister(address))
                del self._owners[address]
        except Exception as error:
            raise shown(error)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<libdsc.Registration of {len(self._owners)} arrays>"

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # at interpreter shutdown
            pass


class SharedArrays(TreeOperations):
    """Adds memory that operations move without copying to Communicator."""

    __slots__ = ()

    def empty(self, shape: Union[int, Sequence[int]], dtype: Any = "float32") -> Any:
        """Returns a zeroed numpy array in memory that operations of this communicator move without copying.

        Collective, with the same number of bytes on all ranks. Operations of all groups made from this communicator
        also move it without copying. The memory is freed when the last view of the array is gone.

        Args:
            shape: one extent or several.
            dtype: a name such as "float32", or a numpy type; "bf16" makes an array of uint16.
        """
        sizes = extents("shape", shape)
        element = numpy_module().dtype(_dtypes.numpy_type(_dtypes.dtype_code(dtype), dtype))
        size_bytes = integer("the size in bytes of shape", max(1, math.prod(sizes) * element.itemsize), *SIZE)
        address = c_void_p()
        self._call(lib.dsc_mem_alloc, size_bytes, int(MemoryKind.HOST), byref(address))
        assert address.value is not None
        return array_over(address.value, sizes, element, SharedMemory(address.value))

    def register(self, *arrays: Any) -> Registration:
        """Lets operations move these arrays without copying, like arrays of empty(). Collective.

            with world.register(*model.parameters()):
                train(model)

        All ranks register arrays of the same sizes in bytes, in the same order. Addresses and contents do not change.
        Keep the result as long as operations shall be fast: it keeps the memory of the arrays alive and ends the
        registration when it is closed or garbage. While it exists, do not replace the memory of an array, as
        numpy.ndarray.resize() does, and do not let forked children write to it: they share it.

        Args:
            arrays: writable, contiguous arrays in host memory, such as numpy arrays and tensors. A parameter of torch
                needs no detach(). Small ones gain nothing: see zero_copy_min_bytes in docs/tuning.md.
        """
        try:
            found = [_buffers.describe(_plain(x), f"arrays[{i}]") for i, x in enumerate(arrays)]
        except Exception as error:
            raise self._shown(error, "register")
        registration, item_bytes = Registration(), c_size_t()
        try:
            for array in found:
                check(lib.dsc_dtype_bytes(array.dtype, byref(item_bytes)))
                self._call(lib.dsc_mem_register, array.address, array.count * item_bytes.value)
                registration._add(array.address, array.owner)
        except BaseException:
            registration.close()
            raise
        return registration


def _plain(x: Any) -> Any:
    """Returns a tensor without its graph, which shares its memory; any other array as it is."""
    return x.detach() if getattr(x, "requires_grad", False) else x
