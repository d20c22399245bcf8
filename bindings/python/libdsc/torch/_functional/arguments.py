"""Checks of the arguments of the functions. They run before anything is sent."""

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
    """Returns the communicator for the argument group, for tensors on a device.

    Args:
        group: a communicator; a process group of torch with the backend "dsc"; a DeviceMesh of one dimension over
            such a group; None: the default process group of that backend, or libdsc's world.
        device: the device whose memory is transferred; None: the host.
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
    """Checks and returns x, which must be a dense tensor that only this rank has.

    A result of torch's functional collectives is waited for.
    """
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
    """Returns x in the type in which sums are computed: float32, or float64 for float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def whole_size(given: Optional[int], part: int, comm: Communicator) -> int:
    """Returns the size over all ranks: the given size, or this rank's part times the number of ranks."""
    return part * comm.size if given is None else given


def expect_equal_parts(name: str, given: Optional[int], part: int, comm: Communicator, device: torch.device) -> None:
    """Raises on all ranks if their parts differ and the size over all ranks was not given. Collective if it was not."""
    if given is not None or comm.size == 1:
        return
    own = torch.tensor([part], device=device)
    every = own.new_empty(comm.size)
    comm.all_gather(every, own)
    if len(set(every.tolist())) > 1:
        raise ValueError(f"{name} is None, but ranks have parts of different sizes, {every.tolist()}; expected {name}={sum(every.tolist())}, their sum")


def expect_product(x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor]) -> None:
    """Raises if torch would refuse the linear layer. torch itself would raise only after the exchange."""
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
    """Returns the dimension of the sequence as a number from 0 on. It must not be the last one."""
    at = dimension(value, x.dim(), "x")
    if at == x.dim() - 1:
        raise ValueError(f"sequence_dim is {value}, the last dimension of x; expected the dimension of the sequence")
    return at


def expect_last(x: torch.Tensor, extent: int, why: str) -> None:
    """Raises ValueError unless the last dimension of x has this size."""
    if x.dim() < 1 or x.shape[-1] != extent:
        raise ValueError(f"x has shape {tuple(x.shape)}; expected {extent} elements in the last dimension, {why}")


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a method of an autograd.Function so that autocast does not change the types in it."""

    @functools.wraps(function)
    def run(ctx: Any, x: Any, *rest: Any) -> Any:
        with torch.autocast(x.device.type, enabled=False):
            return function(ctx, x, *rest)

    return run
