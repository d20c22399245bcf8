"""Checkpoints of sharded parameters. Each shard has a file. All ranks write, or none; any number of ranks can read."""

from __future__ import annotations

import contextlib
import os
import pathlib
import reprlib
import secrets
from typing import Any, Callable, Mapping, Optional, Sequence

from libdsc import _buffers, _dtypes, _raw, _shard_files, _streams, errors
from libdsc._buffers import DeviceMemory
from libdsc._memory import DeviceArray, numpy_module
from libdsc._reasons import failure_of, is_for_all, reason_of
from libdsc._shard_files import ShardFiles
from libdsc._shard_plan import plan_shards, shard_copies
from libdsc._tensors import DATA_S


def _layout(sharded: Any) -> dict[str, Any]:
    """Returns the description by which any number of ranks can find their elements in the files."""
    return {
        "format": _shard_files.FORMAT,
        "shards": sharded.n_shards,
        "rules": {**sharded._rules._asdict(), "alone": list(sharded._rules.alone), "units": _plain(sharded._rules.units)},
        "names": sharded._paths,
        "shapes": [list(shape) for shape in sharded._shapes],
        "dtypes": [_raw.Dtype(code).name for code in sharded._codes],
    }


def _plain(units: Any) -> Any:
    return None if units is None else [int(unit) for unit in units]


def save(sharded: Any, folder: Any, state: Mapping[str, Sequence[Any]], stream: Optional[int]) -> None:
    """Writes the file of this rank's shard, unless a rank of another copy of the model writes it.

    The files get their final names only after all of them have been written.
    """
    same = {"state": sorted(map(str, state)) if isinstance(state, Mapping) else [], "names": sharded._paths}
    if isinstance(folder, (str, os.PathLike)):
        same["folder"] = os.fspath(folder)
    number = _agree(sharded._world, "save", _failure(_check, folder, state, sharded.shards), same)
    path = _shard_files.path_of(pathlib.Path(folder).absolute(), sharded.shard, sharded.n_shards)
    part, writes = path.with_suffix(".part"), sharded._world.rank < sharded.n_shards
    try:
        _agree(sharded._world, "save", _failure(_write, sharded, part, number, state, stream) if writes else None)
        _agree(sharded._world, "save", _failure(os.replace, part, path) if writes else None)
    finally:
        if writes:
            with contextlib.suppress(OSError):  # the file was renamed, or never created
                part.unlink()


def _failure(function: Callable[..., None], *arguments: Any) -> Optional[Exception]:
    """Calls a function and returns its exception. It is sent to all ranks before any rank raises it."""
    try:
        function(*arguments)
    except Exception as error:
        return error
    return None


def _write(sharded: Any, path: pathlib.Path, number: str, state: Mapping[str, Sequence[Any]], stream: Optional[int]) -> None:
    shards, bucket_types = sharded.shards, _bucket_types(sharded)
    arrays = {f"params.{b}": (bucket_types[b], _on_host(shard.params, stream)[1]) for b, shard in enumerate(shards)}
    for name, of_name in state.items():
        for b, array in enumerate(of_name):
            arrays[f"{name}.{b}"] = _on_host(array, stream)
    _shard_files.write(path, {**_layout(sharded), "shard": sharded.shard, "save": number}, arrays)


def _on_host(x: Any, stream: Optional[int]) -> tuple[str, Any]:
    """Returns the name of an array's type, and its elements. Elements on a GPU are copied to the host."""
    numpy = numpy_module()
    if stream is not None:  # some arrays are on a GPU
        address, count, code, owner = _buffers.locate(x, "state", None, False)
        if isinstance(owner, DeviceMemory):
            copied = numpy.empty(count, _dtypes.numpy_type(code))
            _streams.copy(copied.ctypes.data, address, copied.nbytes, stream, DATA_S)
            return _shard_files.name_of(code), copied
    array = numpy.ascontiguousarray(x)
    return _shard_files.name_of_numpy(array.dtype), array


def _count(x: Any) -> int:
    """Returns the number of elements of an array, on the host or on a GPU; -1 if this is not an array."""
    shape = getattr(x, "shape", None)
    return -1 if shape is None else int(numpy_module().prod(shape))


def _check(folder: Any, state: Mapping[str, Sequence[Any]], shards: Sequence[Any]) -> None:
    os.fspath(folder)
    if not isinstance(state, Mapping):
        raise TypeError(f"state is a {type(state).__name__}; expected a mapping from names to lists of arrays")
    for name, arrays in state.items():
        if not isinstance(name, str) or not isinstance(arrays, (list, tuple)):
            raise TypeError(f"state has {name!r}: {type(arrays).__name__}; expected a string as the name and a list with one array per bucket")
        if name == "params" or not name or "." in name:
            raise ValueError(f"state has the name {name!r}; expected a name that has no dot and is not 'params'")
        sizes, expected = [_count(array) for array in arrays], [shard.count for shard in shards]
        if sizes != expected:
            raise ValueError(f"state[{name!r}] has arrays of {sizes} elements; expected {expected}, like the shards")


def _bucket_types(sharded: Any) -> list[str]:
    """Returns the names of the parameters' types.

    They are not taken from arrays, where integers may stand for floats.
    """
    types = {}
    for one in sharded._bucket_codes():
        types[one[0]] = _shard_files.name_of(one[1])
    return [types[b] for b in range(len(types))]


def load(sharded: Any, folder: Any, stream: Optional[int]) -> dict[str, list[Any]]:
    """Fills the parameter shards, and returns the optimizer's arrays for them. It reads only what this rank needs."""
    why: Optional[Exception] = None
    try:
        saved = ShardFiles(pathlib.Path(folder))
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


def _agree(world: Any, what: str, why: Optional[Exception], same: Mapping[str, Any] = {}) -> str:
    """Raises on all ranks if one rank cannot continue, or if values that must be equal differ between ranks.

    why is the exception of this rank, or None. Returns a new random number of rank 0, as text.
    """
    own = None if why is None else reason_of(why, what == "save")
    told = world.all_gather_object((own, same, secrets.token_hex(8)))
    if why is not None and not is_for_all(own):
        raise why
    for rank, (reason, of_rank, _) in enumerate(told):
        op = f"sharded_{what}"
        if reason is not None:
            verb = "read" if what == "load" else "write"
            text = f"{what}: rank {rank} cannot {verb} the checkpoint, so all ranks stop: {reason.text}"
            raise failure_of(text, reason, rank, op) from why
        key = next((key for key in same if of_rank.get(key) != told[0][1].get(key)), None)
        if key is not None:
            text = f"{what}: rank {rank} has {key} {reprlib.repr(of_rank[key])}; expected {reprlib.repr(told[0][1][key])} as on rank 0"
            raise errors.InvalidArgError(text, rank=rank, ranks=(rank,), op=op)
    return str(told[0][2])


def _prepare(sharded: Any, saved: ShardFiles) -> tuple[dict[str, list[Any]], list[Any], list[tuple[Any, Any]]]:
    """Prepares a load without changing anything.

    Returns the optimizer's arrays, still zero, the arrays of the parameters, and pairs (target, source) to copy.
    """
    numpy = numpy_module()
    own = _layout(sharded)
    for key in ("names", "shapes", "dtypes"):
        if saved.layout[key] != own[key]:
            if len(saved.layout[key]) != len(own[key]):
                raise ValueError(f"the checkpoint has {len(saved.layout[key])} parameters; expected {len(own[key])}")
            i = next(i for i, one in enumerate(own[key]) if saved.layout[key][i] != one)
            of = "" if key == "names" else f" of {own['names'][i]!r}"
            raise ValueError(f"the checkpoint has the {key[:-1]} {saved.layout[key][i]!r}{of}; expected {own[key][i]!r}")
    numels = [int(numpy.prod(shape)) for shape in own["shapes"]]
    rules = saved.layout["rules"]
    try:
        plan = plan_shards(numels, own["dtypes"], saved.shards, **rules)
    except (TypeError, ValueError, errors.DscError) as error:
        raise ValueError(f"{saved.folder} has wrong rules {reprlib.repr(rules)}: {error}") from None
    saved.require_arrays(plan)

    def parts_of(shard: int) -> Sequence[Any]:
        return shard_copies(numels, own["dtypes"], saved.shards, rules, sharded.n_shards, sharded._rules, shard)

    parts = parts_of(sharded.shard)
    state: dict[str, list[Any]] = {}
    copies: list[tuple[Any, Any]] = []
    params = [shard.params for shard in sharded.shards]
    # Parameters on a GPU are first filled on the host, and copied at the end. Their padding is zero.
    filled = [numpy.zeros(x.shape, x.dtype) if isinstance(x, DeviceArray) else x for x in params]
    for name in saved.names():
        if name != "params":
            kinds = _kinds(saved, name, parts)
            # if this rank's shard of a bucket has no elements of parameters, use the type of the bucket's other shards
            for shard in range(sharded.n_shards if len(kinds) < len(params) else 0):
                kinds = {**_kinds(saved, name, parts_of(shard)), **kinds}
            state[name] = [numpy.zeros(shard.count, kinds.get(b)) for b, shard in enumerate(sharded.shards)]
        arrays = filled if name == "params" else state[name]
        targets = [array.view(_raw_bits(array)) for array in arrays]
        for part in parts:
            source = saved.array(part.from_shard, name, part.from_bucket)[part.from_start : part.from_start + part.count]
            target = targets[part.to_bucket][part.to_start : part.to_start + part.count]
            copies.append((target, source))
    return state, filled, copies


def _kinds(saved: ShardFiles, name: str, parts: Sequence[Any]) -> dict[int, Any]:
    """Returns the types of the optimizer's arrays by bucket.

    Each is the type of the saved arrays that are copied to it.
    """
    kinds: dict[int, Any] = {}
    for part in parts:
        kind = saved.kind(part.from_shard, name, part.from_bucket)
        if kinds.setdefault(part.to_bucket, kind) != kind:
            raise ValueError(f"state {name!r} has arrays of types {kinds[part.to_bucket]} and {kind} for one bucket; expected one type per bucket")
    return kinds


def _raw_bits(array: Any) -> str:
    """Returns a plain type of numpy with the size of an element, so that bits are copied unchanged."""
    return str(array.dtype.str) if array.dtype.kind in "fiub" else f"u{array.dtype.itemsize}"
