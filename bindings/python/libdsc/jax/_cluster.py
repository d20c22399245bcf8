"""Provides rank, size and addresses of this process to jax.distributed.initialize(), from dscrun or from the world.

JAX has no public interface for this: it examines the subclasses of a private class. This is the only file of libdsc
that uses a private part of JAX. If JAX removes that part, only initialize() is affected: it then needs its arguments.
"""

from __future__ import annotations

import os
import socket
from typing import Any, cast

from libdsc import _start

NAME = "libdsc"
LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _is_present(cls: Any) -> bool:
    """Whether this process belongs to a world of several ranks, or was started by dscrun."""
    if _start.is_initialized():
        return _start.world().size > 1
    return "DSC_JOB_ID" in os.environ and all(name in os.environ for name in LAUNCHED)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def _address(cls: Any, timeout_secs: Any = None, override_coordinator_port: Any = None) -> str:
    """Returns the address where rank 0 serves JAX.

    In a world, the ranks agree on a free port, so this call is collective: all ranks must call initialize().
    """
    if _start.is_initialized():
        world = _start.world()
        port = override_coordinator_port or world.broadcast_object(_free_port() if world.rank == 0 else None)
        return f"{world.master_addr}:{port}"
    return f"{os.environ['MASTER_ADDR']}:{override_coordinator_port or int(os.environ['MASTER_PORT']) + 1}"


def _count(cls: Any) -> int:
    return _start.world().size if _start.is_initialized() else int(os.environ["WORLD_SIZE"])


def _rank(cls: Any) -> int:
    return _start.world().rank if _start.is_initialized() else int(os.environ["RANK"])


def _local_rank(cls: Any) -> Any:
    if _start.is_initialized():
        return _start.world().local_rank
    return int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else None


def _base() -> Any:
    try:
        from jax._src.clusters import ClusterEnv
    except ImportError:
        return None
    return ClusterEnv


def has_base() -> bool:
    """Whether this version of JAX has the private class."""
    return _base() is not None


def offer() -> None:
    """Creates the subclass, which JAX then finds. Does nothing if JAX does not have the private class."""
    if not has_base():
        return
    methods = {
        "is_env_present": _is_present,
        "get_coordinator_address": _address,
        "get_process_count": _count,
        "get_process_id": _rank,
        "get_local_process_id": _local_rank,
    }
    members: dict[str, Any] = {"name": NAME, "__module__": __name__}
    for name, function in methods.items():
        members[name] = classmethod(cast(Any, function))
    type("DscCluster", (_base(),), members)
