"""What the graph of a forward pass saves: whole parameters among it are gathered again when a backward pass reads them.

By then a unit and its memory may have been released. Examples are a frozen weight around another unit, or a second loss
that the program has kept. torch's check for in-place changes does not see tensors that hooks have packed, so this
module does the check.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

import torch


class Saved(NamedTuple):
    """A tensor of the graph."""

    tensor: Any
    version: int
    unit: Optional[int]  # whose memory it is; None: the program's
    syncs: bool  # the pass reduces gradients


class SavedTensors:
    """The hooks of one module's passes.

    Args:
        unit_of: the unit in whose memory a storage is, by its address; None: in none.
        syncs: whether the pass that runs reduces gradients.
        needs: has a unit gathered in a backward pass.
    """

    def __init__(self, unit_of: Callable[[int], Optional[int]], syncs: Callable[[], bool], needs: Callable[[int, bool], None]) -> None:
        self._unit_of, self._syncs, self._needs = unit_of, syncs, needs
        self._outer: Any = None
        self._hooks: Any = None

    def begin(self) -> None:
        """Takes what is saved from now on in this thread; what the program's own hooks would take goes on to them."""
        self._outer = torch._C._autograd._top_saved_tensors_default_hooks(False)
        self._hooks = torch.autograd.graph.saved_tensors_hooks(*_pair(self, self._outer))
        self._hooks.__enter__()

    def end(self) -> None:
        """Takes nothing from now on."""
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.__exit__()

    def pack(self, tensor: Any) -> Saved:
        """What the graph keeps in the place of a tensor."""
        unit = self._unit_of(tensor.untyped_storage().data_ptr()) if tensor.layout == torch.strided else None
        return Saved(tensor, tensor._version, unit, self._syncs())

    def unpack(self, saved: Saved) -> Any:
        """The tensor, whose memory is there."""
        if saved.unit is not None:
            self._needs(saved.unit, saved.syncs)
        if saved.tensor._version != saved.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of shape "
                f"{tuple(saved.tensor.shape)} is at version {saved.tensor._version}; expected version {saved.version}"
            )
        return saved.tensor


def _pair(own: SavedTensors, outer: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The hooks, before those of the program."""
    if outer is None:
        return own.pack, own.unpack
    pack_outer, unpack_outer = outer

    def pack(tensor: Any) -> Any:
        saved = own.pack(tensor)
        return saved if saved.unit is not None else pack_outer(tensor)

    def unpack(packed: Any) -> Any:
        return own.unpack(packed) if isinstance(packed, Saved) else unpack_outer(packed)

    return pack, unpack
