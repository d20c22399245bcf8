"""Checkpoints of sharded parameters: one file per shard, a JSON header and raw arrays, in the form of safetensors."""

from __future__ import annotations

import json
import os
import pathlib
import reprlib
import secrets
import struct
from typing import Any, Mapping, Optional, Sequence

from libdsc import _buffers, _dtypes, _raw, _streams, errors
from libdsc._buffers import DeviceMemory
from libdsc._memory import DeviceArray, numpy_module
from libdsc._shard_plan import ShardRules, shard_copies
from libdsc._tensors import DATA_S

_FORMAT = 1
_NAMES = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "u2", "I64": "i8", "I32": "i4", "U64": "u8", "U32": "u4", "U16": "u2",
          "I16": "i2", "U8": "u1", "I8": "i1", "BOOL": "?", "F8_E4M3": "u1", "F8_E5M2": "u1"}  # fmt: skip
_OWN_NAMES = {"F8E4M3": "F8_E4M3", "F8E5M2": "F8_E5M2"}


def _file(folder: pathlib.Path, shard: int, shards: int) -> pathlib.Path:
    return folder / f"shard-{shard:05}-of-{shards:05}.safetensors"


def _layout(sharded: Any) -> dict[str, Any]:
    """What another number of ranks needs to find its elements."""
    return {
        "format": _FORMAT,
        "shards": sharded.n_shards,
        "rules": {**sharded._rules._asdict(), "alone": list(sharded._rules.alone), "units": _plain(sharded._rules.units)},
        "names": sharded._paths,
        "shapes": [list(shape) for shape in sharded._shapes],
        "dtypes": [_raw.Dtype(code).name for code in sharded._codes],
    }


def _plain(units: Any) -> Any:
    return None if units is None else [int(unit) for unit in units]


def save(sharded: Any, folder: Any, state: Mapping[str, Sequence[Any]], stream: Optional[int]) -> None:
    """Writes the file of this rank's shard, unless a rank of another copy does."""
    shards = sharded.shards
    why: Optional[Exception] = None
    try:
        _check_state(state, shards)
    except Exception as error:
        why = error
    number = _agree(sharded._world, "save", why, {"state": sorted(map(str, state)), "names": sharded._paths})
    if sharded._world.rank >= sharded.n_shards:
        return
    bucket_types = _bucket_types(sharded)
    arrays = {f"params.{b}": (bucket_types[b], _on_host(shard.params, stream)[1]) for b, shard in enumerate(shards)}
    for name, of_name in state.items():
        for b, array in enumerate(of_name):
            arrays[f"{name}.{b}"] = _on_host(array, stream)
    header: dict[str, Any] = {"__metadata__": {"libdsc": json.dumps({**_layout(sharded), "save": number})}}
    at = 0
    for name, (dtype, array) in arrays.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    _write(_file(pathlib.Path(folder), sharded.shard, sharded.n_shards), header, [array for _, array in arrays.values()])


def _on_host(x: Any, stream: Optional[int]) -> tuple[str, Any]:
    """The type's name and the elements of an array, which are copied from a GPU."""
    numpy = numpy_module()
    if stream is not None:  # there are arrays on a GPU
        address, count, code, owner = _buffers.locate(x, "state", None, False)
        if isinstance(owner, DeviceMemory):
            copied = numpy.empty(count, _dtypes.numpy_type(code))
            _streams.copy(copied.ctypes.data, address, copied.nbytes, stream, DATA_S)
            return _name_of(code), copied
    array = numpy.ascontiguousarray(x)
    return _type_name(array.dtype), array


def _count(x: Any) -> int:
    """The elements of an array of numpy, or of one on a GPU; -1: it is none."""
    shape = getattr(x, "shape", None)
    return -1 if shape is None else int(numpy_module().prod(shape))


def _check_state(state: Mapping[str, Sequence[Any]], shards: Sequence[Any]) -> None:
    if not isinstance(state, Mapping):
        raise TypeError(f"state is a {type(state).__name__}; expected lists of arrays by name")
    for name, arrays in state.items():
        if not isinstance(name, str) or not isinstance(arrays, (list, tuple)):
            raise TypeError(f"state has {name!r}: {type(arrays).__name__}; expected a text and a list of arrays, one per bucket")
        if name == "params" or not name or "." in name:
            raise ValueError(f"state has the name {name!r}; expected one without a point, other than 'params'")
        sizes, expected = [_count(array) for array in arrays], [shard.count for shard in shards]
        if sizes != expected:
            raise ValueError(f"state[{name!r}] has arrays of {sizes} elements; expected {expected}, as the shards")


def _bucket_types(sharded: Any) -> list[str]:
    """Of parameters, whose arrays may stand for types that numpy does not know."""
    types = {}
    for one in sharded._bucket_codes():
        types[one[0]] = _name_of(one[1])
    return [types[b] for b in range(len(types))]


def _name_of(code: int) -> str:
    name = _raw.Dtype(code).name
    return _OWN_NAMES.get(name, name)


def _type_name(dtype: Any) -> str:
    text = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}.get(dtype.name)
    if text is None:
        spelled = "?" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize}"
        text = next((name for name, known in _NAMES.items() if known == spelled and not name.startswith(("BF", "F8_"))), None)
    if text is None:
        raise ValueError(f"state has an array of {dtype}; expected numbers")
    return text


def _write(path: pathlib.Path, header: Mapping[str, Any], arrays: Sequence[Any]) -> None:
    """A file is there whole or not at all."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for array in arrays:
            file.write(memoryview(array.reshape(-1).view("u1")))
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


class _Shards:
    """The files of a checkpoint, mapped and not read."""

    def __init__(self, folder: pathlib.Path) -> None:
        paths = sorted(folder.glob("shard-*-of-*.safetensors"))
        if not paths:
            raise FileNotFoundError(f"{folder} has no file shard-*-of-*.safetensors")
        self.headers: dict[int, Any] = {}
        self.data: dict[int, Any] = {}
        self.layout: Any = None
        self.save: Any = None
        self.folder = folder
        for path in paths:
            shard, header, data = self._open(path)
            self.headers[shard], self.data[shard] = header, data
        missing = [shard for shard in range(self.layout["shards"]) if shard not in self.headers]
        if missing or len(self.headers) != self.layout["shards"]:
            raise ValueError(f"{folder} has {len(self.headers)} shards; expected {self.layout['shards']} of one checkpoint")

    def _open(self, path: pathlib.Path) -> tuple[int, Any, Any]:
        data = numpy_module().memmap(path, "u1", "r")
        try:
            (size,) = struct.unpack("<Q", data[:8].tobytes())
            header = json.loads(data[8 : 8 + size].tobytes())
            layout = json.loads(header.pop("__metadata__")["libdsc"])
            save = layout.pop("save")
        except (KeyError, ValueError, struct.error) as error:
            raise ValueError(f"{path} is no shard of libdsc: {error}") from None
        if layout["format"] != _FORMAT:
            raise ValueError(f"{path} has format {layout['format']}; expected {_FORMAT}")
        if self.layout is not None and layout != self.layout:
            raise ValueError(f"{path} has another layout than the files before; expected shards of one checkpoint")
        if self.save not in (None, save):
            raise ValueError(f"{path} was written by another save than the files before; a save may have ended before its last file")
        held, expected = data.size - 8 - size, max((one["data_offsets"][1] for one in header.values()), default=0)
        if held < expected:
            raise ValueError(f"{path} holds arrays of {held} bytes; expected {expected}: it was cut")
        self.layout, self.save = layout, save
        return int(path.name.split("-")[1]), header, data[8 + size :]

    def names(self) -> list[str]:
        """Of what is saved for every bucket: "params", and the optimizer's."""
        return sorted({name.rsplit(".", 1)[0] for name in self.headers[0]})

    def array(self, shard: int, name: str, bucket: int) -> Any:
        entry = self.headers[shard][f"{name}.{bucket}"]
        begin, end = entry["data_offsets"]
        return self.data[shard][begin:end].view(_NAMES[entry["dtype"]])

    def kind(self, shard: int, name: str, bucket: int) -> Any:
        """The type of the array that was saved, which is that of array() where numpy knows it."""
        dtype = self.headers[shard][f"{name}.{bucket}"]["dtype"]
        code = next((code for code in _raw.Dtype if _name_of(code) == dtype), None)
        return numpy_module().dtype(_NAMES[dtype] if code is None else _dtypes.view_type(code))


def load(sharded: Any, folder: Any, stream: Optional[int]) -> dict[str, list[Any]]:
    """Fills the parameter shards; returns the optimizer's arrays for them. Only what this rank needs is read."""
    why: Optional[Exception] = None
    try:
        saved = _Shards(pathlib.Path(folder))
        state, arrays, copies = _prepare(sharded, saved)
    except Exception as error:
        why = error
    _agree(sharded._world, "load", why, {} if why else {"checkpoint": saved.save})
    for target, source in copies:
        target[:] = source.view(target.dtype)
    for to, array in zip([shard.params for shard in sharded.shards], arrays):
        if isinstance(to, DeviceArray):
            _streams.copy(to.__cuda_array_interface__["data"][0], array.ctypes.data, array.nbytes, stream, DATA_S)
    return state


def _agree(world: Any, what: str, why: Optional[Exception], same: Mapping[str, Any]) -> str:
    """Raises on all ranks if one has a reason why it cannot go on, or something that must be the same is not.

    Returns a number that is rank 0's, and new.
    """
    told = world.all_gather_object((None if why is None else f"{type(why).__name__}: {why}", same, secrets.token_hex(8)))
    if why is not None:
        raise why
    for rank, (reason, of_rank, _) in enumerate(told):
        verb = "read" if what == "load" else "write"
        text = f"{what}: rank {rank} cannot {verb} the checkpoint, so no rank does: {reason}"
        if reason is None:
            key = next((key for key in same if of_rank.get(key) != told[0][1].get(key)), None)
            if key is None:
                continue
            text = f"{what}: rank {rank} has {key} {reprlib.repr(of_rank[key])}; expected {reprlib.repr(told[0][1][key])} as on rank 0"
        raise errors.InvalidArgError(text, rank=rank, ranks=(rank,), op=f"sharded_{what}")
    return str(told[0][2])


def _prepare(sharded: Any, saved: _Shards) -> tuple[dict[str, list[Any]], list[Any], list[tuple[Any, Any]]]:
    """The optimizer's arrays, still empty, those of the parameters, and what is copied to where; nothing is changed."""
    numpy = numpy_module()
    own = _layout(sharded)
    for key in ("names", "shapes", "dtypes"):
        if saved.layout[key] != own[key]:
            if len(saved.layout[key]) != len(own[key]):
                raise ValueError(f"the checkpoint has {len(saved.layout[key])} parameters; expected {len(own[key])}")
            i = next(i for i, one in enumerate(own[key]) if saved.layout[key][i] != one)
            of = "" if key == "names" else f" of {own['names'][i]!r}"
            raise ValueError(f"the checkpoint has {key} {saved.layout[key][i]!r}{of}; expected {own[key][i]!r}")
    numels = [int(numpy.prod(shape)) for shape in own["shapes"]]
    rules = ShardRules(**saved.layout["rules"])

    def parts_of(shard: int) -> Sequence[Any]:
        return shard_copies(numels, own["dtypes"], saved.layout["shards"], rules, sharded.n_shards, sharded._rules, shard)

    parts = parts_of(sharded.shard)
    state: dict[str, list[Any]] = {}
    copies: list[tuple[Any, Any]] = []
    params = [shard.params for shard in sharded.shards]
    # Of parameters on a GPU, which are written at the end; padding is zero.
    filled = [numpy.zeros(x.shape, x.dtype) if isinstance(x, DeviceArray) else x for x in params]
    for name in saved.names():
        if name != "params":
            kinds = _kinds(saved, name, parts)
            for shard in range(sharded.n_shards if len(kinds) < len(params) else 0):  # of which this rank has nothing
                kinds = {**_kinds(saved, name, parts_of(shard)), **kinds}
            state[name] = [numpy.zeros(shard.count, kinds.get(b)) for b, shard in enumerate(sharded.shards)]
        arrays = filled if name == "params" else state[name]
        targets = [array.view(_raw_bits(array)) for array in arrays]
        for part in parts:
            source = saved.array(part.from_shard, name, part.from_bucket)[part.from_start : part.from_start + part.count]
            target = targets[part.to_bucket][part.to_start : part.to_start + part.count]
            if source.nbytes != target.nbytes:
                where = f"{name!r} of shard {part.from_shard}, bucket {part.from_bucket}"
                raise ValueError(f"{saved.folder} is damaged: {where} has {source.nbytes} bytes of {target.nbytes}")
            copies.append((target, source))
    return state, filled, copies


def _kinds(saved: _Shards, name: str, parts: Sequence[Any]) -> dict[int, Any]:
    """The types of the optimizer's arrays by bucket, which are those of what goes into them."""
    kinds: dict[int, Any] = {}
    for part in parts:
        kind = saved.kind(part.from_shard, name, part.from_bucket)
        if kinds.setdefault(part.to_bucket, kind) != kind:
            raise ValueError(f"state {name!r} has {kinds[part.to_bucket]} and {kind} for one bucket; expected one type")
    return kinds


def _raw_bits(array: Any) -> str:
    """A type of numpy's own for any element, so that bits are copied as they are."""
    return str(array.dtype.str) if array.dtype.kind in "fiub" else f"u{array.dtype.itemsize}"
