"""Names of element types and reduce operations, and the type codes of array interfaces."""

from __future__ import annotations

import difflib
import math
import sys
from typing import Any, Optional, Sequence

from libdsc._arguments import brief, integer
from libdsc._raw import Average, Backend, BufferSync, Dtype, LogLevel, NonfiniteCheck, Norm, Op, Rebuild
from libdsc._raw import ShardLayout as _Layouts

BYTES = {
    Dtype.I8: 1,
    Dtype.U8: 1,
    Dtype.I32: 4,
    Dtype.U32: 4,
    Dtype.I64: 8,
    Dtype.U64: 8,
    Dtype.F16: 2,
    Dtype.F32: 4,
    Dtype.F64: 8,
    Dtype.BF16: 2,
    Dtype.F8E4M3: 1,
    Dtype.F8E5M2: 1,
    Dtype.BOOL: 1,
}

# Names that numpy, torch, JAX and ml_dtypes use for element types, in addition to the library's own short names.
NAMES = {dtype.name.lower(): dtype for dtype in Dtype} | {
    "int8": Dtype.I8,
    "uint8": Dtype.U8,
    "int32": Dtype.I32,
    "uint32": Dtype.U32,
    "int64": Dtype.I64,
    "uint64": Dtype.U64,
    "float16": Dtype.F16,
    "float32": Dtype.F32,
    "float64": Dtype.F64,
    "bfloat16": Dtype.BF16,
    "float8_e4m3fn": Dtype.F8E4M3,
    "float8_e5m2": Dtype.F8E5M2,
    "half": Dtype.F16,
    "float": Dtype.F32,
    "double": Dtype.F64,
}

# Element types by (kind, bytes) of array interfaces. The kinds are: i signed, u unsigned, f float, b bool.
KINDS = {
    ("i", 1): Dtype.I8,
    ("u", 1): Dtype.U8,
    ("i", 4): Dtype.I32,
    ("u", 4): Dtype.U32,
    ("i", 8): Dtype.I64,
    ("u", 8): Dtype.U64,
    ("f", 2): Dtype.F16,
    ("f", 4): Dtype.F32,
    ("f", 8): Dtype.F64,
    ("b", 1): Dtype.BOOL,
}

# numpy's type codes. 16- and 8-bit floats that numpy lacks are stored as unsigned integers of the same size.
NUMPY = {dtype: f"{kind}{size}" for (kind, size), dtype in KINDS.items()} | {
    Dtype.BOOL: "?",
    Dtype.BF16: "u2",
    Dtype.F8E4M3: "u1",
    Dtype.F8E5M2: "u1",
}

ACCEPTED = (
    "bool, int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16, float8_e4m3fn, float8_e5m2"
)


def _choice(what: str, kind: Any, value: Any) -> int:
    """Returns the number of an enumerator. The caller may pass its name, the enumerator or the number."""
    if isinstance(value, str):
        try:
            return int(kind[value.upper()])
        except KeyError:
            pass
        names = [member.name.lower() for member in kind]
        near = _nearest_choice(value.lower(), names)
        hint = f'; did you mean "{near}"?' if near else ""
        raise ValueError(f"""{what} is "{value}"; expected one of {', '.join(f'"{name}"' for name in names)}{hint}""")
    if isinstance(value, int) and not isinstance(value, bool):
        return integer(what, value)
    raise TypeError(f"{what} is a {type(value).__name__}; expected a name or a number")


_PYTORCH = {"nccl": "device", "gloo": "inter_host"}

# Names of other libraries, with the names that this library uses instead.
_ELSEWHERE = {
    "mean": "avg",
    "average": "avg",
    "add": "sum",
    "product": "prod",
    "mul": "prod",
    "maximum": "max",
    "minimum": "min",
    "and": "band",
    "or": "bor",
    "xor": "bxor",
    **_PYTORCH,
}


def _nearest_choice(value: str, names: list[str]) -> str:
    """Returns the known name that the caller probably meant, or ""."""
    known = {name: name for name in names} | {other: name for other, name in _ELSEWHERE.items() if name in names}
    return next((known[near] for near in difflib.get_close_matches(value, list(known), 1, 0.7)), "")


def op_code(op: Any) -> int:
    """Returns the number of a reduce operation: "sum", "prod", "max", "min", "avg", "band", "bor" or "bxor"."""
    if not isinstance(op, (str, Op)):
        expected = "the name of an operation, such as \"sum\", or the result of premul() or user_op()"
        raise TypeError(f"op is {brief(op)}; expected {expected}")
    return _choice("op", Op, op)


def backend_code(backend: Any) -> int:
    """Returns the number of a backend. Names are "auto", "host", "device", "inter_host" and those of PyTorch."""
    return _choice("backend", Backend, _PYTORCH.get(backend.lower(), backend) if isinstance(backend, str) else backend)


def average_code(average: Any) -> int:
    """Returns the number of an averaging rule: "pre", "post", "none" or "pytorch"."""
    return _choice("average", Average, average)


def rebuild_code(rebuild: Any) -> int:
    """Returns the number of a rule for when buckets are rebuilt: "never", "once" or "repeated"."""
    return _choice("rebuild", Rebuild, rebuild)


def buffer_sync_code(how: Any) -> int:
    """Returns the number of a method that makes buffers equal on all ranks: "broadcast" or "mean"."""
    return _choice("how", BufferSync, how)


def norm_code(norm: Any) -> int:
    """Returns the number of a norm: "two" or "max", or PyTorch's norm_type 2 or infinity."""
    if not isinstance(norm, (str, Norm)):
        known = {2: Norm.TWO, math.inf: Norm.MAX}.get(norm) if isinstance(norm, (int, float)) else None
        if known is None:
            raise ValueError(f"""norm is {brief(norm)}; expected "two" or 2, or "max" or infinity""")
        norm = known
    return _choice("norm", Norm, norm)


def shard_layout_code(layout: Any) -> int:
    """Returns the number of a layout of shards: "unit", "megatron", "deepspeed" or "partitioned"."""
    return _choice("layout", _Layouts, layout)


def nonfinite_code(check: Any) -> int:
    """Returns the number of a reaction to NaN and infinity: "off", "count" or "fail"."""
    return _choice("nonfinite_check", NonfiniteCheck, check)


def level_code(level: Any) -> int:
    """Returns the number of a log level: "off", "error", "warn", "info" or "debug"."""
    return _choice("level", LogLevel, level)


def dtype_code(dtype: Any, argument: str = "dtype") -> Dtype:
    """Returns the element type for a name, an enumerator, or a type object of numpy, torch or ml_dtypes."""
    if isinstance(dtype, Dtype):
        return dtype
    name = dtype if isinstance(dtype, str) else _name_of(dtype)
    found = NAMES.get(name.lower()) or _with_order(name)
    if found is None:
        near = _nearest(name) if isinstance(dtype, str) else ""
        hint = f'; did you mean "{near}"?' if near else ""
        raise TypeError(f"{argument} is {name!r}; expected one of {ACCEPTED}{hint}")
    return found


def dtype_codes(dtypes: Sequence[Any]) -> list[int]:
    """Returns the element types of the argument dtypes. An error names the entry that is wrong."""
    return [dtype_code(dtype, f"dtypes[{index}]") for index, dtype in enumerate(dtypes)]


def long_name(code: int) -> str:
    """Returns the name of an element type in numpy, torch and ml_dtypes."""
    return next(name for name in ACCEPTED.split(", ") if NAMES[name] == code)


def _with_order(name: str) -> Optional[Dtype]:
    """Returns the element type for a name of numpy.dtype.str, such as "<f4", or None."""
    return _of_bytes(name[1:]) if name[:1] in ("=", "|", "<" if sys.byteorder == "little" else ">") else None


def _of_bytes(name: str) -> Optional[Dtype]:
    return KINDS.get((name[0], int(name[1]))) if len(name) == 2 and name[1] in "1248" else None


def _nearest(name: str) -> str:
    """Returns the accepted name that the caller probably meant, or "".

    numpy's short names count bytes, but this library's count bits: "i8" is int64 in numpy and int8 here. A name such as
    "f4" is therefore only suggested, never accepted.
    """
    names, meant = ACCEPTED.split(", "), _of_bytes(name)
    if meant is not None:
        return next(long for long in names if NAMES.get(long) == meant)
    return next(iter(difflib.get_close_matches(name.lower(), names, 1, 0.85)), "")


def numpy_type(code: int, own: Any = None) -> Any:
    """Returns an argument for numpy.dtype(): own if that is a type of numpy, otherwise the code of the element type."""
    if hasattr(own, "itemsize") and hasattr(own, "newbyteorder"):
        return own
    return NUMPY[Dtype(code)]


def view_type(code: int, own: Any = None) -> Any:
    """Same as numpy_type(), but uses ml_dtypes for 16- and 8-bit floats if the program has imported ml_dtypes."""
    given = numpy_type(code, own)
    ml_dtypes = sys.modules.get("ml_dtypes")
    if given is own or ml_dtypes is None or code not in _ML_NAMES:
        return given
    return getattr(ml_dtypes, _ML_NAMES[Dtype(code)])


_ML_NAMES = {Dtype.BF16: "bfloat16", Dtype.F8E4M3: "float8_e4m3fn", Dtype.F8E5M2: "float8_e5m2"}


def _name_of(dtype: Any) -> str:
    """Returns the name of a type object.

    numpy.dtype has .name, numpy.float32 has __name__, torch.float32 only str().
    """
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]
    return str(name)
