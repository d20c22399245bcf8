"""Finds address, count and type of the elements of any library's array, without copying it or importing that library.

Supported are the buffer protocol, __array_interface__ (numpy), __cuda_array_interface__ (CuPy, torch on a GPU) and
DLPack (torch, JAX, TensorFlow). Every error names the argument and is raised before the C library is called.
"""

from __future__ import annotations

import ctypes
import math
import sys
from dataclasses import dataclass, replace
from typing import Any, Iterable, Mapping, Optional, Union

from libdsc import _dtypes
from libdsc._raw import Dtype

# Hot path: the element type for each type object of numpy that was seen. A numpy array then needs only one lookup.
_known: dict[Any, int] = {}
_tensor_types: set[type] = set()  # tensor types of torch that were seen with a tensor in host memory
_tensor_dtypes: dict[Any, int] = {}
# numpy.ndarray, after the first one was seen. Subclasses are not included, because their memory may be on a GPU.
_plain: Any = type(None)
_from_buffer = ctypes.c_char.from_buffer
_addressof = ctypes.addressof

# Whether an array must be writable. A string also means yes; the error for a read-only array then contains it as
# advice.
Writable = Union[bool, str]

DLPACK_CPU = (1, 3)  # DLPack's device types of host memory: plain and pinned
DLPACK_CUDA, DLPACK_CUDA_MANAGED = 2, 13
# Values of the argument stream of __dlpack__: no synchronization is needed, or the default stream has to wait.
DLPACK_NO_STREAM, DLPACK_DEFAULT_STREAM = -1, 1

# Whether some array was on a GPU, so that operations must look for a stream.
memory_met = False


class DeviceMemory:
    """Marks an array as GPU memory. It is used as the owner of that memory."""

    __slots__ = ("owner", "argument", "device", "stream")

    def __init__(self, owner: Any, argument: str, device: Optional[int], stream: Optional[int]) -> None:
        global memory_met
        memory_met = True
        self.owner = owner
        self.argument = argument  # the argument's name, for error messages
        self.device = device  # None if the array does not name its device
        # The stream on which the elements are ready; None if the array does not name it.
        self.stream = stream


@dataclass(frozen=True)
class Buffer:
    """The elements of an array: address, count, type and owner."""

    address: int
    count: int
    dtype: int
    shape: tuple[int, ...]
    owner: Any  # must stay alive while the address is in use
    device: int  # -1: host memory


def locate(x: Any, argument: str, dtype: Any = None, writable: bool = True) -> tuple[int, int, int, Any]:
    """Returns (address, count, dtype, owner) of an array. Hot path: arrays of numpy and torch have fast paths."""
    if dtype is None and type(x) is _plain:
        try:
            return _addressof(_from_buffer(x)), x.size, _known[x.dtype], x
        except (KeyError, AttributeError, TypeError, ValueError, BufferError):
            # Not a plain numpy array, or not usable: describe() below handles it or raises the error.
            pass
    if dtype is None and type(x) in _tensor_types:
        try:
            if x.is_cpu and not x.requires_grad and x.is_contiguous() and (address := x.data_ptr()):
                return address, x.numel(), _tensor_dtypes[x.dtype], x
        except (KeyError, RuntimeError):
            pass  # such as a sparse tensor
    found = describe(x, argument, dtype, writable)
    if dtype is None and type(x).__module__.startswith("torch") and hasattr(x, "data_ptr") and found.device == -1:
        _tensor_types.add(type(x))
        _tensor_dtypes[x.dtype] = found.dtype
    return found.address, found.count, found.dtype, found.owner


def describe(x: Any, argument: str, dtype: Any = None, writable: Writable = True) -> Buffer:
    """Returns a description of the elements of an array. TypeError and ValueError name the argument."""
    global _plain
    interface = _cuda_interface(x, argument)
    if interface is not None:
        found = _from_interface(x, interface, argument, dtype, writable, 0)
        return _on_device(found, argument, _device_number(x), interface.get("stream") or None)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.generic):
        raise TypeError(f"{argument} is a number; expected an array (use numpy.array([value]))")
    if numpy is not None and isinstance(x, numpy.ma.MaskedArray):
        raise TypeError(f"{argument} is a masked array; expected one without a mask (use {argument}.filled(value))")
    if hasattr(x, "__array_interface__"):
        found = _from_interface(x, x.__array_interface__, argument, dtype, writable, -1)
        if dtype is None and numpy is not None and type(x) is numpy.ndarray:
            _plain, _known[x.dtype] = numpy.ndarray, found.dtype
        return found
    try:
        view = memoryview(x)
    except TypeError:
        pass
    # The buffer protocol has no format character for some types, such as JAX's bfloat16.
    except BufferError as error:
        if not hasattr(x, "__dlpack__"):
            raise ValueError(f"{argument} does not export its memory: {error}") from error
    else:
        return _from_memoryview(view, argument, dtype, writable)
    if hasattr(x, "__dlpack__"):
        return _from_dlpack(x, argument, dtype, writable)
    accepted = "the buffer protocol, __array_interface__, __cuda_array_interface__ or __dlpack__"
    hint = f" (use numpy.asarray({argument}))" if isinstance(x, (list, tuple)) else ""
    if isinstance(x, (int, float)):
        hint = f" (use numpy.array([{argument}]), or an operation on objects such as all_reduce_object())"
    raise TypeError(f"{argument} is a {type(x).__name__}; expected an array that offers {accepted}{hint}")


def expect(argument: str, found: Buffer, shape: tuple[int, ...], dtype: int) -> None:
    """Raises unless an array has this shape and element type."""
    if found.shape != tuple(shape):
        raise ValueError(f"{argument} has shape {found.shape}; expected {tuple(shape)}")
    if found.dtype != dtype:
        names = [_dtypes.long_name(code) for code in (found.dtype, dtype)]
        raise TypeError(f"{argument} has element type {names[0]}; expected {names[1]}{_cast_hint(argument, found, names)}")


def _cast_hint(argument: str, found: Buffer, names: list[str]) -> str:
    """Returns advice for an input array of integers whose type must be converted.

    An output array has no such advice.
    """
    if not all(name.startswith("int") for name in names):
        return ""
    x = found.owner.owner if isinstance(found.owner, DeviceMemory) else found.owner
    if _is_of(x, "torch"):
        return f" (use {argument}.to(torch.{names[1]}))"
    return f" (use {argument}.astype(numpy.{names[1]}))" if hasattr(x, "astype") else ""


def list_of_arrays(argument: str, values: Any) -> list[Any]:
    """Returns the arrays of an argument that takes several.

    A single array is refused: its rows would count as arrays.
    """
    kind = type(values)
    if isinstance(values, (list, tuple)):
        return list(values)
    if _is_array(values):
        library = kind.__module__.partition(".")[0]
        name = kind.__name__ if library == "builtins" else f"{library}.{kind.__name__}"
        raise TypeError(f"{argument} is one {name}; expected a list of arrays")
    if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{argument} is a {kind.__name__}; expected a list of arrays")
    return list(values)


def _is_array(x: Any) -> bool:
    """Whether describe() accepts objects of this class. It looks only at the class, so that nothing is computed."""
    if any(hasattr(type(x), name) for name in ("__array_interface__", "__cuda_array_interface__", "__dlpack__")):
        return True
    try:
        memoryview(x)
    except (TypeError, BufferError):
        return False
    return True


def _cuda_interface(x: Any, argument: str) -> Optional[dict[str, Any]]:
    """Returns the __cuda_array_interface__ of an array, or None if DLPack is to be used.

    Some libraries cannot express all their types in this interface, but can do so in DLPack.
    """
    try:
        interface: dict[str, Any] = x.__cuda_array_interface__
    except AttributeError:
        return None
    except Exception as error:
        if hasattr(x, "__dlpack__"):
            return None
        raise ValueError(f"{argument} does not export its memory: {error}") from error
    if interface.get("mask") is not None:
        raise ValueError(f"{argument} has a mask; expected an array without a mask")
    if _dlpack_instead(x, interface):
        return None
    return interface


def _dlpack_instead(x: Any, interface: dict[str, Any]) -> bool:
    """Whether DLPack is needed: the interface gives the type as plain bytes, as that of torch does for bfloat16."""
    return str(interface["typestr"])[1:2] == "V" and hasattr(x, "__dlpack__")


def _device_number(x: Any) -> Optional[int]:
    """Returns the number of the GPU that holds an array, or None if the array does not say it."""
    if not hasattr(x, "__dlpack_device__"):
        return None
    kind, number = x.__dlpack_device__()
    return int(number) if kind == DLPACK_CUDA else None


def _on_device(found: Buffer, argument: str, device: Optional[int], stream: Optional[int]) -> Buffer:
    return replace(found, owner=DeviceMemory(found.owner, argument, device, stream), device=device or 0)


def _element(argument: str, found: Optional[Dtype], spelled: str, size: int, wanted: Any) -> Dtype:
    """Returns the element type: wanted if it is given, otherwise found.

    found is None if the array's type is unknown; spelled is the name of that type, and size its size in bytes.
    """
    if wanted is None:
        if found is None and spelled.startswith(("str", "bytes")):
            raise TypeError(f"{argument} contains strings; expected numeric elements: {_dtypes.ACCEPTED}")
        if found is None:
            hint = "; for 16- and 8-bit floats stored as integers, pass dtype=" if size in (1, 2) else ""
            raise TypeError(f"{argument} has element type {spelled}; expected one of {_dtypes.ACCEPTED}{hint}")
        return found
    code = _dtypes.dtype_code(wanted)
    if _dtypes.BYTES[code] != size:
        raise TypeError(
            f"dtype {code.name.lower()} has {_dtypes.BYTES[code]} bytes; expected {size}, the size of an element of {argument}"
        )
    return code


def _writable(argument: str, readonly: bool, wanted: Writable) -> None:
    if readonly and wanted:
        usual = _WRITABLE_ADVICE.get(argument.partition("[")[0], "copy it, or pass out= if the call has this argument")
        advice = wanted if isinstance(wanted, str) else usual
        raise ValueError(f"{argument} is read-only; expected a writable array ({advice})")


# Advice in the error for an array that must be written but is read-only, such as every array of JAX. The keys are names
# of arguments.
_WRITABLE_ADVICE = {
    "out": "such as numpy.empty()",
    "residual_out": "such as numpy.empty(), or None for a new one",
    "returned": "such as numpy.empty()",
    "grad_weights": "such as numpy.empty()",
    "params": "or pass sync=False, which does not write into params",
    "grad": "or call accumulate(i, grad), then mark_ready(i), and read the result from grad_view(i)",
}


def _contiguous(x: Any, argument: str, shape: Any, strides: Any, size: int, writable: Writable) -> None:
    """Raises ValueError unless the elements are consecutive. strides are in bytes; None means consecutive."""
    expected = size
    for extent, stride in zip(reversed(shape), reversed(strides or ())):
        if extent > 1 and stride != expected and 0 not in shape:
            raise _not_contiguous(x, argument, shape, strides, size, writable)
        expected *= extent


def _not_contiguous(x: Any, argument: str, shape: Any, strides: Any, size: int, writable: Writable) -> ValueError:
    """Returns the error for an array whose elements are not consecutive, with advice on what to pass instead.

    For an array that is only read, the advice is a copy. For an array that is written, it is a view of the same memory
    with another order of dimensions, for example for channels_last: a copy would get the result instead of the array.
    """
    found = f"{argument} is not contiguous (shape {tuple(shape)}, strides {tuple(strides)})"
    found += "; expected consecutive elements"
    library = "cupy" if _is_of(x, "cupy") else "numpy"
    copy = f"{argument}.contiguous()" if hasattr(x, "contiguous") else f"{library}.ascontiguousarray({argument})"
    if not writable:
        return ValueError(f"{found} (a copy: {copy})")
    order = _order_in_memory(shape, strides, size)
    if order is None:
        return ValueError(f"{found}; the call writes into the array, so pass a copy ({copy}) and then copy the result back")
    view = f"{argument}.{'permute' if hasattr(x, 'permute') else 'transpose'}({', '.join(map(str, order))})"
    return ValueError(f"{found}; the call writes into the array, so pass the view {view}, whose elements are consecutive, and not a copy")


def _order_in_memory(shape: Any, strides: Any, size: int) -> Optional[list[int]]:
    """Returns the order of dimensions in which the elements are consecutive; None if no order has that property."""
    order, expected = sorted(range(len(shape)), key=lambda i: (-strides[i], -shape[i])), size
    for i in reversed(order):
        if shape[i] > 1 and strides[i] != expected:
            return None
        expected *= shape[i]
    return order


def _from_interface(
    x: Any, interface: dict[str, Any], argument: str, dtype: Any, writable: Writable, device: int
) -> Buffer:
    """Reads __array_interface__ or __cuda_array_interface__, which differ only in the kind of memory."""
    typestr = interface["typestr"]  # such as "<f4"; "|O" and "<M8[s]" are refused
    order, kind, size = typestr[0], typestr[1], int(typestr[2:].partition("[")[0] or 0)
    shape = tuple(interface["shape"])
    data = interface.get("data")
    if data is None:
        return _from_memoryview(memoryview(x), argument, dtype, writable)
    _native(argument, order, size)
    _contiguous(x, argument, shape, interface.get("strides"), size, writable)
    _writable(argument, data[1], writable)
    name = str(getattr(getattr(x, "dtype", None), "name", typestr))
    found = _dtypes.KINDS.get((kind, size), _dtypes.NAMES.get(name))
    code = _element(argument, found, name, size, dtype)
    return Buffer(data[0], math.prod(shape), code, shape, x, device)


def _native(argument: str, order: str, size: int) -> None:
    swapped = ">" if sys.byteorder == "little" else "<"
    if size > 1 and (order == swapped or order == "!" and swapped == ">"):
        raise ValueError(f"{argument} is byte-swapped; expected elements in the byte order of this machine")


_FORMATS = {letter: "i" for letter in "bhilqn"} | {letter: "u" for letter in "BHILQN"}
_FORMATS |= {"e": "f", "f": "f", "d": "f", "?": "b"}


def _from_memoryview(view: memoryview, argument: str, dtype: Any, writable: Writable) -> Buffer:
    """Describes the memory of a view. The view becomes the owner, so that a bytearray cannot be resized meanwhile."""
    _native(argument, view.format[0], view.itemsize)
    if not view.c_contiguous:
        raise _not_contiguous(view, argument, view.shape, view.strides, view.itemsize, writable)
    _writable(argument, view.readonly, writable)
    letter = view.format.lstrip("@=<>!")
    found = _dtypes.KINDS.get((_FORMATS.get(letter, ""), view.itemsize))
    code = _element(argument, found, f"'{view.format}'", view.itemsize, dtype)
    shape = tuple(view.shape or ())
    return Buffer(_address(view), math.prod(shape), code, shape, view, -1)


class _PyBuffer(ctypes.Structure):
    """Py_buffer; its layout is the same in every CPython 3."""

    buf: Optional[int]

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


def _address(view: memoryview) -> int:
    """Returns the address of a view. Unlike from_buffer(), it also accepts a read-only or empty view."""
    raw = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(raw), 0)
    address = raw.buf or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(raw))
    return address


class _DLTensor(ctypes.Structure):
    """DLTensor, the description of an array in both of DLPack's capsules."""

    data: Optional[int]
    device_type: int
    device_id: int
    ndim: int
    code: int
    bits: int
    lanes: int
    shape: Any
    strides: Any
    byte_offset: int

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
    ]


_DLPACK_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
# Float types by DLPack's type code and number of bits.
_DLPACK_FLOATS = {(4, 16): Dtype.BF16, (10, 8): Dtype.F8E4M3, (12, 8): Dtype.F8E5M2}


class _DLVersioned(ctypes.Structure):
    """The start of DLManagedTensorVersioned, of DLPack 1.0 and newer. A DLTensor follows it."""

    flags: int

    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    ]


DLPACK_READ_ONLY = 1  # a bit of DLManagedTensorVersioned.flags
DLPACK_VERSION = (1, 0)  # the version requested; older producers return a capsule without flags
# Libraries whose arrays are immutable. Their capsules do not always set the read-only flag.
_IMMUTABLE = ("jax", "tensorflow")


def _read_capsule(capsule: Any) -> tuple[_DLTensor, bool]:
    """Returns the array of a capsule, and whether it is read-only."""
    get, is_valid = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_IsValid
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    is_valid.restype, is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
    if not is_valid(capsule, b"dltensor_versioned"):
        return _DLTensor.from_address(int(get(capsule, b"dltensor"))), False
    address = int(get(capsule, b"dltensor_versioned"))
    flags = _DLVersioned.from_address(address).flags
    return _DLTensor.from_address(address + ctypes.sizeof(_DLVersioned)), bool(flags & DLPACK_READ_ONLY)


def _is_of(x: Any, *libraries: str) -> bool:
    """Whether the type of an array belongs to one of these libraries. The libraries need not be imported."""
    return any(kind.__module__.startswith(libraries) for kind in type(x).__mro__)


def _from_dlpack(x: Any, argument: str, dtype: Any, writable: Writable) -> Buffer:
    """Describes an array by its DLPack capsule. The capsule is released again, so x remains the owner."""
    capsule = _capsule(x, argument)
    tensor, readonly = _read_capsule(capsule)
    _writable(argument, readonly or _is_of(x, *_IMMUTABLE), writable)
    size = tensor.bits * tensor.lanes // 8
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = [stride * size for stride in tensor.strides[: tensor.ndim]] if tensor.strides else None
    _contiguous(x, argument, shape, strides, size, writable)
    found = _dtypes.KINDS.get((_DLPACK_KINDS.get(tensor.code, ""), size)) if tensor.lanes == 1 else None
    found = _DLPACK_FLOATS.get((tensor.code, tensor.bits), found)
    spelled = str(getattr(x, "dtype", f"DLPack code {tensor.code}, {tensor.bits} bits"))
    code = _element(argument, found, spelled, size, dtype)
    address = (tensor.data or 0) + tensor.byte_offset
    buffer = Buffer(address, math.prod(shape), code, shape, x, -1)
    if tensor.device_type in DLPACK_CPU:
        return buffer
    if tensor.device_type not in (DLPACK_CUDA, DLPACK_CUDA_MANAGED):
        raise ValueError(f"{argument} is on a device of DLPack's device type {tensor.device_type}; expected the host or CUDA")
    return _on_device(buffer, argument, tensor.device_id if tensor.device_type == DLPACK_CUDA else None, None)


def _ask(x: Any, **options: Any) -> Any:
    """Calls __dlpack__(). Producers older than DLPack 1.0 do not accept max_version."""
    try:
        return x.__dlpack__(max_version=DLPACK_VERSION, **options)
    except TypeError:
        return x.__dlpack__(**options)


def _capsule(x: Any, argument: str) -> Any:
    """Returns the DLPack capsule of an array. Elements on a GPU must be ready on the stream of the operation."""
    try:
        if not hasattr(x, "__dlpack_device__") or x.__dlpack_device__()[0] not in (DLPACK_CUDA, DLPACK_CUDA_MANAGED):
            return _ask(x)
        return _ask(x, stream=DLPACK_NO_STREAM if _is_of(x, "torch", "cupy") else DLPACK_DEFAULT_STREAM)
    except Exception as error:
        raise _no_export(x, argument, error) from error


def _no_export(x: Any, argument: str, error: Exception) -> ValueError:
    hint = f"; pass {argument}.detach(), which shares its memory" if getattr(x, "requires_grad", False) is True else ""
    if getattr(x, "is_sparse", False) is True:
        marking = f"mark_sparse(i, {argument}._indices()[0], {argument}._values())"
        hint = f"; it is a sparse tensor: create BucketReducer(..., sparse=[i]) and call {marking}"
    return ValueError(f"{argument} does not export its memory: {error}{hint}")
