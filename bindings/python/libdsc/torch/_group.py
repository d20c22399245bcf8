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

NONE_SET = timedelta(milliseconds=-1)  # a time-out in torch's options that nobody has set
LEAST = timedelta(milliseconds=1)  # that a time-out may be

# Communicators that nobody uses any more, with receives that never end: to close them now would end what other ranks are just
# completing. They go with the process.
_kept: list[Communicator] = []


class Coalesced:
    """What one thread starts between start_coalescing() and end_coalescing()."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self._thread = threading.get_ident()

    def add(self, work: Work) -> None:
        """Takes a work of that thread; leaves another thread's."""
        if threading.get_ident() == self._thread:
            self.works.append(work)


class Group:
    """The communicators of one process group.

    Several threads may use it: their operations start one after another.
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
        self.label = label  # what the program calls the backend
        self.timeout = timeout
        self.lock = threading.RLock()  # held while an operation starts, and during one that blocks
        self.coalesced: Optional[Coalesced] = None  # between start_coalescing() and end_coalescing()
        self._thread = threading.get_ident()
        self._is_shared = False  # several threads use it
        self.has_background = False  # the thread of _watch.py has to call the communicator too, so no call may block
        self.awaits_headers = False  # some receive of _messages.py never ends
        self.devices: dict[int, Communicator] = {}  # by the number of the GPU, in the order of their first use
        self._host = self._join(None) if host is None else host
        self._closed = False

    def may_not_block(self) -> bool:
        """Whether an operation must leave the communicator free while it runs, for other threads."""
        if threading.get_ident() != self._thread:
            self._is_shared = True
        return self._is_shared or self.has_background

    def expect_no_background(self, what: str) -> None:
        """Raises where a call that blocks would keep the message of a receive from any source waiting."""
        if self.has_background:
            raise RuntimeError(f"{what} is called while a receive from any source is pending; wait for that receive first")

    def _join(self, device: Optional[int]) -> Communicator:
        place = "host" if device is None else f"device{len(self.devices)}"  # alike on all ranks, as numbers of GPUs are not
        with as_torch(self.name):
            return _world.join(self.store, self.rank, self.size, self.timeout, f"{self.name}/{place}", device)

    @property
    def host(self) -> Communicator:
        """The communicator of memory of the host."""
        if self._closed:
            raise Error(f"the process group {self.name} was shut down or aborted")
        return self._host

    def communicator(self, device: torch.device) -> Communicator:
        """The communicator for tensors on a device; for a GPU it is made at the first use, by all ranks together."""
        if device.type == "cpu":
            return self.host
        if device.type != "cuda":
            raise ValueError(f"the tensor is on {device}; expected a tensor on cpu or cuda")
        number = torch.cuda.current_device() if device.index is None else device.index
        with self.lock:
            known = self.devices.get(number)
            if known is None and not self._closed:
                known = self.devices[number] = self._join(number)
        return self.host if known is None else known  # self.host says why there is none

    def all(self) -> list[Communicator]:
        """All communicators, that of the host first."""
        return [self._host, *self.devices.values()]

    def error(self) -> Optional[errors.DscError]:
        """The first failure of any of them."""
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
        """Ends this rank's part. With abort all ranks get an error at once, and else those that wait for this one."""
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
    """Gives the operations that start in a block another time-out than their group's, which may be set meanwhile."""
    comm.set_timeout(max(timeout, LEAST))
    try:
        yield
    finally:
        comm.set_timeout(group.timeout)
