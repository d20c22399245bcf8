"""Checks of the arguments of ShardedDataParallel. They run before anything else happens."""

from __future__ import annotations

from typing import Any

import torch

from libdsc import errors
from libdsc._communicator import Communicator
from libdsc.torch._modules import params

_FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

NO_JOIN = (
    "join: a rank without batches cannot gather parameters for the other ranks; expected the same number of batches "
    "on all ranks, or libdsc.torch.DistributedDataParallel"
)
NO_HOOK = (
    "register_comm_hook: gradients are reduced to the ranks that own them, but communication hooks are for all-reduces; "
    "expected no hook, or libdsc.torch.DistributedDataParallel"
)


def refuse_mixed_precision(given: Any) -> None:
    """Raises if parameters should have another type in passes."""
    if given is not None:
        raise ValueError(
            f"mixed_precision is a {type(given).__name__}; expected None, because parameters are gathered in their own type; use torch.autocast"
        )


def expect_params(module: Any, named: list[params.Named]) -> None:
    """Raises for parameters that cannot be divided into parts."""
    params.expect_params(named)
    sparse = params.sparse_params(module)
    for name, param in named:
        if param in sparse:
            raise ValueError(f"parameter {name} has sparse gradients; expected sparse=False in its embedding, because shards are dense")
        if param.dtype not in _FLOATING:
            known = ", ".join(str(each) for each in _FLOATING)
            raise ValueError(f"parameter {name} is of {param.dtype}; expected one of {known}")
        if param.grad is not None:
            raise ValueError(f"parameter {name} has a gradient; call zero_grad() before wrapping the module")
        if type(param.data) is not torch.Tensor:
            raise ValueError(f"parameter {name} holds a {type(param.data).__name__}; expected a plain torch.Tensor")


def expect_alike(comm: Communicator, named: list[params.Named]) -> None:
    """Raises on all ranks if a parameter requires gradients on some ranks only. Collective."""
    told = comm.all_gather_object([param.requires_grad for _, param in named])
    for rank, flags in enumerate(told):
        for (name, _), flag, expected in zip(named, flags, told[0]):
            if flag != expected:
                text = f"requires_grad of {name} is {flag} on rank {rank}; expected {expected} as on rank 0"
                raise errors.MismatchError(text, rank=rank, ranks=(rank,))
