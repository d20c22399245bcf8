"""Lists of tensors, one for each rank.

On the host libdsc takes them as they are. On a GPU they travel as one tensor, as NCCL has no lists.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence

import torch

from libdsc.torch._elements import Finish, as_output, movable, read


class Joined(NamedTuple):
    """A list as libdsc takes it."""

    array: Any  # the list, or one tensor with the elements of all
    counts: Optional[list[int]] = None  # of elements in each, where it is one tensor
    finish: Finish = None  # what remains to be done once the operation is over

    def uneven(self) -> dict[str, list[int]]:
        """The argument that says how many elements each rank has, if these numbers differ."""
        return {"counts": self.counts} if self.counts is not None and len(set(self.counts)) > 1 else {}


NONE = Joined(None)  # of a rank that has no list


def inputs(tensors: Sequence[torch.Tensor]) -> Joined:
    """Tensors that are only read."""
    return join([movable(read(tensor, "input")) for tensor in tensors])


def join(parts: list[torch.Tensor]) -> Joined:
    """Contiguous tensors that are only read."""
    if not (parts and parts[0].is_cuda):
        return Joined(parts)
    return Joined(torch.cat([part.reshape(-1) for part in parts]), [part.numel() for part in parts])


def outputs(tensors: Sequence[torch.Tensor]) -> Joined:
    """Tensors that are written."""
    parts = [movable(as_output(tensor, "output")) for tensor in tensors]
    if not (parts and parts[0].is_cuda):
        return Joined(parts)
    counts = [part.numel() for part in parts]
    whole = parts[0].new_empty(sum(counts))

    def put() -> None:
        for part, came in zip(parts, whole.split(counts)):
            part.copy_(came.view(part.shape))

    return Joined(whole, counts, put)
