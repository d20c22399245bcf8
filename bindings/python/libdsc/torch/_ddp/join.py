"""Training with different numbers of batches on the ranks: model.join(), and PyTorch's Join with several objects."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Iterator

import torch
from torch.distributed.algorithms.join import JoinHook

from libdsc import Join, errors

if TYPE_CHECKING:
    from libdsc.torch._ddp.module import DistributedDataParallel


def expect_known_graph(ddp: DistributedDataParallel) -> None:
    """Raises StateError if the first iteration of a static graph would be inside a join."""
    static = ddp._reduction.static
    if static is not None and not static.is_known:
        raise errors.StateError("join: static_graph is True; expected one iteration on all ranks before join()")


@contextlib.contextmanager
def joined(ddp: DistributedDataParallel, by_initial: bool, early_end: bool) -> Iterator[None]:
    """Runs a join: ranks without batches take part in the others' iterations.

    At the end, the model of the rank that finished last is copied to all ranks.
    """
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
    """Returns the largest number of all ranks. Collective."""
    largest = torch.tensor([number], dtype=torch.int64)
    ddp._comm.all_reduce(largest, op="max")
    return int(largest[0])


class ShadowHook(JoinHook):  # type: ignore[misc]
    """The hook that PyTorch's Join calls on a rank without batches, once for each iteration of the other ranks."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self._ddp = ddp

    def main_hook(self) -> None:
        """Takes part, with zeros, in one forward and backward pass of the other ranks."""
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
        """Copies the model of the rank that finished last to all ranks."""
        ddp = self._ddp
        ddp._broadcast_state(agree(ddp, ddp._comm.rank if is_last_joiner else -1))
