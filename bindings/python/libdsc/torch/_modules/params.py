"""The parameters and buffers of a module for data-parallel training, and their broadcast to all ranks."""

from __future__ import annotations

from typing import Any, Iterable

import torch

from libdsc import broadcast_coalesced, verify_params
from libdsc._communicator import Communicator
from libdsc.torch._modules import layout

Named = tuple[str, Any]


def ignored_names(module: Any) -> set[str]:
    """Returns the names that the program has excluded from data parallelism, in the way of torch's DDP."""
    return set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))


def named_params(module: Any, ignored: set[str]) -> list[Named]:
    """Returns each parameter once. A tied parameter is left out only if all its names are ignored."""
    found: dict[Any, str] = {}
    for name, param in module.named_parameters(remove_duplicate=False):
        if name not in ignored:
            found.setdefault(param, name)
    return [(name, param) for param, name in found.items()]


def named_buffers(module: Any, ignored: set[str]) -> list[Named]:
    """Returns each buffer once, including those that are not in the state_dict."""
    return [(name, buffer) for name, buffer in module.named_buffers() if name not in ignored]


def sparse_params(module: Any) -> set[Any]:
    """Returns the parameters with sparse gradients. The first module that has a parameter decides."""
    kinds: dict[Any, bool] = {}
    for each in module.modules():
        sparse = isinstance(each, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and bool(each.sparse)
        for param in each.parameters(recurse=False):
            kinds.setdefault(param, sparse)
    return {param for param, sparse in kinds.items() if sparse}


def expect_params(named: Iterable[Named]) -> None:
    """Raises for parameters that cannot be reduced here, because they have no shape or memory, or are not on the host.
    """
    for name, param in named:
        if isinstance(param, torch.nn.parameter.UninitializedParameter):
            raise RuntimeError(
                f"parameter {name} is uninitialized and has no shape yet; run one forward pass of the module first"
            )
        if param.device.type == "meta":
            raise RuntimeError(f"parameter {name} is on the meta device and has no memory; call module.to_empty(device='cpu') first")
        if param.device.type != "cpu":
            raise ValueError(f"parameter {name} is on {param.device}; expected all parameters in host memory (device 'cpu')")
        if param.layout != torch.strided:
            raise ValueError(f"parameter {name} has layout {param.layout}; expected torch.strided")
        if layout.overlaps_itself(param):
            raise ValueError(f"parameter {name} has elements that share memory, as after expand(); expected a clone() of it")
    if not any(param.requires_grad for _, param in named):
        raise RuntimeError("no parameter of the module requires a gradient; expected at least one that does")


def expect_replicas(comm: Communicator, named: Iterable[Named]) -> None:
    """Raises on all ranks if they hold different parts of a divided parameter (libdsc.torch.layers). Collective."""
    parts = [(name, param.partition_rank) for name, param in named if hasattr(param, "partition_rank")]
    if not parts:
        return
    own = torch.tensor([part for _, part in parts])
    every = own.new_empty(comm.size, len(parts))
    comm.all_gather(every, own)
    for (name, _), of_ranks in zip(parts, every.T.tolist()):
        if len(set(of_ranks)) > 1:
            raise ValueError(
                f"parameter {name} is divided among ranks, and the ranks of this group have parts {of_ranks} of it; expected a "
                "process_group of replicas, which all have the same part"
            )


def broadcast(comm: Communicator, named: list[Named], root: int, verify: bool) -> None:
    """Copies the root's tensors to those of all ranks, in place if their layout allows it. Collective."""
    arrays, copies = [], []
    for name, tensor in named:
        if tensor.layout != torch.strided or layout.overlaps_itself(tensor):
            raise ValueError(f"{name} has layout {tensor.layout} and strides {tensor.stride()}; expected a dense tensor")
        is_dense, order = layout.order_of(tensor)
        array = layout.alias(tensor, order) if is_dense else None
        if array is None:
            order = None
            array = layout.copy_in_order(tensor, order)
            copies.append((tensor, order, array))
        arrays.append(layout.as_bytes_if_unknown(array))
    if verify:
        verify_params(comm, arrays, [name for name, _ in named])
    if not arrays:
        return
    broadcast_coalesced(comm, arrays, root)
    if comm.rank != root:
        for tensor, order, array in copies:
            layout.write_back(tensor, order, array)
