"""Memory that operations move without copying: the library's own, and arrays of the program that are registered."""

from __future__ import annotations

import inspect
import math
from ctypes import byref, c_size_t, c_void_p
from typing import Any, Sequence, Union

from libdsc import _buffers, _dtypes, errors
from libdsc._arguments import SIZE, extents, integer
from libdsc._buffers import Buffer
from libdsc._library import OnlyOne, check, lib
from libdsc._memory import array_over, numpy_module
from libdsc._raw import MemoryKind, Result
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
        self._owners: list[tuple[int, Any]] = []  # address, and what keeps the memory alive

    def close(self) -> None:
        """Ends the registration, so that the memory becomes private again. Local; may be called twice.

        An array that an operation still uses stays registered, and alive, until a later call of close() or register().
        """
        try:
            _end_late()
            while self._owners:
                entry = self._owners.pop()
                code = lib.dsc_mem_unregister(entry[0])
                if code == Result.ERR_BUSY:
                    _late.append(entry)
                else:
                    check(code)
        except Exception as error:
            raise shown(error)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<libdsc.Registration of {len(self._owners)} arrays>" if self._owners else "<libdsc.Registration, closed>"

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # at interpreter shutdown, or in a forked child
            pass


_late: list[tuple[int, Any]] = []  # arrays that an operation used when their registration was closed


def _end_late() -> None:
    """Ends registrations that were closed too early, if their operations are complete."""
    _late[:] = [entry for entry in _late if lib.dsc_mem_unregister(entry[0]) == Result.ERR_BUSY]


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

    def register(self, *arrays: Any, dtype: Any = None) -> Registration:
        """Lets operations move these arrays without copying, like arrays of empty(). Collective.

            with world.register(*buffers):  # once, and not in every step: registering copies the arrays
                train(buffers)

        All ranks register arrays of the same sizes in bytes, in the same order. Addresses and contents do not change.
        Keep the result as long as operations shall be fast: it keeps the memory of the arrays alive and ends the
        registration when it is closed or garbage. While it exists, do not replace the memory of an array, as
        numpy.ndarray.resize() does, and do not let forked children write to it: they share it. Reducers need none of
        this, because their buckets are in such memory already. For gradients of torch that you reduce yourself, use
        zero_grad(set_to_none=False): other gradients are new tensors in each step. The trace shows the result: the
        "algorithm" of an operation is "zero_copy".

        Args:
            arrays: writable, contiguous arrays in host memory, such as numpy arrays and tensors; parameters of torch
                too. Empty ones are skipped. Small ones gain nothing: see zero_copy_min_bytes in docs/tuning.md.
            dtype: the element type of all arrays, such as "bf16" for arrays of uint16.
        """
        try:
            found = [_described(f"arrays[{i}]", x, dtype) for i, x in enumerate(arrays)]
            if not found:
                raise TypeError("there are no arrays; expected at least one, as in register(x)")
        except Exception as error:
            raise self._shown(error, "register")
        _end_late()
        registration = Registration()
        try:
            for argument, array in found:
                if array.count > 0:
                    self._register(registration, argument, array)
        except BaseException:
            registration.close()
            raise
        return registration

    def _register(self, registration: Registration, argument: str, array: Buffer) -> None:
        """Registers one array. If a signal handler raises during the call, the array belongs to the registration."""
        item_bytes = c_size_t()
        check(lib.dsc_dtype_bytes(array.dtype, byref(item_bytes)))
        entry = (array.address, array.owner)
        registration._owners.append(entry)
        try:
            self._call(lib.dsc_mem_register, array.address, array.count * item_bytes.value)
        except errors.DscError as error:  # the memory may belong to another registration
            registration._owners.remove(entry)
            error.message += f" ({argument})"
            raise


def _described(argument: str, x: Any, dtype: Any) -> tuple[str, Buffer]:
    """Describes an array that is registered."""
    if isinstance(x, (list, tuple)) or inspect.isgenerator(x):
        raise TypeError(f"{argument} is a {type(x).__name__}; expected an array (pass several one by one: register(*{argument}))")
    plain = x.detach() if getattr(x, "requires_grad", False) else x  # shares the memory
    return argument, _buffers.describe(plain, argument, dtype, "only memory that operations may write can be registered")
