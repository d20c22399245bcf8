"""Moves gradients from p.grad of whole parameters into the parts."""

from __future__ import annotations

from typing import Any

import torch

from libdsc import errors
from libdsc._communicator import Communicator
from libdsc.torch._sharded.parts import Parts


class Gradients:
    """Marks the gradients of an iteration, and stores averages in p.grad. If no rank uses a parameter, p.grad is kept.

    Attributes:
        is_open: whether an iteration is in progress, to which several backward passes may add.
        needs_step: whether averages were stored since the last known step of the optimizer.
    """

    def __init__(self, comm: Communicator, parts: Parts) -> None:
        self._comm, self._parts = comm, parts
        self._frozen = sorted(set(range(len(parts.params))) - set(parts.trained))
        self.is_open = self.needs_step = False
        self._has_sums = self._adds = False
        self._added: set[int] = set()  # parameters with gradients of this rank that are not marked ready
        self._marked: set[int] = set()
        # Gradients that the program set before the first averages existed.
        self._from_program: dict[int, Any] = {}

    def expect_sums(self, op: str) -> None:
        """Raises StateError if there are no averages."""
        if self.is_open:
            raise errors.StateError(f"{op}: gradients of no_sync() are not averaged yet; run a backward pass outside no_sync() first")
        if not self._has_sums:
            raise errors.StateError(f"{op}: there are no averaged gradients; expected this call after backward()")

    def take(self, i: int, marks: bool) -> None:
        """Takes the gradient out of p.grad.

        With marks it is the last one of the iteration, otherwise it is accumulated.
        """
        parts = self._parts
        grad, parts.params[i].grad = parts.params[i].grad, None
        if grad is None:
            raise errors.StateError(f"{parts.names[i]}: p.grad is None although its gradient is ready; expected hooks that do not remove p.grad")
        if grad.layout != torch.strided:
            raise TypeError(f"{parts.names[i]} has a gradient of layout {grad.layout}; expected a dense gradient")
        if not self.is_open:
            self._begin()
        elif marks and not self._marked and self._adds:
            parts.write_grads()  # the program may have zeroed p.grad meanwhile
        array = parts.in_order(i, grad)
        if marks:
            parts.sharded.mark_ready(i, array)
            self._marked.add(i)
        else:
            parts.sharded.accumulate(i, array)
            self._added.add(i)

    def expect_as_wrapped(self) -> None:
        """Raises StateError if gradients would be lost.

        A parameter may require gradients only since it was wrapped, or a hook of the program may need p.grad.
        """
        parts = self._parts
        for i in self._frozen:
            if parts.params[i].requires_grad:
                raise errors.StateError(
                    f"{parts.names[i]} requires a gradient now, but did not when the module was wrapped; call requires_grad_() before wrapping"
                )
        for i in parts.trained:
            if len(parts.params[i]._post_accumulate_grad_hooks or ()) > 1:
                raise errors.StateError(
                    f"{parts.names[i]} has a hook from register_post_accumulate_grad_hook(), but p.grad is not set when that hook runs; expected "
                    "no such hook: read p.grad, this rank's part, after backward()"
                )

    def _begin(self) -> None:
        """Starts an iteration. The averages will be added to the p.grad of the state between passes."""
        parts = self._parts
        adds = parts.has_grads()
        self._from_program = {}
        if adds and not self._has_sums:
            adds = False
            kept = {i: parts.kept_grad(i) for i in parts.trained}
            self._from_program = {i: grad.clone() for i, grad in kept.items() if grad is not None}
        if adds:
            parts.write_grads()
        elif self.needs_step:
            parts.sharded.step_done(False)
            self.needs_step = False
        parts.sharded.begin(accumulate=adds)
        self.is_open, self._adds, self._added, self._marked = True, adds, set(), set()
        for i in self._frozen:
            parts.sharded.mark_unused(i)

    def finish(self) -> None:
        """Marks the remaining parameters, waits for the averages, and stores them in p.grad. Collective."""
        parts = self._parts
        used = torch.tensor([i in self._added or i in self._marked for i in parts.trained], dtype=torch.int32)
        for i in parts.trained:
            if i in self._added and i not in self._marked:
                parts.sharded.mark_ready(i)
            elif i not in self._marked:
                parts.sharded.mark_unused(i)
        self._has_sums = False
        self._comm.all_reduce(used, op="max")
        self.is_open = False
        parts.sharded.finish()
        self.needs_step = self._has_sums = True
        with torch.no_grad():
            for i, grad in self._from_program.items():
                parts.grads[i].add_(grad)
        for i, is_used in zip(parts.trained, used.tolist()):
            if is_used or parts.kept_grad(i) is not None:
                parts.keep_grad(i)
