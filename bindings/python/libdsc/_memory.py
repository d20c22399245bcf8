"""numpy arrays over memory that belongs to the library."""

from __future__ import annotations

import math
from typing import Any


def numpy_module() -> Any:
    """Returns numpy. It is imported when it is first needed, because the package uses it only to make arrays."""
    try:
        import numpy
    except ImportError as error:
        raise ImportError("this call needs numpy, because it creates an array") from error
    return numpy


class Memory:
    """The object that a numpy array uses as its base: it keeps the owner of the memory alive."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, address: int, size_bytes: int, owner: Any) -> None:
        self._owner = owner
        data = (address, False)
        self.__array_interface__ = {"version": 3, "data": data, "shape": (size_bytes,), "typestr": "|u1"}


def array_over(address: int, shape: tuple[int, ...], dtype: Any, owner: Any) -> Any:
    """Returns a numpy array over memory that stays valid as long as owner exists."""
    numpy = numpy_module()
    element = numpy.dtype(dtype)
    size_bytes = math.prod(shape) * element.itemsize
    if size_bytes == 0:
        return numpy.empty(shape, element)
    return numpy.asarray(Memory(address, size_bytes, owner)).view(element).reshape(shape)


class DeviceArray:
    """An array on a GPU over memory of the library. cupy.asarray() and torch.as_tensor() accept it.

    Element types that numpy lacks are presented as unsigned integers of the same size.
    """

    __slots__ = ("__cuda_array_interface__", "shape", "dtype", "device", "_owner")

    def __init__(self, address: int, shape: tuple[int, ...], dtype: Any, device: int, owner: Any) -> None:
        self._owner = owner
        self.shape = shape
        self.dtype = numpy_module().dtype(dtype)
        self.device = device
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": shape,
            "typestr": self.dtype.str,
            "strides": None,
        }

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"
