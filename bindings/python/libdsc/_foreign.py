"""Maps names of other libraries to names of this one, for error messages. The tables are used only after an error."""

from __future__ import annotations

import difflib
from typing import Any, Mapping, NoReturn

# Methods and attributes of torch.distributed, mpi4py and Horovod, and what to use instead on a communicator.
_MEMBERS = {
    "allreduce": "all_reduce() for arrays and all_reduce_object() for Python objects",
    "iallreduce": "all_reduce(..., async_op=True)",
    "grouped_allreduce": "all_reduce_coalesced()",
    "bcast": "broadcast() for arrays and broadcast_object() for Python objects",
    "ibcast": "broadcast(..., async_op=True)",
    "broadcast_": "broadcast()",
    "broadcast_parameters": "broadcast_tree()",
    "broadcast_object_list": "broadcast_object()",
    "allgather": "all_gather() for arrays and all_gather_object() for Python objects",
    "allgatherv": "all_gather(..., counts=...)",
    "all_gather_into_tensor": "all_gather()",
    "all_gather_base": "all_gather()",
    "gatherv": "gather(..., counts=...)",
    "scatterv": "scatter(..., counts=...)",
    "reducescatter": "reduce_scatter()",
    "reduce_scatter_tensor": "reduce_scatter()",
    "reduce_scatter_block": "reduce_scatter()",
    "alltoall": "all_to_all()",
    "alltoallv": "all_to_all(..., send_counts=..., recv_counts=...)",
    "all_to_all_single": "all_to_all()",
    "send_object_list": "send_object()",
    "recv_object_list": "recv_object()",
    "scatter_object_list": "scatter_object()",
    "sendrecv": "send() and recv() in `with comm.batch():`",
    "batch_isend_irecv": "isend() and irecv() in `with comm.batch():`",
    "get_rank": "the attribute rank",
    "get_size": "the attribute size",
    "get_world_size": "the attribute size",
    "get_local_rank": "the attribute local_rank",
    "get_backend": "the attribute backend",
    "get_group_rank": "group_rank()",
    "get_global_rank": "global_rank()",
    "get_process_group_ranks": "global_rank(r) for r in range(size)",
    "new_group": "create_group()",
    "new_subgroups": "split()",
    "create": "create_group()",
    "dup": "split(0)",
    "free": "close()",
    "destroy": "close()",
    "destroy_process_group": "finalize()",
    "set_default_timeout": "set_timeout()",
}

# Functions and classes of the modules of these libraries, and what to use instead in this package.
_FUNCTIONS = {
    "init": "init_distributed()",
    "init_process_group": "init_distributed()",
    "destroy_process_group": "finalize()",
    "shutdown": "finalize()",
    "get_rank": "world().rank",
    "rank": "world().rank",
    "get_world_size": "world().size",
    "size": "world().size",
    "local_rank": "world().local_rank",
    "get_local_rank": "world().local_rank",
    "get_backend": "world().backend",
    "new_group": "world().create_group()",
    "comm_world": "world()",
    "distributeddataparallel": "BucketReducer",
    "distributedoptimizer": "BucketReducer",
    "ddp": "BucketReducer",
    "fullyshardeddataparallel": "Sharded",
    "fully_shard": "Sharded",
    "init_device_mesh": "Mesh",
    "devicemesh": "Mesh",
    "processgroup": "Communicator",
    "reduceop": 'a name such as "sum"',
}

# Arguments of these libraries, and their names here, by operation. The key "" is for all other operations.
_ARGUMENTS: dict[str, dict[str, str]] = {
    "src": {"recv": "peer", "irecv": "peer", "recv_object": "peer", "": "root"},
    "source": {"recv": "peer", "irecv": "peer", "recv_object": "peer", "": "root"},
    "dst": {"send": "peer", "isend": "peer", "send_object": "peer", "": "root"},
    "dest": {"send": "peer", "isend": "peer", "send_object": "peer", "": "root"},
    "root_rank": {"": "root"},
    "group_src": {"": "root"},
    "group_dst": {"": "root"},
    "tensor": {"": "x"},
    "input": {"": "x"},
    "sendbuf": {"": "x"},
    "buf": {"": "x"},
    "scatter_list": {"": "x"},
    "output": {"": "out"},
    "recvbuf": {"": "out"},
    "gather_list": {"": "out"},
}
_NEAR = 0.75  # the least similarity of two names for a suggestion


def meant_member(name: str, known: list[str]) -> str:
    """Returns a hint for the end of an error: the name that a communicator uses instead.

    Empty if no name is similar.
    """
    return _meant(_MEMBERS, name, known)


def meant_function(name: str, known: list[str], of_communicator: list[str]) -> str:
    """Returns a hint for the end of an error: the name that this package uses instead. Empty if no name is similar."""
    found = _FUNCTIONS.get(name.lower())
    if found is not None:
        return f"; use {found}"
    if name in of_communicator:
        return f"; it is a method of communicators, as in libdsc.world().{name}()"
    if name.lower() in _MEMBERS:
        return f"; on a communicator, such as libdsc.world(), use {_MEMBERS[name.lower()]}"
    return _meant(_FUNCTIONS, name, known)


def _meant(table: Mapping[str, str], name: str, known: list[str]) -> str:
    found = table.get(name.lower())
    if found is not None:
        return f"; use {found}"
    by_lower = {each.lower(): each for each in known if not each.startswith("_")}
    near = difflib.get_close_matches(name.lower(), by_lower, 1, _NEAR)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""


def refuse_arguments(operation: str, given: Mapping[str, Any]) -> NoReturn:
    """Raises TypeError for an argument that the operation does not have. The error contains the right name if known."""
    name = next(iter(given))
    if name == "tag":
        advice = "; there are no tags: messages between two ranks arrive in the order in which they are sent"
    elif name in ("group", "comm"):
        advice = "; call the method on the communicator of that group"
    else:
        names = _ARGUMENTS.get(name, {})
        ours = names.get(operation, names.get("", ""))
        advice = f"; use {ours}=" if ours else ""
    raise TypeError(f"{operation}() has no argument {name!r}{advice}")
