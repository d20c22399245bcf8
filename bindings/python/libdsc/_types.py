"""Types of arguments, for type checkers such as mypy and pyright. They are not needed at run time."""

from __future__ import annotations

import array
import ctypes
import mmap
from typing import Any, Literal, Protocol, Sequence, Union

from libdsc._ops import ReduceOp
from libdsc._raw import Average, Backend, Op, Rebuild


class HasArrayInterface(Protocol):
    """An array of numpy, or similar."""

    @property
    def __array_interface__(self) -> Any:
        """Address, shape and type of the array."""


class HasCudaArrayInterface(Protocol):
    """An array on a GPU, of CuPy, numba and others."""

    @property
    def __cuda_array_interface__(self) -> Any:
        """Address, shape and type of the array."""


class HasDLPack(Protocol):
    """An array of torch, JAX, TensorFlow and others."""

    def __dlpack__(self) -> Any:
        """Returns a DLPack capsule."""


BuiltIn = Union[bytes, bytearray, memoryview, mmap.mmap, "array.array[Any]", "ctypes.Array[Any]"]
Array = Union[HasArrayInterface, HasCudaArrayInterface, HasDLPack, BuiltIn]
Arrays = Union[Array, Sequence[Array]]
OpName = Literal["sum", "prod", "max", "min", "avg", "band", "bor", "bxor"]
OpLike = Union[OpName, Op, ReduceOp]
AverageLike = Union[Literal["pre", "post", "none", "pytorch"], Average]
ShardAverageLike = Union[Literal["pre", "post", "none"], Average]
RebuildLike = Union[Literal["never", "once", "repeated"], Rebuild]
LayoutName = Literal["unit", "megatron", "deepspeed", "partitioned"]
Stage = Literal[1, 2, 3]
NonfiniteName = Literal["off", "count", "fail"]
BackendLike = Union[Literal["auto", "host", "device", "inter_host", "nccl", "gloo"], Backend]
