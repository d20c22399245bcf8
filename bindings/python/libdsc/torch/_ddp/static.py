"""Static graphs: the first iteration counts how often each parameter gets a gradient; later ones rely on it."""

from __future__ import annotations

from typing import Optional

import torch

from libdsc import errors
from libdsc._communicator import Communicator
from libdsc.torch._ddp.gradients import Gradients


class StaticGraph:
    """Determines when a parameter that is used several times is ready, and which parameters are never used.

    Attributes:
        unused: the parameters that no rank uses.
    """

    def __init__(self, comm: Communicator, gradients: Gradients) -> None:
        self._comm, self._gradients = comm, gradients
        # The number of gradients of each parameter in the current iteration, in the order of the latest gradients.
        self._counts: dict[int, int] = {}
        self._expected: Optional[dict[int, int]] = None
        self.unused: set[int] = set()

    @property
    def is_known(self) -> bool:
        """Whether the first iteration has ended."""
        return self._expected is not None

    def begin(self) -> None:
        """Starts an iteration. Parameters that this rank never uses are marked immediately."""
        self._counts = {}
        if self._expected is None:
            return
        for i in range(len(self._gradients.params)):
            if i not in self._expected:
                self._mark_without_use(i)

    def _mark_without_use(self, i: int) -> None:
        if i in self.unused:
            self._gradients.mark_absent(i)
        else:
            self._gradients.mark_rest(i)

    def count(self, i: int) -> None:
        """Counts a gradient. The last expected gradient of a parameter marks it as ready."""
        count = self._counts.pop(i, 0) + 1
        self._counts[i] = count
        if self._expected is None:
            return
        expected = self._expected.get(i, 0)
        if count > expected:
            raise errors.StateError(
                f"{self._gradients.names[i]} got a gradient {count} times in this iteration; expected {expected}, as in the first iteration, "
                "because static_graph is True"
            )
        if count == expected:
            self._gradients.mark(i)

    def end(self, touched: bytearray) -> None:
        """Ends an iteration. In the first one, marks the remaining parameters, and the ranks agree on which are unused.

        The first call is collective.
        """
        if self._expected is not None:
            return
        used = torch.tensor(list(touched), dtype=torch.int32)
        self._comm.all_reduce(used, op="max")
        self.unused = {i for i, each in enumerate(used.tolist()) if not each}
        for i in self._counts:
            self._gradients.mark(i)
        for i in range(len(touched)):
            if i not in self._counts:
                self._mark_without_use(i)
        self._expected = dict(self._counts)
