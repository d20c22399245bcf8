"""Sums of sparse tensors: indices and values of all ranks are gathered and added up."""

from __future__ import annotations

import torch

from libdsc._communicator import Communicator


def all_reduce(comm: Communicator, tensor: torch.Tensor, average: bool) -> None:
    """Replaces a sparse tensor in COO form by the sum or average over all ranks, coalesced. Collective."""
    if tensor.layout != torch.sparse_coo:
        raise ValueError(f"tensor has the layout {tensor.layout}; expected torch.strided or torch.sparse_coo")
    own = tensor.detach().coalesce()
    counts = torch.empty(comm.size, dtype=torch.int64)
    comm.all_gather(counts, torch.tensor([own._nnz()], dtype=torch.int64))
    numbers = counts.tolist()
    indices = _gathered(comm, own.indices().t().contiguous(), numbers)
    values = _gathered(comm, own.values().contiguous(), numbers)
    total = torch.sparse_coo_tensor(indices.t(), values, own.shape).coalesce()
    if average:
        total = torch.sparse_coo_tensor(total.indices(), total.values() / comm.size, total.shape, is_coalesced=True)
    with torch.no_grad():
        tensor.copy_(total)


def _gathered(comm: Communicator, rows: torch.Tensor, numbers: list[int]) -> torch.Tensor:
    """Returns the rows of all ranks one after another. numbers has the number of rows of each rank."""
    row = rows[0].numel() if rows.shape[0] else rows.new_empty((1, *rows.shape[1:])).numel()
    out = rows.new_empty((sum(numbers), *rows.shape[1:]))
    comm.all_gather(out, rows, counts=[number * row for number in numbers])
    return out
