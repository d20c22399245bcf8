"""Follows forward and backward passes: gathers units before they are used, and reduces gradients."""

from __future__ import annotations

import functools
from typing import Any, Optional

import torch

from libdsc import errors
from libdsc._communicator import Communicator
from libdsc.torch._modules import outputs
from libdsc.torch._sharded.gathered import Gathered
from libdsc.torch._sharded.gradients import Gradients
from libdsc.torch._sharded.saved import SavedTensors


class Passes:
    """Follows the passes of one module.

    Attributes:
        syncs: whether backward passes of the following forward passes reduce gradients.
        reads: whether all parameters are whole, in a full_parameters() block.
        is_closed: whether close() was called; hooks then do nothing.
    """

    def __init__(self, comm: Communicator, gathered: Gathered, gradients: Gradients) -> None:
        self.gathered, self.gradients, self._comm = gathered, gradients, comm
        self.syncs, self.reads, self.is_closed = True, False, False
        # Whether a backward pass ended early, with only a part of its gradients reduced.
        self._is_broken = False
        # The number of calls of the module in progress: it may call itself.
        self._depth = 0
        self._depths = [0] * len(gathered.members)
        self._graph_task: Optional[int] = None  # the backward pass for whose end a callback was queued
        self._reduces = False  # whether this backward pass reduces gradients
        # For each unit, the parameters whose gradients are still missing in this backward pass.
        self._left: list[set[int]] = []
        self._saved = SavedTensors(gathered.unit_at, lambda: self.syncs, self._needs)

    def expect_open(self, op: str) -> None:
        """Raises StateError after close(), or after a backward pass that ended early."""
        if self.is_closed:
            raise errors.StateError(f"{op}: this ShardedDataParallel was closed")
        if self._is_broken:
            raise errors.StateError(
                f"{op}: an earlier backward pass ended with an exception, so the sums lack some gradients; "
                "create a new ShardedDataParallel on all ranks"
            )

    def rest(self, op: str) -> None:
        """Restores the state between passes, also after a pass that ended with an exception. Raises inside a pass."""
        self.expect_open(op)
        if self._depth or _in_backward():
            raise errors.StateError(f"{op}: a pass of this module is running; expected this call between passes")
        if self.reads:
            raise errors.StateError(f"{op}: called inside a full_parameters() block; expected this call after the block")
        self._is_broken = self._graph_task is not None and self.gradients.is_open and self._left != self._trained()
        self._graph_task = None
        self._depths = [0] * len(self._depths)
        self.gathered.release_all()
        self.gathered.parts.show_grads()
        self.expect_open(op)

    def refresh(self, op: str) -> None:
        """Makes later gathers use what the program has written to the parts. Collective."""
        self.rest(op)
        self.gathered.parts.take_data()
        if not self.gradients.is_open:  # otherwise this is between micro-batches of one step
            self.gathered.refresh()
            self.gradients.needs_step = False

    def _is_read(self) -> bool:
        """Whether this call is in a full_parameters() block. Raises there if gradients are enabled."""
        self.expect_open("forward")
        if self.reads and torch.is_grad_enabled():
            raise errors.StateError("forward: gradients are enabled in a full_parameters() block; expected torch.no_grad() inside the block")
        return self.reads

    def forward_begins(self) -> None:
        """Hook: the module is called."""
        if self._is_read():
            return
        if _in_backward():
            self._follow(self.syncs)
        elif self._depth == 0:
            self.refresh("forward")
            self.gradients.expect_as_wrapped()
        self.gathered.make_whole(self.gathered.root)
        if self._depth == 0 and self.gathered.releases and torch.is_grad_enabled() and not _in_backward():
            self._saved.begin()
        self._depth += 1

    def forward_ends(self, output: Any) -> None:
        """Hook: the module returns, or raises."""
        if self.reads or self._depth == 0:
            return
        self._depth -= 1
        if self._depth:
            return
        self._saved.end()
        found = self._followed(self.gathered.root, output)
        if not _in_backward():
            try:
                if self.gathered.root is not None:
                    self.gathered.expect_copies(self.gathered.root, output)
            finally:
                self.gathered.release_all(self.gathered.root if found else None)
            self.gathered.parts.expect_unwritten("forward")
        for tensor in found:
            tensor.register_hook(functools.partial(self._arrived, self.syncs))
        _expect_tensors(output)

    def interrupted(self) -> None:
        """Cleans up a forward pass that Ctrl-C has ended, because torch then calls no hooks."""
        self._saved.end()
        self._depth = 0
        self._depths = [0] * len(self._depths)
        if not _in_backward():
            self.gathered.parts.show_parts()  # the units are released by the next call between passes

    def unit_begins(self, unit: int) -> None:
        """Hook: the submodule of a unit is called."""
        if self._is_read():
            return
        if _in_backward():
            self._follow(self.syncs)
        elif self._depth == 0:
            first = self.gathered.parts.names[self.gathered.members[unit][0]]
            raise errors.StateError(
                f"forward: the submodule with {first} was called outside a forward pass of the whole module, so its parameters "
                "are not gathered; call the wrapper, or call the submodule inside `with model.full_parameters():`"
            )
        self.gathered.make_whole(unit)
        self._depths[unit] += 1

    def unit_ends(self, unit: int, output: Any) -> None:
        """Hook: the submodule of a unit returns, or raises."""
        if self.reads or self._depths[unit] == 0:
            return
        self._depths[unit] -= 1
        if self._depths[unit]:
            return
        if not _in_backward() and self.gathered.releases:
            try:
                self.gathered.expect_copies(unit, output)
            finally:
                self.gathered.release(unit)
            self.gathered.parts.expect_unwritten("forward")
        for tensor in self._followed(unit, output):
            tensor.register_hook(functools.partial(self._arrived_at, unit))
        _expect_tensors(output)

    def _followed(self, unit: Optional[int], output: Any) -> list[Any]:
        """Returns the tensors through which a backward pass enters a unit."""
        if not torch.is_grad_enabled():
            return []
        return outputs.differentiable(output) + ([] if unit is None else self.gathered.kept(unit))

    def _arrived(self, syncs: bool, _grad: Any) -> None:
        """Hook: a backward pass has reached an output of the module.

        It runs before other hooks, in the outermost pass.
        """
        self.expect_open("backward")
        _expect_first_order()
        if self._graph_task == torch._C._current_graph_task_id():
            self._reduces = self._reduces or syncs
        else:
            self._graph_task = None
            self._follow(syncs)

    def _arrived_at(self, unit: int, _grad: Any) -> None:
        """Hook: a backward pass has reached an output of a unit."""
        self.expect_open("backward")
        _expect_first_order()
        self._follow(self.syncs)
        for other in self.gathered.live() if self.gathered.releases else []:
            # A unit is released only when the pass has reached another unit. Until then, a node of its graph might
            # still read a detached view of a weight.
            if other not in (unit, self.gathered.root) and not self._left[other] and not self._depths[other]:
                self.gathered.release(other)
        self.gathered.make_whole(unit)

    def _needs(self, unit: int, syncs: bool) -> None:
        """Hook: a backward pass reads parameters of a unit that the graph has saved."""
        self.expect_open("backward")
        if not _in_backward():
            raise errors.StateError("a parameter that was saved for the backward pass is read outside a backward pass, when its memory may already be released")
        self._follow(syncs)
        if unit not in self.gathered.live():
            self.gathered.make_whole(unit)

    def _trained(self) -> list[set[int]]:
        return [set(members) & set(self.gathered.parts.trained) for members in self.gathered.members]

    def _follow(self, syncs: bool) -> None:
        """Prepares for a backward pass, and queues a callback for its end, unless this was already done."""
        if self._graph_task is not None:
            return
        self._graph_task, self._reduces = torch._C._current_graph_task_id(), syncs
        self._left = self._trained()
        self.gathered.parts.hide_grads()
        ended = functools.partial(self._backward_ended, self._graph_task)
        torch.autograd.Variable._execution_engine.queue_callback(ended)
        if self.gathered.releases:
            self.gathered.make_whole(self.gathered.root)
        else:
            self.gathered.make_all_whole()

    def gradient_ready(self, i: int) -> None:
        """Hook: the gradient of a parameter is in p.grad."""
        if self.is_closed:
            return
        parts = self.gathered.parts
        if self._graph_task is None:
            raise errors.StateError(
                f"backward: {parts.names[i]} got a gradient that does not come from an output of a forward pass of the module; expected "
                "losses that use outputs only, because between passes a parameter contains only this rank's part"
            )
        left = self._left[parts.units[i]]
        if i not in left:
            raise errors.StateError(
                f"backward: {parts.names[i]} got a second gradient in one pass, as with a module that is used in several reentrant "
                "checkpoints; expected use_reentrant=False"
            )
        left.remove(i)
        self.gradients.take(i, self._reduces)

    def _backward_ended(self, graph_task: int) -> None:
        if self._graph_task != graph_task or self.is_closed:
            return
        try:
            if self._reduces and self.gradients.is_open:
                self.gradients.finish()
        finally:
            self._graph_task = None
            self.gathered.release_all()
            self.gathered.parts.show_grads()

    def close(self) -> None:
        """Makes p.data this rank's parts, and closes the sharded object. Local."""
        if self.is_closed:
            return
        self.is_closed = True
        self.gathered.parts.show_parts()
        self.gathered.parts.show_grads()
        self.gathered.parts.sharded.close()


def _expect_tensors(output: Any) -> None:
    """Raises TypeError if the output may hide tensors: a backward pass from them would use released parameters."""
    if torch.is_grad_enabled() and outputs.is_opaque(output):
        raise TypeError(
            f"forward: a module returns a {type(output).__name__}; expected tensors, or lists, tuples, dicts or dataclasses of tensors"
        )


def _expect_first_order() -> None:
    """Raises StateError if the backward pass creates a graph, because that would be used after units are released."""
    if torch.is_grad_enabled():
        raise errors.StateError("backward: create_graph is True; expected False, because parameters are whole only during passes")


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)
