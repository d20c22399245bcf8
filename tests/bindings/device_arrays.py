"""A GPU for the tests, by CUDA's driver or the fake driver, and arrays on it.

Each class of array offers exactly one protocol.
"""

import ctypes
import os

import numpy as np

_TYPES = {"f4": (2, 32), "f8": (2, 64), "i4": (0, 32), "i8": (0, 64), "u2": (1, 16), "u1": (1, 8), "f2": (2, 16)}
BFLOAT = (4, 16)
CUDA, MANAGED = 2, 13

_driver = None


def driver():
    global _driver
    if _driver is None:
        _driver = ctypes.CDLL(os.environ.get("DSC_CUDA_LIBRARY") or "libcuda.so.1")
        check(_driver.cuInit(0))
    return _driver


def check(result):
    assert result == 0, f"the CUDA driver returned error {result}"


def work_on(number):
    """Selects a device for the calling thread."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(driver().cuDeviceGet(ctypes.byref(device), number))
    check(driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(driver().cuCtxPushCurrent_v2(context))


class Stream:
    """A stream that does not wait for other streams and that a test can hold."""

    def __init__(self):
        handle = ctypes.c_void_p()
        check(driver().cuStreamCreateWithPriority(ctypes.byref(handle), 1, 0))
        self.number = self.cuda_stream = handle.value
        self._keep = []

    def hold(self, event, seconds=30):
        """Makes the later work on the stream wait for a threading.Event."""
        self._keep.append(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: event.wait(seconds) and None))
        check(driver().cuLaunchHostFunc(ctypes.c_void_p(self.number), self._keep[-1], None))

    def synchronize(self):
        check(driver().cuStreamSynchronize(ctypes.c_void_p(self.number)))


class Memory:
    """The elements of a numpy array, on the current device."""

    def __init__(self, values):
        values = np.ascontiguousarray(values)
        self.shape, self.dtype, self.bytes = values.shape, values.dtype, values.nbytes
        address = ctypes.c_uint64()
        check(driver().cuMemAlloc_v2(ctypes.byref(address), max(1, self.bytes)))
        self.address = address.value
        self.write(values)

    def write(self, values, stream=None):
        self._copy(self.address, np.ascontiguousarray(values, self.dtype).ctypes.data, stream)

    def read(self, stream=None):
        """Reads after the earlier work on a stream. By default that is the work on all streams that are not held."""
        values = np.empty(self.shape, self.dtype)
        self._copy(values.ctypes.data, self.address, stream)
        return values

    def _copy(self, to, source, stream):
        handle = ctypes.c_void_p(stream)
        if self.bytes:
            copy = driver().cuMemcpyAsync
            check(copy(ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(self.bytes), handle))
            check(driver().cuStreamSynchronize(handle))

    def __del__(self):
        driver().cuCtxSynchronize()  # an operation may still run on its stream after its call has returned
        driver().cuMemFree_v2(ctypes.c_uint64(self.address))


class Interface(Memory):
    """An array that offers __cuda_array_interface__."""

    def __init__(self, values, version=3, **entries):
        super().__init__(values)
        self.__cuda_array_interface__ = {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": version,
        } | entries


class View(Memory):
    """The array that a library makes from a DeviceArray."""

    def __init__(self, array):
        interface = array.__cuda_array_interface__
        self.address, self.shape, self.dtype = interface["data"][0], interface["shape"], np.dtype(interface["typestr"])
        self.bytes = int(np.prod(self.shape)) * self.dtype.itemsize

    def __del__(self):
        pass


def copy_on(to, source, stream):
    """Enqueues a copy between two arrays of a GPU on a stream."""
    places = [ctypes.c_uint64(array.__cuda_array_interface__["data"][0]) for array in (to, source)]
    size_bytes = int(np.prod(to.shape)) * np.dtype(to.dtype).itemsize
    check(driver().cuMemcpyAsync(*places, ctypes.c_size_t(size_bytes), ctypes.c_void_p(stream.number)))


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class DLPack(Memory):
    """An array that offers __dlpack__ and __dlpack_device__, and records the stream that it was asked for."""

    def __init__(self, values, device=0, kind=CUDA, element=None, strides=None):
        super().__init__(values)
        self.device_pair, self.asked = (kind, device), []
        code, bits = element or _TYPES[self.dtype.str[1:]]
        extents = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        steps = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        self._extents = extents, steps
        self._tensor = _Tensor(self.address, kind, device, len(self.shape), code, bits, 1, extents, steps, 0)

    def __dlpack_device__(self):
        return self.device_pair

    def __dlpack__(self, *, stream=None):
        self.asked.append(stream)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self._tensor), b"dltensor", None)
