"""The two classes by which torch uses libdsc, and their creation by torch.

torch calls a ProcessGroup written in Python directly, which makes an operation cheap. Functional collectives and others
also ask it for a Backend. If a group uses another library for some devices ("cpu:dsc,cuda:nccl"), torch uses only the
Backend, and calls its operations through C++. That is slower, and is_completed() of the returned work is always False
(torch 2.15, PyWorkHolder).
"""

from __future__ import annotations

import functools
import warnings
from datetime import timedelta
from typing import Any, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as TorchBackend
from torch._C._distributed_c10d import ErrorType

from libdsc._communicator import Communicator
from libdsc.torch._errors import Error, as_torch, state_of
from libdsc.torch._group import Group
from libdsc.torch._messages import Inbox
from libdsc.torch._operations import Operations

NAME = "dsc"
BackendType = dist.ProcessGroup.BackendType
DEVICES = ["cpu", "cuda"]


class Life(Operations):
    """Name, time-out, failure and end of a group. Base of both classes."""

    def getBackendName(self) -> str:
        """Returns "dsc", even when it replaces gloo: torch's C++ code would treat any object with gloo's name as gloo.
        """
        return NAME

    def get_error(self) -> ErrorType:
        """Returns whether the group has failed; never blocks."""
        return state_of(self._group.error())

    def set_timeout(self, timeout: timedelta) -> None:
        self._group.set_timeout(timeout)

    def abort(self) -> None:
        """Ends all operations with an error, on all ranks."""
        self._group.close(abort=True)

    def shutdown(self) -> None:
        """Leaves the group; ranks that wait for this one get an error."""
        self._group.close(abort=False)

    def _get_sequence_number_for_group(self) -> int:
        return self._group.host._completed()

    def _set_sequence_number_for_group(self) -> None:
        pass  # nothing to do: libdsc numbers the operations

    @property
    def supports_coalescing(self) -> bool:
        """Returns False: messages are asynchronous, so a batch of them needs no surrounding call."""
        return False


class Backend(Life, TorchBackend):  # type: ignore[misc]
    """libdsc as a Backend of torch's ProcessGroup."""

    def __init__(self, group: Group, inbox: Optional[Inbox] = None) -> None:
        TorchBackend.__init__(self, group.rank, group.size)
        self._group, self._inbox = group, inbox or Inbox(group)
        self._options = TorchBackend.Options(NAME, group.timeout)

    # torch's own properties of Backend call Python, and would call themselves again if Python did not define them here.
    @property
    def options(self) -> Any:
        return self._options

    @property
    def supports_splitting(self) -> bool:
        return True

    @property
    def supports_shrinking(self) -> bool:
        return True

    @property
    def _supports_time_estimate(self) -> bool:
        return False

    @property
    def supports_reconfigure(self) -> bool:
        return False

    @property
    def supports_window(self) -> bool:
        return False

    @property
    def supports_abort_hooks(self) -> bool:
        return False

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(timeout)
        self._options._timeout = timeout

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def eager_connect_single_device(self, device: Optional[torch.device]) -> None:
        """Creates the communicator of a GPU now, instead of at its first use."""
        if device is not None:
            self._group.communicator(device)

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Takes part in a split() that makes a group without this rank."""
        self._split_off(None)

    def split(self, store: Any, ranks: Sequence[int], opts: Any = None) -> Optional[Backend]:
        """Makes a Backend of some of the ranks. Collective among all ranks; ranks that are not listed get None."""
        group = self._split_off(list(ranks), store, opts)
        return None if group is None else Backend(group)

    def _split_off(self, ranks: Optional[list[int]], store: Any = None, opts: Any = None) -> Optional[Group]:
        timeout = self._group.timeout if opts is None else opts._timeout
        return split(self._group, ranks, store, timeout, "split" if opts is None else opts.group_name)

    def shrink(self, ranks_to_exclude: Sequence[int], shrink_flags: int = 0, opts_override: Any = None) -> Backend:
        """Makes a Backend of the ranks that are not listed. Collective among these ranks; works after a failure too."""
        old = self._group
        if shrink_flags:
            old.host.abort()  # another thread may be waiting in it
        with as_torch(old.name), old.lock:
            shrunk = old.host.shrink()
        if shrunk.size != old.size - len(set(ranks_to_exclude)):
            raise Error(f"{shrunk.size} of {old.size} ranks have called shrink(); expected all except {sorted(ranks_to_exclude)}")
        return Backend(Group(old.store, shrunk.rank, shrunk.size, old.timeout, f"{old.name}:shrunk", old.label, shrunk))


class ProcessGroup(Life, dist.ProcessGroup):  # type: ignore[misc]
    """libdsc as a ProcessGroup of torch, with a Backend for callers that ask for one."""

    def __init__(self, group: Group, devices: Sequence[str] = DEVICES) -> None:
        dist.ProcessGroup.__init__(self, group.store, group.rank, group.size)
        self._group, self._inbox = group, Inbox(group)
        self._backend = Backend(group, self._inbox)
        for device in devices:
            self._register_backend(torch.device(device), BackendType.CUSTOM, self._backend)
        self._set_default_backend(BackendType.CUSTOM)

    def split_group(
        self,
        new_ranks: Sequence[int],
        timeout: Optional[timedelta] = None,
        opts: Any = None,
        group_name: Optional[str] = None,
        group_desc: Optional[str] = None,
        device_types: Optional[Sequence[torch.device]] = None,
    ) -> Optional[ProcessGroup]:
        """Makes a group of some of the ranks. Collective among all ranks; ranks that are not listed get None."""
        name = group_name or "split"
        store = dist.PrefixStore(f"{name}/", self._group.store)
        group = split(self._group, list(new_ranks), store, timeout or self._group.timeout, name)
        if group is None:
            return None
        devices = DEVICES if device_types is None else [device.type for device in device_types]
        made = ProcessGroup(group, devices)
        made._set_group_name(name)
        made._set_group_desc(group_desc or f"{self.group_desc}:split")
        return made


def split(parent: Group, ranks: Optional[list[int]], store: Any, timeout: timedelta, name: str) -> Optional[Group]:
    """Returns the communicators for a part of a group; None on ranks outside this part. Collective among all ranks."""
    is_member = ranks is not None and parent.rank in ranks
    color = min(ranks) if ranks is not None and is_member else None
    key = ranks.index(parent.rank) if ranks is not None and is_member else 0
    with as_torch(parent.name), parent.lock:
        made: Optional[Communicator] = parent.host.split(color, key, name=name, timeout=timeout)
    if made is None or ranks is None:
        return None
    return Group(store, key, len(ranks), timeout, name, parent.label, made)


def create(options: Any, _: Any, label: str = NAME) -> Any:
    """Creates a group. torch calls this function for each group of the backend, on the ranks of the group."""
    group = Group(options.store, options.group_rank, options.group_size, options.timeout, options.group_id, label)
    return ProcessGroup(group) if _is_alone(options.process_group) else Backend(group)


def _is_alone(process_group: Any) -> bool:
    """Whether the group that torch is creating uses this backend for all of its devices.

    torch asks for the backend of one device after another. Before that, it has chosen the backend of the accelerator,
    if there is one, as the default.
    """
    return process_group._get_backend_name() == "custom" and not process_group._device_types


def register() -> None:
    """Registers the backend "dsc" in torch.distributed; the entry point of torch 2.14 and newer calls it."""
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=DEVICES)


def replace_gloo() -> None:
    """Makes libdsc serve all groups of the backend "gloo" that are made from now on.

    torch.distributed.get_backend() still returns "gloo". To test whether libdsc serves a group, call
    communicator(group): it raises for other groups.
    """
    if dist.is_initialized() and not has_default_group():
        warnings.warn("replace_gloo() was called after init_process_group(): groups that already exist do not use libdsc", RuntimeWarning, 2)
    create_in_place = functools.partial(create, label="gloo")
    dist.Backend.register_backend("gloo", create_in_place, extended_api=True, devices=DEVICES)


def communicator(process_group: Any = None, device: Any = "cpu") -> Communicator:
    """Returns the communicator of a process group, for features that torch lacks: reducers, sharding, pipelines.

    Args:
        process_group: a group of the backend "dsc"; None: the default group.
        device: the device whose memory it transfers. For a GPU, all ranks together create the communicator at its first
            use.
    """
    found = dist.distributed_c10d._get_default_group() if process_group is None else process_group
    if not isinstance(found, (Backend, ProcessGroup)):
        try:
            found = found._get_backend(torch.device(device))
        except (AttributeError, RuntimeError):
            pass
    if not isinstance(found, (Backend, ProcessGroup)):
        raise TypeError(
            f"process_group is a {type(found).__name__} without the backend dsc; expected a group from"
            ' init_process_group("dsc") or new_group(backend="dsc"), or a communicator of libdsc'
        )
    return found._group.communicator(torch.device(device))


def has_default_group() -> bool:
    """Whether torch's default process group belongs to libdsc."""
    if not dist.is_initialized():
        return False
    found = dist.distributed_c10d._get_default_group()
    return isinstance(found, ProcessGroup) or any(isinstance(found._get_backend(device), Backend) for device in found._device_types)
