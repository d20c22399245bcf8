"""Messages between two ranks of a process group, with torch's tags, and from any source.

Each message travels behind a small header with its tag. libdsc delivers the messages from one rank to another in the order in
which they were sent, whatever their tags: a receive that wants another tag than the one that comes fails, with both,
instead of getting the wrong data. For a receive from any source a header is awaited from every rank, and the message
of the first one that comes is received. On a GPU there are no headers, as NCCL has no tags.
"""

from __future__ import annotations

import select
import time
from datetime import timedelta
from typing import Any, Optional

import torch

from libdsc import _raw, errors
from libdsc import _work as _libdsc_work
from libdsc._communicator import Communicator
from libdsc.torch import _watch
from libdsc.torch._errors import Error
from libdsc.torch._group import Group
from libdsc.torch._work import Check, Work

MARK = 0x6473635F746167  # the first number of a header
LOOKS = 200  # at headers, before a wait for any of them sleeps
Header = tuple[_libdsc_work.Work, torch.Tensor]


def send(comm: Communicator, x: torch.Tensor, peer: int, tag: int, in_batch: bool) -> tuple[list[Any], Check]:
    """Starts to send; returns the works, and what is to be done when they are over."""
    works = []
    if comm._device < 0:
        works.append(comm.send(torch.tensor([MARK, tag]), peer, not in_batch))
    works.append(comm.send(x, peer, not in_batch))
    return works, None


class Inbox:
    """The messages that one rank receives in a group, on the host."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._headers: dict[int, Header] = {}  # by rank: under way, and not yet of any message that is received
        self._any: list[AnySource] = []  # receives from any source that have no message yet, in their order

    def recv(self, comm: Communicator, x: torch.Tensor, peer: int, tag: int, in_batch: bool) -> tuple[list[Any], Check]:
        """Starts to receive; returns the works, and what says who sent once they are over, or raises for a wrong tag."""
        if comm._device >= 0:
            return [comm.recv(x, peer, not in_batch)], lambda: peer
        if self._any:
            raise NotImplementedError(
                f"receiving from rank {peer} while a receive from any source waits; expected the end of that one first"
            )
        awaited, header = self._headers.pop(peer, None) or _await_header(comm, peer, in_batch)
        return [awaited, comm.recv(x, peer, not in_batch)], lambda: _checked(header, peer, tag)

    def recv_any(self, x: torch.Tensor, result: Any, tag: int) -> AnySource:
        """Starts to receive from whichever rank sends first."""
        for peer in range(self._group.size):
            if peer != self._group.rank and peer not in self._headers:
                self._headers[peer] = _await_header(self._group.host, peer, False)
        work = AnySource(self, x, result, tag)
        self._any.append(work)
        self._group.has_background = True
        _watch.watch(work, torch.futures.Future())  # a blocking call here would keep the sender waiting otherwise
        return work

    def match(self) -> None:
        """Starts the message of each header that has come, for the receives from any source in their order."""
        with self._group.lock:
            while self._any:
                peer = next((peer for peer, (work, _) in self._headers.items() if work.test()), None)
                if peer is None:
                    return
                self._any.pop(0).take(peer, self._headers.pop(peer))
            self._group.has_background = False

    def awaited(self) -> list[_libdsc_work.Work]:
        return [work for work, _ in self._headers.values()]


class AnySource(Work):
    """A receive from any source: first of a header from every rank, then of the message of one."""

    def __init__(self, inbox: Inbox, x: torch.Tensor, result: Any, tag: int) -> None:
        super().__init__([], result, inbox._group.name)
        self._inbox, self._x, self._tag = inbox, x, tag
        self._is_matched = False

    def take(self, peer: int, header: Header) -> None:
        """Receives the message of a header that has come."""
        awaited, numbers = header
        self._check = lambda: _checked(numbers, peer, self._tag)
        try:
            self._works = [awaited, self._inbox._group.host.recv(self._x, peer, True)]
        except errors.DscError:
            self._works = [awaited]  # whose failure is that of the group
        self._is_matched = True

    def parts(self) -> list[_libdsc_work.Work]:
        return list(self._works) if self._is_matched else self._inbox.awaited()

    def is_completed(self) -> bool:
        if not self._is_matched:
            self._inbox.match()
        return self._is_matched and super().is_completed()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        limit_s = timeout.total_seconds() if timeout is not None and timeout > timedelta(0) else None
        end_s = None if limit_s is None else time.monotonic() + limit_s
        for look in range(1 << 62):
            if self.is_completed() or self._is_matched:
                return super().wait(timeout)
            if end_s is not None and time.monotonic() > end_s:
                raise Error(f"no message came from any rank within {limit_s} s; the receive goes on")
            if look >= LOOKS:
                _sleep_until_any(self.parts())
        raise AssertionError("unreachable")


def _await_header(comm: Communicator, peer: int, in_batch: bool) -> Header:
    header = torch.zeros(2, dtype=torch.int64)
    return comm.recv(header, peer, not in_batch), header  # type: ignore[return-value]


def _checked(header: torch.Tensor, peer: int, tag: int) -> int:
    mark, came = header.tolist()
    if mark == MARK and came == tag:
        return peer
    text = f"rank {peer} sent a message with tag {came}, and this rank receives one with tag {tag}"
    hint = "; the messages of a pair of ranks come in the order in which they were sent"
    raise errors.from_code(_raw.Result.ERR_MISMATCH, text + hint, rank=peer, ranks=(peer,))


def _sleep_until_any(works: list[_libdsc_work.Work]) -> None:
    """Sleeps until one of them may have completed; for a moment where one has by now."""
    poll = select.poll()
    for work in works:
        try:
            poll.register(work.fileno(), select.POLLIN)
        except (ValueError, errors.DscError):
            return
    poll.poll(100)
