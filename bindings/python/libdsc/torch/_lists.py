"""Lists of tensors, one for each rank.

On the host libdsc accepts lists as they are. On a GPU their elements are combined in one tensor, as NCCL has no lists.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence

import torch

from libdsc.torch._elements import Finish, as_output, movable, read


class Joined(NamedTuple):
    """A list of tensors in the form that libdsc accepts."""

    array: Any  # the list, or one tensor with the elements of all tensors
    # The number of elements of each tensor; None for a list.
    counts: Optional[list[int]] = None
    # A function to call after the operation has completed; None if there is nothing to do.
    finish: Finish = None

    def uneven(self) -> dict[str, list[int]]:
        """Returns the keyword argument counts if the numbers of elements differ between ranks, otherwise no argument.
        """
        return {"counts": self.counts} if self.counts is not None and len(set(self.counts)) > 1 else {}


NONE = Joined(None)  # for a rank that has no list


def inputs(tensors: Sequence[torch.Tensor]) -> Joined:
    """Prepares tensors that are only read."""
    return join([movable(read(tensor, "input")) for tensor in tensors])


def join(parts: list[torch.Tensor]) -> Joined:
    """Prepares contiguous tensors that are only read."""
    if not (parts and parts[0].is_cuda):
        return Joined(parts)
    return Joined(torch.cat([part.reshape(-1) for part in parts]), [part.numel() for part in parts])


def outputs(tensors: Sequence[torch.Tensor]) -> Joined:
    """Prepares tensors that are written."""
    parts = [movable(as_output(tensor, "output")) for tensor in tensors]
    if not (parts and parts[0].is_cuda):
        return Joined(parts)
    counts = [part.numel() for part in parts]
    whole = parts[0].new_empty(sum(counts))

    def put() -> None:
        for part, came in zip(parts, whole.split(counts)):
            part.copy_(came.view(part.shape))

    return Joined(whole, counts, put)
