"""Which objects are accepted as arrays, and the errors for other objects."""

import array
import ctypes
import sys

import numpy as np
import pytest

from libdsc import _buffers
from libdsc._raw import Dtype


def located(x, **options):
    return _buffers.locate(x, "x", **options)[:3]


NUMPY_TYPES = [
    ("int8", Dtype.I8),
    ("uint8", Dtype.U8),
    ("int32", Dtype.I32),
    ("uint32", Dtype.U32),
    ("int64", Dtype.I64),
    ("uint64", Dtype.U64),
    ("float16", Dtype.F16),
    ("float32", Dtype.F32),
    ("float64", Dtype.F64),
    ("bool", Dtype.BOOL),
]


@pytest.mark.parametrize("name, code", NUMPY_TYPES)
def test_numpy_types(name, code):
    x = np.zeros((3, 2), name)
    for _ in range(2):  # the second look-up uses the cache
        assert located(x) == (x.ctypes.data, 6, code)


def test_memory_is_not_copied():
    x = np.zeros(4, np.float32)
    address, count, _ = located(x)
    ctypes.memset(address, 1, 4 * count)
    assert (x.view(np.uint8) == 1).all()


def test_zero_dimensions_and_no_elements():
    assert located(np.array(3.0))[1] == 1
    assert located(np.zeros((0, 5), np.int32))[1:] == (0, Dtype.I32)
    assert located(np.zeros((4, 0))[::2])[1] == 0
    assert located(bytearray())[1:] == (0, Dtype.U8)


def test_order_of_fortran_is_refused_unless_it_is_the_same():
    with pytest.raises(ValueError, match=r"^x is not contiguous \(shape \(2, 3\)"):
        located(np.zeros((2, 3), order="F"))
    assert located(np.zeros((1, 3), order="F"))[1] == 3


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: np.zeros(8)[::2], ValueError, r"^x is not contiguous \(shape \(4,\), strides \(16,\)\)"),
        (lambda: np.zeros(8)[::2], ValueError, r"pass a copy \(numpy.ascontiguousarray\(x\)\) and then copy the result back$"),
        (lambda: np.zeros(8)[::-1], ValueError, "^x is not contiguous"),
        (lambda: np.zeros(2, ">f4"), ValueError, "^x is byte-swapped"),
        (lambda: np.zeros(2, np.complex64), TypeError, "^x has element type complex64; expected one of bool, int8"),
        (lambda: np.zeros(2, "M8[s]"), TypeError, r"^x has element type datetime64\[s\]"),
        (lambda: np.array([None]), TypeError, "^x has element type object"),
        (lambda: np.zeros(2, np.uint16), TypeError, "^x has element type uint16; .* for 16- and 8-bit floats stored as integers, pass dtype=$"),
        (lambda: np.float32(1), TypeError, "^x is a number"),
        (lambda: [1.0, 2.0], TypeError, "^x is a list; expected an array that offers the buffer protocol"),
        (lambda: None, TypeError, "^x is a NoneType"),
        (lambda: b"1234", ValueError, "^x is read-only"),
        (lambda: memoryview(bytearray(8))[::2], ValueError, "^x is not contiguous"),
        (lambda: array.array("u", "ab"), TypeError, "^x has element type 'w'|'u'"),
    ],
)
def test_refusals_name_the_argument(make, error, text):
    with pytest.raises(error, match=text):
        located(make())


def test_read_only_arrays_may_be_sent():
    x = np.arange(3.0)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="^x is read-only"):
        located(x)
    assert located(x, writable=False) == (x.ctypes.data, 3, Dtype.F64)
    assert located(b"123", writable=False)[1:] == (3, Dtype.U8)


def test_dtype_says_what_numpy_cannot():
    assert located(np.zeros(3, np.uint16), dtype="bf16")[2] == Dtype.BF16
    assert located(np.zeros(3, np.uint16), dtype="bfloat16")[2] == Dtype.BF16
    assert located(np.zeros(3, np.uint8), dtype="f8e4m3")[2] == Dtype.F8E4M3
    assert located(np.zeros(3, np.uint8), dtype=Dtype.F8E5M2)[2] == Dtype.F8E5M2
    with pytest.raises(TypeError, match="dtype bf16 has 2 bytes; expected 4, the size of an element of x"):
        located(np.zeros(3, np.uint32), dtype="bf16")
    with pytest.raises(TypeError, match="^dtype is 'quaternion'; expected one of"):
        located(np.zeros(3, np.uint32), dtype="quaternion")
    assert located(np.zeros(3, np.uint32), dtype=np.dtype("f4").str)[2] == Dtype.F32
    for name, meant in [("f4", "float32"), ("i4", "int32"), ("f8", "float64"), ("flot32", "float32"), ("b1", "bool")]:
        with pytest.raises(TypeError, match=f'^dtype is \'{name}\'; expected one of .*; did you mean "{meant}".$'):
            located(np.zeros(3, np.uint32), dtype=name)
    with pytest.raises(TypeError, match="^dtype is 'uint16'; expected one of"):
        located(np.zeros(3, np.uint32), dtype=np.uint16)


def test_types_of_ml_dtypes_are_known_by_name():
    """As with ml_dtypes: numpy sees a void type of two bytes, and the type object has the name."""

    class Named(np.ndarray):
        dtype_name = "bfloat16"

        @property
        def dtype(self):
            return type("dtype", (), {"name": self.dtype_name})()

    x = np.zeros(3, "V2").view(Named)
    assert located(x)[1:] == (3, Dtype.BF16)


def test_buffer_protocol():
    plain = bytearray(16)
    assert located(plain)[1:] == (16, Dtype.U8)
    doubles = array.array("d", [1, 2, 3])
    assert located(doubles) == (doubles.buffer_info()[0], 3, Dtype.F64)
    assert located((ctypes.c_int32 * 5)())[1:] == (5, Dtype.I32)


def test_owner_holds_the_buffer():
    plain = bytearray(16)
    owner = _buffers.locate(plain, "x")[3]
    with pytest.raises(BufferError):
        plain.append(1)
    del owner
    plain.append(1)


class Device:
    """An array with the attributes of a CuPy array."""

    def __init__(self, strides=None, read_only=False):
        self.__cuda_array_interface__ = {
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (0xDEAD000, read_only),
            "strides": strides,
            "version": 3,
        }


def test_cuda_array_interface_passes_the_pointer():
    found = _buffers.describe(Device(), "x")
    assert (found.address, found.count, found.dtype) == (0xDEAD000, 6, Dtype.F32)
    assert found.device >= 0
    with pytest.raises(ValueError, match="^x is not contiguous"):
        located(Device(strides=(24, 4)))
    with pytest.raises(ValueError, match="^x is read-only"):
        located(Device(read_only=True))


class DLPackOnly:
    """An array that offers only numpy's DLPack export."""

    def __init__(self, x):
        self.x, self.exports = x, 0

    def __dlpack__(self, **options):
        self.exports += 1
        return self.x.__dlpack__()


@pytest.mark.parametrize("name, code", [pair for pair in NUMPY_TYPES if pair[0] != "bool"])
def test_dlpack(name, code):
    x = np.zeros((2, 3), name)
    assert located(DLPackOnly(x)) == (x.ctypes.data, 6, code)
    assert located(DLPackOnly(x[1]))[0] == x[1].ctypes.data


def test_dlpack_gives_the_capsule_back():
    x = np.zeros(4)
    before = sys.getrefcount(x)
    located(DLPackOnly(x))
    assert sys.getrefcount(x) == before


def test_dlpack_refusals():
    with pytest.raises(ValueError, match="^x is not contiguous"):
        located(DLPackOnly(np.zeros((4, 4))[:, ::2]))
    read_only = np.zeros(4)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="^x does not export its memory"):
        located(DLPackOnly(read_only))
    with pytest.raises(TypeError, match="^x has element type"):
        located(DLPackOnly(np.zeros(2, np.complex64)))


def test_torch():
    torch = pytest.importorskip("torch", minversion="2.14")
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    assert located(x) == (x.data_ptr(), 6, Dtype.F32)
    assert located(x[1]) == (x[1].data_ptr(), 3, Dtype.F32)
    assert located(torch.zeros(3, dtype=torch.bfloat16))[2] == Dtype.BF16
    with pytest.raises(ValueError, match=r"^x is not contiguous .*\(a copy: x.contiguous\(\)\)$"):
        located(x.t())
    with pytest.raises(ValueError, match="^x does not export its memory: .*detach"):
        located(torch.zeros(3, requires_grad=True))
