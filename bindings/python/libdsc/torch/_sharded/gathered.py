"""Keeps track of the gathered units, whose parameters are whole."""

from __future__ import annotations

from typing import Any, Optional

from libdsc import errors
from libdsc.torch._modules.outputs import kept, tensors_in
from libdsc.torch._sharded.parts import Parts
from libdsc.torch._sharded.units import UnitPlan


class Gathered:
    """Gathers and releases units. In stages 1 and 2 whole parameters stay in memory, and only p.data is switched.

    Attributes:
        parts: this rank's parts of the parameters.
        members: the parameters of each unit.
        root: the unit that is gathered from the forward pass to the end of the backward pass; None: no such unit.
        releases: whether units are released, as in stage 3.
    """

    def __init__(self, parts: Parts, plan: UnitPlan, stage: int) -> None:
        self.parts, self.root, self.releases = parts, plan.root, stage == 3
        self.members = parts.sharded.units
        self._modules = plan.modules
        self._inside = [list(plan.inside(unit)) for unit in range(len(plan.modules))]
        # The parameters by the address of their memory, for all units that were gathered at least once.
        self._owners: dict[int, int] = {}
        self._live: list[int] = []  # the gathered units, in the order in which they were gathered

    def make_whole(self, unit: Optional[int]) -> None:
        """Gathers a unit, waits for it, and makes p.data of its parameters whole."""
        if unit is None:
            return
        if unit not in self._live:
            if self.releases:
                self.parts.sharded.unshard(unit)
            self._live.append(unit)
            self.parts.sharded.wait(unit)
            if self.releases and self.parts.storage(self.members[unit][0]) not in self._owners:
                self._owners.update({self.parts.storage(i): i for i in self.members[unit]})
        for i in self.members[unit]:
            self.parts.show_whole(i)

    def make_all_whole(self) -> None:
        """Gathers all units and makes their parameters whole."""
        for unit in range(len(self.members)):
            self.make_whole(unit)

    def unit_at(self, address: int) -> Optional[int]:
        """Returns the unit whose memory begins at an address, in stage 3."""
        i = self._owners.get(address)
        return None if i is None else self.parts.units[i]

    def live(self) -> list[int]:
        """Returns the gathered units."""
        return list(self._live)

    def release(self, unit: int) -> None:
        """Makes p.data of a unit's parameters this rank's parts. In stage 3, also releases the unit's memory."""
        for i in self.members[unit]:
            self.parts.show_part(i)
        if self.releases and unit in self._live:
            self._live.remove(unit)
            self.parts.sharded.reshard(unit)

    def release_all(self, but: Optional[int] = None) -> None:
        """Makes p.data of all parameters this rank's parts, and releases all units except one."""
        self.parts.show_parts()
        for unit in self.live():
            if unit != but:
                self.release(unit)

    def refresh(self, changed: bool = True) -> None:
        """Makes later gathers use what the program has written to the parts. Collective."""
        self.release_all()
        self.parts.sharded.step_done(changed)
        self.forget()

    def forget(self) -> None:
        """Notes that the library has released all units, as it does when parameters change."""
        self._live.clear()

    def kept(self, unit: int) -> list[Any]:
        """Returns tensors of the graph that modules of a unit keep in attributes."""
        return kept(self._inside[unit])

    def expect_copies(self, unit: int, output: Any) -> None:
        """Raises StateError if a unit returns memory of its parameters, because that memory is released after the pass.
        """
        if not self.releases:
            return
        for tensor in tensors_in(output):
            i = self._owners.get(tensor.untyped_storage().data_ptr()) if tensor.numel() else None
            if i is not None and self.parts.units[i] == unit:
                raise errors.StateError(
                    f"forward: a {type(self._modules[unit]).__name__} returns memory of its parameter {self.parts.names[i]}, which is "
                    "released after the call; expected a copy, such as weight.clone()"
                )
