"""A replacement for CuPy in the tests.

Its arrays are in managed memory, in which numpy computes after the current stream is done.
"""

import ctypes
import types

import numpy as np

from device_arrays import Stream, check, driver, work_on

ATTACH_GLOBAL = 1

_current = None  # the current stream, from the first use of a device on


def _synchronize():
    if _current is not None:
        _current.synchronize()


def _block(size):
    """Managed memory, which is freed with the last view of it."""

    class Block(ctypes.c_char * max(1, size)):
        def __del__(self):
            driver().cuCtxSynchronize()
            driver().cuMemFree_v2(ctypes.c_uint64(ctypes.addressof(self)))

    address = ctypes.c_uint64()
    check(driver().cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(max(1, size)), ATTACH_GLOBAL))
    return Block.from_address(address.value)


class ndarray(np.ndarray):
    @property
    def __cuda_array_interface__(self):
        strides = None if self.flags.c_contiguous else self.strides
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ctypes.data, False),
            "strides": strides,
            "version": 3,
            "stream": _current.number,
        }

    @property
    def device(self):
        return Device()

    def __array_ufunc__(self, function, method, *inputs, **options):
        _synchronize()
        plain = [x.view(np.ndarray) if isinstance(x, ndarray) else x for x in inputs]
        return asarray(getattr(function, method)(*plain, **options))


def asarray(values):
    values = np.asarray(values)
    there = np.frombuffer(_block(values.nbytes), values.dtype, values.size).reshape(values.shape)
    there[...] = values
    return there.view(ndarray)


class Device:
    def __init__(self, number=None):
        self.number = number

    def use(self):
        global _current
        work_on(self.number)
        _current = Stream()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def _count():
    found = ctypes.c_int()
    check(driver().cuDeviceGetCount(ctypes.byref(found)))
    return found.value


cuda = types.SimpleNamespace(
    Device=Device,
    runtime=types.SimpleNamespace(getDeviceCount=_count),
    get_current_stream=lambda: types.SimpleNamespace(ptr=_current.number),
)
