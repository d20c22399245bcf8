"""Checks of what the functions are given, before anything is sent."""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, cast

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh

from libdsc._arguments import dimension
from libdsc._communicator import Communicator
from libdsc.torch._backend import Backend, communicator, has_default_group
from libdsc.torch._modules.given import communicator_for


def group_of(group: Any, device: Optional[torch.device] = None) -> Communicator:
    """The communicator that a program means, for tensors on a device.

    Args:
        group: a communicator; a process group of torch with the backend "dsc"; a DeviceMesh of one dimension over
            such a group; None: the default process group of that backend, or libdsc's world.
        device: whose memory is moved; None: that of the host.
    """
    if group is not None and not isinstance(group, (Communicator, dist.ProcessGroup, Backend, DeviceMesh)):
        raise TypeError(f"group is a {type(group).__name__}; expected a communicator of libdsc, a process group, a DeviceMesh or None")
    mesh, ranks = (group, None) if isinstance(group, DeviceMesh) else (None, group)
    is_host = device is None or device.type == "cpu"
    is_communicator = isinstance(ranks, Communicator) or (group is None and not has_default_group())
    if is_host or is_communicator or (mesh is not None and mesh.ndim != 1):
        return communicator_for(ranks, mesh)
    return communicator(ranks if mesh is None else mesh.get_group(mesh_dim=0), device)


def tensor(x: Any, name: str = "x", *, is_float: bool = False) -> torch.Tensor:
    """x, if it is a dense tensor of this rank alone; one of torch's functional collectives, which it waits for."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}; expected a torch.Tensor")
    if isinstance(x, FakeTensor):
        raise TypeError(f"{name} is a FakeTensor, which has no elements; expected a tensor with elements")
    if isinstance(x, AsyncCollectiveTensor):
        x = x.wait()
    if hasattr(x, "to_local"):
        raise TypeError(f"{name} is a {type(x).__name__}; expected this rank's part, such as {name}.to_local()")
    if x.layout != torch.strided:
        raise TypeError(f"{name} has layout {x.layout}; expected a dense tensor")
    if is_float and not x.is_floating_point():
        raise TypeError(f"{name} has element type {x.dtype}; expected floating point")
    return cast(torch.Tensor, x)


def wide(x: torch.Tensor) -> torch.Tensor:
    """x in the type of sums: float32, or float64 for float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def whole_size(given: Optional[int], part: int, comm: Communicator) -> int:
    """What all ranks have together: as the program says, or as much as this one each."""
    return part * comm.size if given is None else given


def expect_equal_parts(name: str, given: Optional[int], part: int, comm: Communicator, device: torch.device) -> None:
    """Raises on all ranks if parts differ, and the program has not said their sum. Collective unless it has."""
    if given is not None or comm.size == 1:
        return
    own = torch.tensor([part], device=device)
    every = own.new_empty(comm.size)
    comm.all_gather(every, own)
    if len(set(every.tolist())) > 1:
        raise ValueError(f"{name} is None, but ranks have parts of different sizes, {every.tolist()}; expected {name}={sum(every.tolist())}, their sum")


def expect_product(x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor]) -> None:
    """Raises where torch would refuse a linear layer, which is after an exchange."""
    if tensor(weight, "weight", is_float=True).dim() != 2:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; expected two dimensions")
    if bias is not None and tensor(bias, "bias", is_float=True).shape != weight.shape[:1]:
        raise ValueError(f"bias has shape {tuple(bias.shape)}; expected ({weight.shape[0]},), because weight has {weight.shape[0]} rows")
    for name, other in (("x", x), ("bias", weight if bias is None else bias)):
        if other.device != weight.device:
            raise ValueError(f"{name} is on {other.device} and weight on {weight.device}; expected the same device")
        if other.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise TypeError(f"{name} has element type {other.dtype} and weight {weight.dtype}; expected the same type, or torch.autocast")


def sequence_dimension(value: Any, x: torch.Tensor) -> int:
    """The dimension of a sequence, which is not the last one."""
    at = dimension(value, x.dim(), "x")
    if at == x.dim() - 1:
        raise ValueError(f"sequence_dim is {value}, the last dimension of x; expected the dimension of the sequence")
    return at


def expect_last(x: torch.Tensor, extent: int, why: str) -> None:
    """Raises unless the last dimension of x is so long."""
    if x.dim() < 1 or x.shape[-1] != extent:
        raise ValueError(f"x has shape {tuple(x.shape)}; expected {extent} elements in the last dimension, {why}")


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method of an autograd.Function whose products are of the type that it says, also under autocast."""

    @functools.wraps(function)
    def run(ctx: Any, x: Any, *rest: Any) -> Any:
        with torch.autocast(x.device.type, enabled=False):
            return function(ctx, x, *rest)

    return run
