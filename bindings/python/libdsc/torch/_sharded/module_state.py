"""The state of a module with whole parameters, as the unwrapped module would have it."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Mapping

import torch

from libdsc import errors
from libdsc._communicator import Communicator
from libdsc.torch._sharded.agreement import on_all
from libdsc.torch._sharded.gathered import Gathered
from libdsc.torch._sharded.passes import Passes


def of(passes: Passes, module: Any, prefix: str) -> dict[str, Any]:
    """Returns state_dict() of the module with copies of its values. Collective."""
    passes.refresh("state_dict")
    state: dict[str, Any]
    with _copies(passes.gathered) as copies:
        state = module.state_dict(prefix=prefix)
    own = {copy.untyped_storage().data_ptr() for copy in copies}
    for key, value in state.items():
        if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() not in own:
            state[key] = value.clone()
    return state


def load(comm: Communicator, passes: Passes, module: Any, state: Mapping[str, Any], strict: bool) -> Any:
    """Takes this rank's parts from whole parameters. If one rank cannot, no rank changes anything. Collective."""
    passes.refresh("load_state_dict")
    expect_reduced(passes, "load_state_dict")
    parts = passes.gathered.parts
    with _copies(passes.gathered) as copies:
        keys = on_all(comm, "load_state_dict", lambda: module.load_state_dict(state, strict=strict))
    with torch.no_grad():
        for i, copy in enumerate(copies):
            parts.data[i].copy_(parts.part_of(i, copy))
    return keys


def expect_reduced(passes: Passes, op: str) -> None:
    """Raises StateError between micro-batches, because new parameters would not be gathered before the next one."""
    if passes.gradients.is_open:
        raise errors.StateError(f"{op}: gradients of no_sync() are not averaged yet; run a backward pass outside no_sync() first")


@contextlib.contextmanager
def _copies(gathered: Gathered) -> Iterator[list[Any]]:
    """Replaces all parameters by copies of the whole parameters, gathered unit by unit. Collective."""
    parts = gathered.parts
    copies: list[Any] = [None] * len(parts.params)
    try:
        for unit, members in enumerate(gathered.members):
            gathered.make_whole(unit)
            for i in members:
                copies[i] = parts.whole(i).clone()
            gathered.release(unit)
        for i, copy in enumerate(copies):
            parts.show_whole(i, copy)
        yield copies
    finally:
        gathered.release_all()
