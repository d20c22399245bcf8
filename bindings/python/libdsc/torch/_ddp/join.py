"""Ranks with different numbers of batches: model.join(), and PyTorch's Join with several objects."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Iterator

import torch
from torch.distributed.algorithms.join import JoinHook

from libdsc import Join, errors

if TYPE_CHECKING:
    from libdsc.torch._ddp.module import DistributedDataParallel


def expect_known_graph(ddp: DistributedDataParallel) -> None:
    """Raises where the first iteration of a static graph would be inside a join."""
    static = ddp._reduction.static
    if static is not None and not static.is_known:
        raise errors.StateError("join: static_graph is True; expected one iteration on all ranks before join()")


@contextlib.contextmanager
def joined(ddp: DistributedDataParallel, by_initial: bool, early_end: bool) -> Iterator[None]:
    """Shadows the iterations of the ranks that still have batches, then copies the model of the rank that came last."""
    expect_known_graph(ddp)
    ddp._synced_buffers.register()
    join = Join(
        ddp._reduction.gradients.reducer,
        divide_by_initial_world_size=by_initial,
        throw_on_early_termination=early_end,
    )
    ddp._synced_buffers.is_joined = True
    try:
        with join:
            yield
    finally:
        ddp._synced_buffers.is_joined = False
    if join.last_rank is not None:
        ddp._broadcast_state(join.last_rank)


def agree(ddp: DistributedDataParallel, number: int) -> int:
    """The largest number of all ranks. Collective."""
    largest = torch.tensor([number], dtype=torch.int64)
    ddp._comm.all_reduce(largest, op="max")
    return int(largest[0])


class ShadowHook(JoinHook):  # type: ignore[misc]
    """What PyTorch's Join calls on a rank that has run out of batches, once for each iteration of the others."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self._ddp = ddp

    def main_hook(self) -> None:
        """Does what the others do in one forward pass and its backward pass, with zeros."""
        ddp, gradients = self._ddp, self._ddp._reduction.gradients
        if ddp._will_sync_buffers():
            ddp._synced_buffers.broadcast(agree(ddp, -1))
        ddp.require_forward_param_sync = agree(ddp, 0) == 1
        if not ddp.require_forward_param_sync:
            return
        gradients.begin()
        for bucket in gradients.reducer.buckets:
            for i in bucket:
                gradients.mark_absent(i)
        gradients.finish()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Copies the model of the rank that came last to all."""
        ddp = self._ddp
        ddp._broadcast_state(agree(ddp, ddp._comm.rank if is_last_joiner else -1))
