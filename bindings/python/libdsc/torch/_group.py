"""The communicators of a process group of torch: one for host memory, and one for each GPU that was used."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Iterator, Optional

import torch

from libdsc import errors
from libdsc._communicator import Communicator
from libdsc.torch import _world
from libdsc.torch._work import Work
from libdsc.torch._errors import Error, as_torch

NONE_SET = timedelta(milliseconds=-1)  # the time-out in torch's options if the caller did not set one
LEAST = timedelta(milliseconds=1)  # the smallest time-out

# Communicators of closed groups with receives that never end. Closing them would abort operations that other ranks are
# just completing, so they stay open until the process ends.
_kept: list[Communicator] = []


class Coalesced:
    """The works that one thread starts between start_coalescing() and end_coalescing()."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self._thread = threading.get_ident()

    def add(self, work: Work) -> None:
        """Adds a work if this thread called start_coalescing(); ignores works of other threads."""
        if threading.get_ident() == self._thread:
            self.works.append(work)


class Group:
    """The communicators of one process group.

    Several threads may use it. Their operations start one after another.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        timeout: timedelta,
        name: str,
        label: str,
        host: Optional[Communicator] = None,
    ) -> None:
        self.store, self.rank, self.size, self.name = store, rank, size, name
        self.label = label  # the name under which the program registered the backend
        self.timeout = timeout
        # Held while an operation starts, and during a blocking operation.
        self.lock = threading.RLock()
        self.coalesced: Optional[Coalesced] = None  # between start_coalescing() and end_coalescing()
        self._thread = threading.get_ident()
        self._is_shared = False  # whether several threads use it
        # Whether the thread of _watch.py must also call the communicator. Then no call may block.
        self.has_background = False
        self.awaits_headers = False  # whether a receive of _messages.py waits without end
        # Keys are the numbers of GPUs, in the order of their first use.
        self.devices: dict[int, Communicator] = {}
        self._host = self._join(None) if host is None else host
        self._closed = False

    def may_not_block(self) -> bool:
        """Whether an operation must not block the communicator while it runs, because other threads need it."""
        if threading.get_ident() != self._thread:
            self._is_shared = True
        return self._is_shared or self.has_background

    def expect_no_background(self, what: str) -> None:
        """Raises RuntimeError if a blocking call would delay the message of a receive from any source."""
        if self.has_background:
            raise RuntimeError(f"{what} is called while a receive from any source is pending; wait for that receive first")

    def _join(self, device: Optional[int]) -> Communicator:
        # The name must be equal on all ranks, so it does not contain the number of the GPU, which may differ.
        place = "host" if device is None else f"device{len(self.devices)}"
        with as_torch(self.name):
            return _world.join(self.store, self.rank, self.size, self.timeout, f"{self.name}/{place}", device)

    @property
    def host(self) -> Communicator:
        """The communicator for host memory."""
        if self._closed:
            raise Error(f"the process group {self.name} was shut down or aborted")
        return self._host

    def communicator(self, device: torch.device) -> Communicator:
        """Returns the communicator for tensors on a device.

        For a GPU, all ranks together create it at the first use.
        """
        if device.type == "cpu":
            return self.host
        if device.type != "cuda":
            raise ValueError(f"the tensor is on {device}; expected a tensor on cpu or cuda")
        number = torch.cuda.current_device() if device.index is None else device.index
        with self.lock:
            known = self.devices.get(number)
            if known is None and not self._closed:
                known = self.devices[number] = self._join(number)
        return self.host if known is None else known  # self.host raises the error if the group was closed

    def all(self) -> list[Communicator]:
        """Returns all communicators; that of the host is first."""
        return [self._host, *self.devices.values()]

    def error(self) -> Optional[errors.DscError]:
        """Returns the first failure of any of the communicators."""
        if self._closed:
            return None
        return next(filter(None, (comm.error() for comm in self.all())), None)

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the time-out of operations that start from now on."""
        self.timeout = timeout
        if not self._closed:
            for comm in self.all():
                comm.set_timeout(timeout)

    def close(self, abort: bool) -> None:
        """Closes the group on this rank.

        With abort, all ranks get an error now; otherwise only ranks that wait for this one.
        """
        if self._closed:
            return
        self._closed = True
        for comm in self.all():
            if abort:
                comm.abort()
            if not abort and comm is self._host and self.awaits_headers:
                _kept.append(comm)
            else:
                comm.close()
        self.devices.clear()


@contextmanager
def with_timeout(group: Group, comm: Communicator, timeout: timedelta) -> Iterator[None]:
    """Sets another time-out for the operations that start in its block.

    Afterwards the group's time-out applies again.
    """
    comm.set_timeout(max(timeout, LEAST))
    try:
        yield
    finally:
        comm.set_timeout(group.timeout)
