"""Divides the parameters of a module into units that are gathered together, each with the submodule that uses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

import torch

from libdsc.torch._modules.params import Named

_NEVER_CALLED = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList, torch.nn.ParameterDict)
# MultiheadAttention has a submodule of this class. It reads the submodule's weight, but never calls the submodule.
_CALLED_BY_NOBODY = torch.nn.modules.linear.NonDynamicallyQuantizableLinear

Selection = Union[type, Iterable[type], Callable[[Any], bool]]


@dataclass(frozen=True)
class UnitPlan:
    """The parameters in the order of their units, each once.

    Attributes:
        named: names and parameters.
        starts: the index of the first parameter of each unit.
        modules: the submodule of each unit; the whole module for the root unit, which is the first one.
        root: the number of the root unit; None if every parameter belongs to another unit.
    """

    named: list[Named]
    starts: list[int]
    modules: list[Any]
    root: Optional[int]

    def inside(self, unit: int) -> Iterator[Any]:
        """Yields the modules of a unit, without those of nested units."""
        others = {each for each in self.modules if each is not self.modules[unit]}
        waiting = [self.modules[unit]]
        while waiting:
            module = waiting.pop()
            yield module
            waiting.extend(each for each in module.children() if each not in others)

    def unit_of(self) -> list[int]:
        """Returns the unit of each parameter."""
        ends = [*self.starts[1:], len(self.named)]
        return [unit for unit, (start, end) in enumerate(zip(self.starts, ends)) for _ in range(start, end)]


def plan(module: Any, named: list[Named], selection: Selection) -> UnitPlan:
    """Assigns each parameter to the only unit that uses it, or to the root unit."""
    names = {param: name for name, param in named}
    owners: dict[Any, Any] = {}
    for owner, param in _uses(module, module, _predicate(module, selection)):
        owners[param] = owner if owners.get(param, owner) is owner else module
    members: dict[Any, list[Named]] = {module: []}
    for each in module.modules():
        for param in each.parameters(recurse=False):
            if param in names:
                members.setdefault(owners[param], []).append((names.pop(param), param))
    ordered: list[Named] = []
    starts, modules = [], []
    for owner, of_owner in members.items():
        if of_owner:
            starts.append(len(ordered))
            modules.append(owner)
            ordered.extend(of_owner)
    return UnitPlan(ordered, starts, modules, 0 if members[module] else None)


def _uses(module: Any, owner: Any, is_unit: Callable[[Any], bool]) -> Iterable[tuple[Any, Any]]:
    """Yields pairs of a unit and a parameter that it uses.

    Parameters of nested units are assigned to the nested unit.
    """
    for param in module._parameters.values():
        if param is not None:
            yield owner, param
    for child in module._modules.values():
        if child is not None:
            yield from _uses(child, child if _is_called(child, is_unit) else owner, is_unit)


def _is_called(child: Any, is_unit: Callable[[Any], bool]) -> bool:
    """Whether a submodule is a unit, which is gathered when the submodule is called."""
    if not is_unit(child) or isinstance(child, _CALLED_BY_NOBODY):
        return False
    if isinstance(child, _NEVER_CALLED):
        raise ValueError(f"units selects a {type(child).__name__}, which is never called itself; select the modules inside it")
    return True


def _predicate(module: Any, selection: Any) -> Callable[[Any], bool]:
    if isinstance(selection, type):
        selection = (selection,)
    if callable(selection) and not isinstance(selection, torch.nn.Module):
        return _checked(selection)
    if isinstance(selection, (str, torch.nn.Module)) or not isinstance(selection, Iterable):
        raise TypeError(f"units is {_shown(selection)}; expected classes of modules, or a function that takes a module and returns a bool")
    classes = tuple(selection)
    for one in classes:
        if not isinstance(one, type) or not issubclass(one, torch.nn.Module):
            raise TypeError(f"units contains {_shown(one)}; expected subclasses of torch.nn.Module only, or units to be one function")
        if not any(isinstance(each, one) for each in module.modules()):
            raise ValueError(f"units contains {one.__name__}, but the module has no submodule of this class")
    return lambda each: isinstance(each, classes)


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, torch.nn.Module) else repr(value)


def _checked(select: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def is_unit(module: Any) -> bool:
        answer = select(module)
        if not isinstance(answer, bool):
            raise TypeError(f"units returned {answer!r} for a {type(module).__name__}; expected a bool")
        return answer

    return is_unit
