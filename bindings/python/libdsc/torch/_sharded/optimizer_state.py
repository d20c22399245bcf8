"""The state of optimizers: here of parts of parameters; in a state_dict() without sharding, of whole parameters."""

from __future__ import annotations

from typing import Any, Mapping

import torch

from libdsc._communicator import Communicator
from libdsc.torch._sharded.agreement import expect_same, on_all
from libdsc.torch._sharded.parts import Parts
from libdsc.torch._sharded.whole import Wholes

_NUMBERS = (bool, int, float, complex, str, type(None))


def whole(comm: Communicator, parts: Parts, optimizer: Any) -> dict[str, Any]:
    """Returns the optimizer.state_dict() that it would have without sharding. Collective."""
    op = "optimizer_state_dict"
    state: dict[str, Any] = on_all(comm, op, lambda: checked(parts, optimizer))
    owners = indices(parts, optimizer)
    expect_same(comm, op, "the state of the optimizer", kinds(state))
    result = {**state, "state": {number: _own(values) for number, values in state["state"].items()}}
    wholes = Wholes(comm, parts)
    for key in keys(state):
        of_params = {owners[number]: values[key] for number, values in state["state"].items() if is_part(key, values.get(key))}
        found = wholes.gather(of_params)
        for values, i in ((values, owners[number]) for number, values in result["state"].items()):
            if i in found:
                values[key] = found[i]
    return result


def load(comm: Communicator, parts: Parts, optimizer: Any, state: Mapping[str, Any]) -> None:
    """Loads this rank's parts of an optimizer.state_dict() without sharding. Collective."""
    cut = on_all(comm, "load_optimizer_state_dict", lambda: _cut(parts, optimizer, state))
    optimizer.load_state_dict(cut)


def indices(parts: Parts, optimizer: Any) -> list[int]:
    """Returns the index of each parameter, in the order of the numbers in the optimizer's state_dict()."""
    known = {param: i for i, param in enumerate(parts.params)}
    found: list[int] = []
    for number, group in enumerate(optimizer.param_groups):
        for param in group["params"]:
            if param not in known:
                raise ValueError(f"group {number} of the optimizer has a parameter that the module does not have; expected parameters of the module only")
            found.append(known[param])
    return found


def is_part(key: str, value: Any) -> bool:
    """Whether a value of the state has an element for each element of a part. "step" is a number, as in torch."""
    return isinstance(value, torch.Tensor) and value.dim() == 1 and key != "step"


def keys(state: Mapping[str, Any]) -> list[str]:
    """Returns the names of the values that have the elements of parts."""
    found = {key: None for values in state["state"].values() for key, value in values.items() if is_part(key, value)}
    return sorted(found)


def kinds(state: Mapping[str, Any]) -> Any:
    """Returns a description of the state that must be equal on all ranks, so that their parts fit together."""
    return {
        number: {key: str(value.dtype) if is_part(key, value) else None for key, value in values.items()}
        for number, values in state["state"].items()
    }


def checked(parts: Parts, optimizer: Any) -> dict[str, Any]:
    """Returns the optimizer's state_dict(), after a check that each value is a number or has the elements of a part."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer is a {type(optimizer).__name__}; expected a torch.optim.Optimizer")
    owners, state = indices(parts, optimizer), optimizer.state_dict()
    for number, values in state["state"].items():
        i = owners[number]
        for key, value in values.items():
            what = f"the optimizer's {key!r} of {parts.names[i]}"
            if is_part(key, value):
                if value.shape != parts.data[i].shape:
                    raise ValueError(f"{what} has {value.numel()} elements; expected {parts.data[i].numel()}, the elements of this rank's part")
            elif isinstance(value, torch.Tensor):
                if value.dim():
                    raise ValueError(
                        f"{what} has shape {tuple(value.shape)}; expected one number, or one for each element of this rank's part; "
                        "only optimizers that update every element separately, such as Adam, are supported"
                    )
            elif not isinstance(value, _NUMBERS):
                raise TypeError(f"{what} is a {type(value).__name__}; expected a tensor or a number")
    return state  # type: ignore[no-any-return]


def _own(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copies the numbers of a state, because an optimizer that loads it would otherwise share them."""
    return {key: value.clone() if isinstance(value, torch.Tensor) and not is_part(key, value) else value for key, value in values.items()}


def _cut(parts: Parts, optimizer: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state with this rank's parts in place of whole tensors."""
    owners = indices(parts, optimizer)
    result: dict[str, Any] = {**state, "state": {}}
    whole_keys = _whole_keys(parts, owners, state)
    for number, values in state["state"].items():
        if not 0 <= number < len(owners):
            raise ValueError(f"the state has parameter {number}; expected 0 to {len(owners) - 1}, the parameters of the optimizer")
        i = owners[number]
        result["state"][number] = {key: _part(parts, i, key, value, whole_keys) for key, value in values.items()}
    return result


def _whole_keys(parts: Parts, owners: list[int], state: Mapping[str, Any]) -> set[str]:
    """Returns the names of values that have the shape of their parameter.

    Scalar parameters are ignored: they fit all.
    """
    found = set()
    for number, values in state["state"].items():
        if 0 <= number < len(owners):
            shape = parts.shapes[owners[number]]
            found |= {key for key, value in values.items() if len(shape) and getattr(value, "shape", None) == shape}
    return found


def _part(parts: Parts, i: int, key: str, value: Any, whole_keys: set[str]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if key in whole_keys and value.shape == parts.shapes[i]:
        return parts.part_of(i, value)
    if key == "step" or value.dim() == 0:
        return value.clone()
    raise ValueError(
        f"the state has {key!r} of {parts.names[i]} with shape {tuple(value.shape)}; expected one number, or "
        f"{tuple(parts.shapes[i])}, the shape of the parameter"
    )
