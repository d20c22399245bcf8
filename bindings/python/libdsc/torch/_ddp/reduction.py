"""Decides when gradients are reduced: a forward pass prepares it, its backward pass starts it and finally ends it."""

from __future__ import annotations

import functools
import warnings
import weakref
from typing import Any, Callable, Optional

import torch

from libdsc import errors
from libdsc._communicator import Communicator
from libdsc.torch._ddp.gradients import Gradients
from libdsc.torch._ddp.static import StaticGraph
from libdsc.torch._modules.outputs import differentiable

ADVICE = (
    "\n  If the forward pass does not use all parameters, or the loss not all outputs, set find_unused_parameters=True"
)


class _Pass:
    """A forward pass whose gradients will be reduced."""

    def __init__(self, outputs: int) -> None:
        self.waiting = set(range(outputs))  # outputs that no backward pass has reached yet


class Reduction:
    """Follows the passes of one module. The hooks of parameters hold only a weak reference to it."""

    def __init__(self, comm: Communicator, gradients: Gradients, find_unused: bool, static_graph: bool) -> None:
        self.gradients, self._comm = gradients, comm
        self._find_unused = find_unused
        self.static: Optional[StaticGraph] = StaticGraph(comm, gradients) if static_graph else None
        self.is_open = False  # whether an iteration of the reducer is in progress
        self.is_closed = False
        self.iterations = 0
        # For each parameter, whether it got a gradient since the last reduction.
        self._touched = bytearray(len(gradients.params))
        # Whether a forward pass has prepared a reduction that has not happened yet.
        self._prepared = False
        self._local = False  # whether the last forward pass was inside no_sync()
        # The backward pass for whose end a callback was queued.
        self._graph_task: Optional[int] = None
        self._passes: list[_Pass] = []  # the forward passes whose outputs backward passes have reached
        self._warned = False
        own = weakref.ref(self)
        self._hooks = [
            param.register_post_accumulate_grad_hook(_hook_of(own, i)) for i, param in enumerate(gradients.params)
        ]

    def expect_finished(self) -> None:
        """Completes an iteration that the previous backward pass left open. Collective in that case.

        Raises StateError if gradients are missing.
        """
        if self.is_closed:
            raise errors.StateError("forward: this DistributedDataParallel was closed")
        self._graph_task, self._passes = None, []
        if self.is_open:
            self._finish()

    def prepare(self, output: Any) -> None:
        """Prepares a reduction in the backward pass from these outputs."""
        self._prepared, self._local = True, False
        outputs = differentiable(output)
        this = _Pass(len(outputs))
        for number, tensor in enumerate(outputs):
            tensor.register_hook(functools.partial(self._arrived_at, this, number))

    def prepare_nothing(self) -> None:
        """Notes that backward passes from the current outputs only add to p.grad."""
        self._local = True

    def _arrived_at(self, this: _Pass, number: int, _grad: Any) -> None:
        """Hook: a backward pass has reached an output.

        It runs before all other hooks, and in the outermost backward pass, while other hooks may run in nested ones.
        """
        this.waiting.discard(number)
        if this not in self._passes:
            self._passes.append(this)
        self._follow()

    def _follow(self) -> None:
        """Queues a callback for the end of the current backward pass."""
        graph_task = torch._C._current_graph_task_id()
        if graph_task == self._graph_task or self.is_closed:
            return
        self._graph_task = graph_task
        ended = functools.partial(self._backward_ended, graph_task)
        torch.autograd.Variable._execution_engine.queue_callback(ended)

    def gradient_ready(self, i: int) -> None:
        """Hook: the gradient of a parameter was added to p.grad."""
        self._touched[i] = 1
        if not self.is_open:
            if self._graph_task is None and not self._prepared:
                return self._warn_if_bypassed()
            if self._graph_task is None:
                self._follow()
            self._begin()
        if self.static is not None:
            self.static.count(i)
        else:
            self.gradients.mark(i)

    def _warn_if_bypassed(self) -> None:
        if self._local or self._warned or self._comm.size == 1 or self.is_closed:
            return
        self._warned = True
        warnings.warn(
            "libdsc.torch.DistributedDataParallel: a backward pass that does not start from an output of the wrapper's forward() "
            "adds to p.grad on this rank only. To average gradients, call the wrapper instead of its module. This is reported once.",
            stacklevel=2,
        )

    def _begin(self) -> None:
        self.gradients.begin()
        self.is_open = True
        if self.static is not None:
            self.static.begin()

    def _backward_ended(self, graph_task: int) -> None:
        if self._graph_task != graph_task:
            return
        self._graph_task = None
        if not self.is_open:
            return
        if self._waits_for_more():
            return
        self._passes = []
        self._finish()

    def _waits_for_more(self) -> bool:
        """Whether gradients are missing that may still come from outputs that no backward pass has reached."""
        if self._find_unused or self.static is not None or all(self.gradients.marked):
            return False
        return any(each.waiting for each in self._passes)

    def _finish(self) -> None:
        """Ends the iteration. Collective."""
        try:
            unused = self._reduce()
        except errors.StateError as error:
            if not self._find_unused and self.static is None and not all(self.gradients.marked):
                error.message += ADVICE
            raise
        finally:
            self.is_open = self._prepared = False
        self._touched = bytearray(len(self._touched))
        gradients = self.gradients
        gradients.fill(gradients.absent - unused)
        gradients.take_sparse(unused)
        self.iterations += 1
        if self._find_unused or self.iterations > 1:  # from now on the reducer does not rebuild its buckets
            gradients.use_views()

    def _reduce(self) -> set[int]:
        """Reduces the gradients. Returns the parameters that no rank has used."""
        gradients = self.gradients
        if self.static is not None:
            self.static.end(self._touched)
            gradients.finish()
            return self.static.unused
        if not self._find_unused:
            gradients.finish()
            return set()
        for i in [i for i, marked in enumerate(gradients.marked) if not marked]:
            gradients.mark_rest(i)
        gradients.finish()
        return {i for i, _ in gradients.reducer.unused()} if gradients.absent else set()

    def set_static(self) -> None:
        """Declares the graph as static. Must be called before the first reduction."""
        if self.iterations or self.is_open:
            raise errors.StateError("_set_static_graph: gradients have already been reduced; expected this call before the first iteration")
        if self._find_unused:
            raise errors.StateError("_set_static_graph: find_unused_parameters is True; expected static_graph=True in the constructor instead")
        self.static = StaticGraph(self._comm, self.gradients)

    def close(self) -> None:
        """Removes the hooks and closes the reducer. Local."""
        self.is_closed = True
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self.gradients.reducer.close()


def _hook_of(own: Callable[[], Optional[Reduction]], i: int) -> Callable[[Any], None]:
    """Returns a hook of a parameter that holds only a weak reference to the Reduction."""

    def gradient_ready(_param: Any) -> None:
        reduction = own()
        if reduction is not None:
            reduction.gradient_ready(i)

    return gradient_ready
