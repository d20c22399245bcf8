"""Files of a checkpoint of shards: a JSON header and raw arrays, as in safetensors.

All data that is read is checked.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import reprlib
import stat
import struct
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from libdsc import _dtypes, _raw
from libdsc._memory import numpy_module
from libdsc._shard_plan import ShardLayout

FORMAT = 2
_LISTS = ("names", "shapes", "dtypes")
_NAMES = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "u2", "I64": "i8", "I32": "i4", "U64": "u8", "U32": "u4", "U16": "u2",
          "I16": "i2", "U8": "u1", "I8": "i1", "BOOL": "?", "F8_E4M3": "u1", "F8_E5M2": "u1"}  # fmt: skip
_OWN_NAMES = {"F8E4M3": "F8_E4M3", "F8E5M2": "F8_E5M2"}


def path_of(folder: pathlib.Path, shard: int, shards: int) -> pathlib.Path:
    return folder / f"shard-{shard:05}-of-{shards:05}.safetensors"


def name_of(code: int) -> str:
    """Returns the name of an element type in safetensors."""
    name = _raw.Dtype(code).name
    return _OWN_NAMES.get(name, name)


def name_of_numpy(dtype: Any) -> str:
    """Returns the name in safetensors for a type of numpy or ml_dtypes."""
    text = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}.get(dtype.name)
    if text is None:
        spelled = "?" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize}"
        text = next((name for name, known in _NAMES.items() if known == spelled and not name.startswith(("BF", "F8_"))), None)
    if text is None:
        raise ValueError(f"state has an array of type {dtype}; expected a type that safetensors has, such as float32 or int64")
    return text


def write(path: pathlib.Path, layout: Mapping[str, Any], arrays: Mapping[str, tuple[str, Any]]) -> None:
    """Writes a file to disk. Each array is given as a pair: the name of its type, and the array."""
    header: dict[str, Any] = {"__metadata__": {"libdsc": json.dumps(layout)}}
    at = 0
    for name, (dtype, array) in arrays.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    needed = 8 + len(text) + at
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)))
            file.write(text)
            for _, array in arrays.values():
                file.write(memoryview(array.reshape(-1).view("u1")))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # the error of a full disk does not name the file
        words = f"{error.strerror}; the file needs {needed} bytes"
        raise OSError(error.errno, words, os.path.abspath(error.filename or path)) from None


class _Array(NamedTuple):
    """An array in a file: the name of its type, and where its bytes are in the data."""

    dtype: str
    begin: int
    end: int

    @property
    def elements(self) -> int:
        return (self.end - self.begin) // _item_bytes(self.dtype)


class _File(NamedTuple):
    path: pathlib.Path
    layout: dict[str, Any]
    arrays: dict[str, _Array]
    data: Any


class ShardFiles:
    """All files of a checkpoint. The files are mapped into memory, not read as a whole."""

    def __init__(self, folder: pathlib.Path) -> None:
        paths = sorted(folder.glob("shard-*-of-*.safetensors"))
        if not paths:
            raise FileNotFoundError(f"{folder} contains no file named shard-*-of-*.safetensors")
        files = [_open(path) for path in paths]
        self.layout = files[0].layout
        self.folder = folder
        self.save, self.shards = self.layout["save"], self.layout["shards"]
        for file in files:
            if {**file.layout, "save": 0, "shard": 0} != {**self.layout, "save": 0, "shard": 0}:
                raise ValueError(f"{file.path} has a different layout from {paths[0]}; expected all shards from one checkpoint")
            if file.layout["save"] != self.save:
                raise ValueError(f"{file.path} and {paths[0]} come from different saves; one of the saves may not have been completed")
        if len(files) != self.shards:  # each file is named after its shard, so no shard can occur twice
            expected = (path_of(folder, shard, self.shards) for shard in range(self.shards))
            first = next(path.name for path in expected if path not in paths)
            more = f" and {self.shards - len(files) - 1} more" if self.shards - len(files) > 1 else ""
            raise ValueError(f"{folder} has {len(files)} of {self.shards} shards; missing: {first}{more}")
        self._files = sorted(files, key=lambda file: int(file.layout["shard"]))

    def names(self) -> list[str]:
        """Returns the names of what is saved for every bucket: "params", and the arrays of the optimizer."""
        return sorted({"params"} | {key.rpartition(".")[0] for file in self._files for key in file.arrays})

    def require_arrays(self, plan: ShardLayout) -> None:
        """Raises ValueError if the arrays of a file do not fit the layout of the checkpoint."""
        expected = [(name, b) for name in self.names() for b in range(len(plan.buckets))]
        for file in self._files:
            for name, b in expected:
                _require_array(file, name, b, plan)
            if len(file.arrays) != len(expected):
                known = {f"{name}.{b}" for name, b in expected}
                raise ValueError(f"{file.path} has an unexpected array {min(set(file.arrays) - known)!r}; expected arrays for {len(plan.buckets)} buckets only")

    def array(self, shard: int, name: str, bucket: int) -> Any:
        """Returns an array of a shard. Types that numpy lacks are represented by unsigned integers."""
        file, entry = self._files[shard], self._files[shard].arrays[f"{name}.{bucket}"]
        return file.data[entry.begin : entry.end].view(_NAMES[entry.dtype])

    def kind(self, shard: int, name: str, bucket: int) -> Any:
        """Returns the type of a saved array. It differs from that of array() for types that numpy lacks."""
        dtype = self._files[shard].arrays[f"{name}.{bucket}"].dtype
        code = next((code for code in _raw.Dtype if name_of(code) == dtype), None)
        return numpy_module().dtype(_NAMES[dtype] if code is None else _dtypes.view_type(code))


def _require_array(file: _File, name: str, b: int, plan: ShardLayout) -> None:
    entry, bucket = file.arrays.get(f"{name}.{b}"), plan.buckets[b]
    if entry is None:
        raise ValueError(f"{file.path} has no array {name}.{b}; expected one for each of {len(plan.buckets)} buckets")
    count, dtype = bucket.size // plan.shards, bucket.dtype.upper()
    if entry.elements != count:
        raise ValueError(f"{file.path} has {name}.{b} with {entry.elements} elements; expected {count}")
    if name == "params" and entry.dtype != _OWN_NAMES.get(dtype, dtype):
        raise ValueError(f"{file.path} has {name}.{b} of {entry.dtype}; expected {_OWN_NAMES.get(dtype, dtype)}")


def _open(path: pathlib.Path) -> _File:
    # Without O_NONBLOCK, opening a FIFO would wait until another process opens it for writing.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path} is not a shard of libdsc: it is not a regular file")
        if os.fstat(file.fileno()).st_size < 8:
            raise ValueError(f"{path} is not a shard of libdsc: it has fewer than 8 bytes")
        data = numpy_module().memmap(file, "u1", "r")
    begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
    if begin > data.size:
        raise ValueError(f"{path} is not a shard of libdsc: its first 8 bytes give a header of {begin - 8} bytes, but the whole file has {data.size}")
    try:
        header = json.loads(data[8:begin].tobytes())
        layout = json.loads(header.pop("__metadata__")["libdsc"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a shard of libdsc: {type(error).__name__}: {error}") from None
    _require_layout(path, layout)
    return _File(path, layout, dict(_arrays(path, header, data.size - begin)), data[begin:])


def _require_layout(path: pathlib.Path, layout: Any) -> None:
    """Raises ValueError if this is not a valid layout. Whether the layout fits the parameters is checked later."""
    if not isinstance(layout, dict) or "format" not in layout:
        raise ValueError(f"{path} is not a shard of libdsc: its layout has no 'format'")
    if layout["format"] != FORMAT:
        raise ValueError(f"{path} has format {reprlib.repr(layout['format'])}; expected {FORMAT}")
    shard, shards = layout.get("shard"), layout.get("shards")
    if type(shard) is not int or type(shards) is not int or not 0 <= shard < shards:
        raise ValueError(f"{path} has shard {reprlib.repr(shard)} of {reprlib.repr(shards)}; expected two integers, the first below the second")
    if path.name != path_of(path.parent, shard, shards).name:
        raise ValueError(f"{path} contains shard {shard} of {shards}; expected the file name {path_of(path.parent, shard, shards).name}")
    wrong = [key for key in _LISTS if not isinstance(layout.get(key), list)]
    if wrong or not isinstance(layout.get("save"), str) or not isinstance(layout.get("rules"), dict):
        raise ValueError(f"{path} is not a shard of libdsc: its layout needs 'names', 'shapes' and 'dtypes' (lists), 'rules' (a dict) and 'save' (a string)")


def _arrays(path: pathlib.Path, header: Mapping[str, Any], held: int) -> Iterator[tuple[str, _Array]]:
    """Yields the arrays of a header. They must cover the data without gaps."""
    at = 0
    found = [(name, _entry(path, name, entry)) for name, entry in header.items()]
    for name, array in sorted(found, key=lambda one: (one[1].begin, one[1].end)):
        if array.begin != at:
            raise ValueError(f"{path} has {name} at byte {array.begin} of its data; expected byte {at}, where the previous array ends")
        at = array.end
        yield name, array
    if at != held:
        raise ValueError(f"{path} has {held} bytes of data; expected {at}, the size of its arrays{': the file was truncated' if held < at else ''}")


def _entry(path: pathlib.Path, name: str, entry: Any) -> _Array:
    wrong = ValueError(f"{path} has {reprlib.repr(name)}: {reprlib.repr(entry)}; expected an array named NAME.BUCKET, with dtype, shape and data_offsets")
    if not re.fullmatch(r"[^.]+\.(0|[1-9][0-9]*)", name) or not isinstance(entry, dict):
        raise wrong
    values: list[Any] = [entry.get(key) for key in ("dtype", "shape", "data_offsets")]
    dtype, shape, offsets = values
    if not isinstance(dtype, str) or dtype not in _NAMES or not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        raise wrong
    if offsets[1] - offsets[0] != math.prod(shape) * _item_bytes(dtype):
        text = f"{path} has {name} of {dtype} and shape {reprlib.repr(shape)} in bytes {offsets[0]} to {offsets[1]}; expected as many bytes as its elements have"
        raise ValueError(text)
    return _Array(dtype, offsets[0], offsets[1])


def _sizes(x: Any) -> bool:
    return isinstance(x, list) and all(type(number) is int and number >= 0 for number in x)


def _item_bytes(dtype: str) -> int:
    return 1 if _NAMES[dtype] == "?" else int(_NAMES[dtype][1:])
