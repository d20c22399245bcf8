"""An array like jaxlib's: it cannot be written, and memoryview() refuses types for which the buffer protocol has no
format."""

import ctypes
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from device_arrays import _Tensor  # noqa: E402


class ImmutableArray:
    """bfloat16 and 8-bit floats, stored as numpy integers.

    It offers only DLPack, in a capsule without flags, as jaxlib does.
    """

    __module__ = "jaxlib.stand_in"

    def __init__(self, values, code, bits, name):
        self._values = np.ascontiguousarray(values)
        self.shape, self.dtype = self._values.shape, type("dtype", (), {"name": name})()
        self._extents = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        address = self._values.ctypes.data
        self._tensor = _Tensor(address, 1, 0, len(self.shape), code, bits, 1, self._extents, None, 0)

    @property
    def __array_interface__(self):
        raise AttributeError("__array_interface__")

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, *, stream=None):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self._tensor), b"dltensor", None)
