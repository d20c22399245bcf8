"""Checks of the arguments of a wrapper: its module, and the ranks that train it."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

import libdsc
from libdsc import errors
from libdsc._communicator import Communicator
from libdsc.torch._backend import communicator, has_default_group


def expect_module(module: Any) -> None:
    """Raises TypeError unless this is a module of torch."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module is a {type(module).__name__}; expected a torch.nn.Module")


def communicator_for(process_group: Any, device_mesh: Any) -> Communicator:
    """Returns the given communicator, or that of a process group of torch or of a mesh of one dimension.

    The mesh may also be passed as the process group.
    """
    if process_group is not None and device_mesh is not None:
        raise ValueError("process_group and device_mesh are both given; expected only one of them")
    if isinstance(process_group, DeviceMesh):
        device_mesh = process_group
    if device_mesh is not None:
        if device_mesh.ndim != 1:
            raise ValueError(f"device_mesh has {device_mesh.ndim} dimensions; expected 1, such as mesh['dp']")
        process_group = device_mesh.get_group(mesh_dim=0)
    if isinstance(process_group, Communicator):
        return process_group
    if process_group is None and libdsc.is_initialized() and not has_default_group():
        return libdsc.world()
    if process_group is not None or torch.distributed.is_initialized():
        return communicator(process_group)
    raise errors.StateError(
        "no process group exists yet; call torch.distributed.init_process_group('dsc') or libdsc.init_distributed() first, "
        "or pass process_group"
    )
