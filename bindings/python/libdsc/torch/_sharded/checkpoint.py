"""Checkpoints: each rank writes its shards, and any number of ranks can read them."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Optional

import torch

from libdsc._communicator import Communicator
from libdsc.torch._sharded import optimizer_state
from libdsc.torch._sharded.agreement import expect_same, on_all
from libdsc.torch._sharded.parts import Parts
from libdsc.torch._sharded.passes import Passes
from libdsc.torch._sharded.module_state import expect_reduced
from libdsc.torch._sharded.whole import Wholes

_FORMAT = 1
# This file has everything except shards: buffers, numbers of the optimizer, and memory orders of parameters.
_FILE = "module.pt"
# The prefix of the optimizer's arrays. It keeps their names different from those of the parameters.
_PREFIX = "optimizer_"


def save(comm: Communicator, passes: Passes, module: Any, folder: Any, optimizer: Optional[Any]) -> None:
    """Writes the files. They are complete when this returns. Collective."""
    passes.refresh("save")
    expect_reduced(passes, "save")
    parts = passes.gathered.parts
    state = on_all(comm, "save", lambda: None if optimizer is None else optimizer_state.checked(parts, optimizer))
    arrays: dict[str, list[Any]] = {}
    rest: dict[str, Any] = {"format": _FORMAT, "module": _without_params(parts, module), "optimizer": None}
    rest["orders"] = dict(zip(parts.names, parts.orders))
    if state is not None:
        expect_same(comm, "save", "the state of the optimizer", optimizer_state.kinds(state))
        owners = optimizer_state.indices(parts, optimizer)
        arrays = on_all(comm, "save", lambda: _arrays(Wholes(comm, parts), state, owners))
        numbers = {
            number: {key: str(value.dtype) if optimizer_state.is_part(key, value) else value for key, value in values.items()}
            for number, values in state["state"].items()
        }
        names = [parts.names[i] for i in owners]
        rest["optimizer"] = {"state": numbers, "param_groups": state["param_groups"], "names": names}
    on_all(comm, "save", lambda: _write(pathlib.Path(folder), rest) if comm.rank == 0 else None)
    on_all(comm, "save", lambda: parts.sharded.save(folder, arrays))


def _without_params(parts: Parts, module: Any) -> dict[str, Any]:
    """Returns the entries of the module's state_dict() that are not parameters."""
    params = {id(param) for param in parts.params}
    return {key: value for key, value in module.state_dict(keep_vars=True).items() if id(value) not in params}


def _arrays(wholes: Wholes, state: Any, owners: list[int]) -> dict[str, list[Any]]:
    """Returns the optimizer's arrays for each bucket. bfloat16, which numpy lacks, is saved as unsigned integers."""
    found: dict[str, list[Any]] = {}
    for key in optimizer_state.keys(state):
        if "." in key:
            raise ValueError(f"the state of the optimizer has the name {key!r}; expected a name without a dot")
        values = {owners[number]: of[key] for number, of in state["state"].items() if optimizer_state.is_part(key, of.get(key))}
        found[_PREFIX + key] = []
        for bucket in range(wholes.n_buckets):
            here = {i: value for i, value in values.items() if wholes.bucket_of(i) == bucket}
            types = {value.dtype for value in here.values()} or {torch.float32}
            if len(types) > 1:
                raise ValueError(f"the optimizer's {key!r} has the types {sorted(map(str, types))} for parameters of one type; expected one type")
            shard = wholes.shard_of(bucket, here, types.pop())
            found[_PREFIX + key].append((shard.view(torch.uint16) if shard.dtype == torch.bfloat16 else shard).numpy())
    return found


def _write(folder: pathlib.Path, rest: Any) -> None:
    """Writes a file so that it exists either completely or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{_FILE}.part"
    with open(part, "wb") as file:
        torch.save(rest, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, folder / _FILE)


def load(comm: Communicator, passes: Passes, module: Any, folder: Any, optimizer: Optional[Any]) -> None:
    """Reads the files. If one rank cannot read them, nothing is changed on any rank. Collective."""
    passes.refresh("load")
    expect_reduced(passes, "load")
    parts = passes.gathered.parts
    rest = on_all(comm, "load", lambda: _read(pathlib.Path(folder), parts, module, optimizer))
    arrays = _shards(parts, folder)
    passes.gathered.forget()
    module.load_state_dict(rest["module"], strict=False)
    if optimizer is not None:
        owners = optimizer_state.indices(parts, optimizer)
        state = {
            number: {key: _value(parts, owners[number], arrays.get(_PREFIX + key), value) for key, value in values.items()}
            for number, values in rest["optimizer"]["state"].items()
        }
        optimizer.load_state_dict({"state": state, "param_groups": rest["optimizer"]["param_groups"]})


def _shards(parts: Parts, folder: Any) -> dict[str, list[Any]]:
    try:
        return parts.sharded.load(folder)
    except ValueError as error:
        if "the checkpoint has the name " not in str(error):
            raise
        raise ValueError(f"{error}; expected the same units as at save(), because they determine the order of parameters") from error


def _read(folder: pathlib.Path, parts: Parts, module: Any, optimizer: Optional[Any]) -> Any:
    path = folder / _FILE
    if not path.exists():
        raise FileNotFoundError(f"{folder} has no file {_FILE}; expected a folder that ShardedDataParallel.save() wrote")
    rest = torch.load(path, map_location="cpu", weights_only=True)
    if rest["format"] != _FORMAT:
        raise ValueError(f"{path} has format {rest['format']}; expected {_FORMAT}")
    for name, order in zip(parts.names, parts.orders):
        if rest["orders"].get(name, order) != order:
            raise ValueError(f"{path} has the dimensions of {name} in the order {rest['orders'][name]}; expected {order}, as in this module")
    known, own = sorted(rest["module"]), sorted(_without_params(parts, module))
    if known != own:
        raise ValueError(f"{path} has the buffers {known}; expected {own}, as in this module")
    if optimizer is not None:
        _expect_optimizer(path, rest["optimizer"], [parts.names[i] for i in optimizer_state.indices(parts, optimizer)], optimizer)
    return rest


def _expect_optimizer(path: pathlib.Path, saved: Any, names: list[str], optimizer: Any) -> None:
    if saved is None:
        raise ValueError(f"{path} was saved without an optimizer; expected load(folder) without optimizer")
    if len(saved["names"]) != len(names):
        raise ValueError(f"{path} has an optimizer of {len(saved['names'])} parameters; expected {len(names)}, as in this optimizer")
    for number, (known, name) in enumerate(zip(saved["names"], names)):
        if known != name:
            raise ValueError(f"{path} has an optimizer with {known} as parameter {number}; expected {name}, the parameter of this optimizer")
    sizes, own = ([len(group["params"]) for group in groups] for groups in (saved["param_groups"], optimizer.param_groups))
    if sizes != own:
        raise ValueError(f"{path} has an optimizer with groups of {sizes} parameters; expected {own}, as in this optimizer")


def _value(parts: Parts, i: int, arrays: Optional[list[Any]], value: Any) -> Any:
    """Returns a number unchanged. If the value is the name of a type, returns this rank's part of the saved array."""
    if arrays is None or not isinstance(value, str) or not value.startswith("torch."):
        return value
    bucket, start = parts.places[i]
    count = parts.data[i].numel()
    flat = torch.from_numpy(arrays[bucket].view("u1")).view(getattr(torch, value[len("torch.") :]))
    return flat[start : start + count].clone()
