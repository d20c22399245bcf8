"""Handles the tensors that the graph of a forward pass saves. Saved whole parameters are gathered again for backward.

When a backward pass reads them, their unit may have been released. Examples are a frozen weight around another unit, or
a second loss that the program has kept. torch's check for in-place changes does not see tensors that hooks have packed,
so this module does the check.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

import torch


class Saved(NamedTuple):
    """A tensor that the graph saves."""

    tensor: Any
    version: int
    unit: Optional[int]  # the unit that owns its memory; None: the program owns it
    syncs: bool  # whether the gradients of this forward pass are reduced


class SavedTensors:
    """The hooks for saved tensors in the passes of one module.

    Args:
        unit_of: returns the unit whose memory begins at an address; None: no unit.
        syncs: returns whether the current pass reduces gradients.
        needs: gathers a unit in a backward pass.
    """

    def __init__(self, unit_of: Callable[[int], Optional[int]], syncs: Callable[[], bool], needs: Callable[[int, bool], None]) -> None:
        self._unit_of, self._syncs, self._needs = unit_of, syncs, needs
        self._outer: Any = None
        self._hooks: Any = None

    def begin(self) -> None:
        """Starts to handle tensors that this thread saves. Tensors outside of units go to the program's own hooks."""
        self._outer = torch._C._autograd._top_saved_tensors_default_hooks(False)
        self._hooks = torch.autograd.graph.saved_tensors_hooks(*_pair(self, self._outer))
        self._hooks.__enter__()

    def end(self) -> None:
        """Stops handling saved tensors."""
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.__exit__()

    def pack(self, tensor: Any) -> Saved:
        """Returns the object that the graph keeps in place of a tensor."""
        unit = self._unit_of(tensor.untyped_storage().data_ptr()) if tensor.layout == torch.strided else None
        return Saved(tensor, tensor._version, unit, self._syncs())

    def unpack(self, saved: Saved) -> Any:
        """Returns the saved tensor, after its unit was gathered if necessary."""
        if saved.unit is not None:
            self._needs(saved.unit, saved.syncs)
        if saved.tensor._version != saved.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of shape "
                f"{tuple(saved.tensor.shape)} is at version {saved.tensor._version}; expected version {saved.version}"
            )
        return saved.tensor


def _pair(own: SavedTensors, outer: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Returns the two hooks. They call the program's own hooks for tensors that do not belong to units."""
    if outer is None:
        return own.pack, own.unpack
    pack_outer, unpack_outer = outer

    def pack(tensor: Any) -> Any:
        saved = own.pack(tensor)
        return saved if saved.unit is not None else pack_outer(tensor)

    def unpack(packed: Any) -> Any:
        return own.unpack(packed) if isinstance(packed, Saved) else unpack_outer(packed)

    return pack, unpack
