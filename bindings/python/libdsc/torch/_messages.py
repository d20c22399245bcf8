"""Messages between two ranks of a process group, with torch's tags, and from any source.

A small header with the tag precedes each message. libdsc delivers messages from one rank to another in the order in
which they were sent, for all tags. If the next message has another tag than a receive expects, the receive fails and
the error names both tags, so it never gets wrong data.

A receive from any source waits for a header from every rank. It then receives the message of the first header with its
tag. If a rank leaves while others wait for its header, the group ends for all ranks. So ranks that receive from any
source must meet before they leave. On a GPU there are no headers, because NCCL has no tags.
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
from libdsc.torch._errors import Error, translated
from libdsc.torch._group import Group, with_timeout
from libdsc.torch._work import Check, Work

MARK = 0x6473635F746167  # the first number of a header
FOREVER = timedelta(milliseconds=2**31 - 1)
BUSY_S = 0.001  # the wait before the next try, if the communicator is busy
# The number of checks for headers before a wait starts to sleep.
LOOKS = 200
Header = tuple[_libdsc_work.Work, torch.Tensor]


def send(comm: Communicator, x: torch.Tensor, peer: int, tag: int) -> tuple[list[Any], Check]:
    """Starts a send. Returns the works, and the check to make when they have completed: none for a send."""
    works = []
    if comm._device < 0:
        works.append(comm.send(torch.tensor([MARK, tag]), peer, True))
    works.append(comm.send(x, peer, True))
    return works, None


class Inbox:
    """The messages that one rank receives in a group, on the host."""

    def __init__(self, group: Group) -> None:
        self._group = group
        # For each rank, the header of a message that no receive has taken yet. It may not have arrived.
        self._headers: dict[int, Header] = {}
        # The receives from any source that have no message yet, oldest first.
        self._any: list[AnySource] = []

    def recv(self, comm: Communicator, x: torch.Tensor, peer: int, tag: int) -> tuple[list[Any], Check]:
        """Starts a receive. Returns its works, and a function to call when they have completed.

        The function returns the sender. It raises an exception if the message has a wrong tag.
        """
        if comm._device >= 0:
            return [comm.recv(x, peer, True)], lambda: peer
        if self._any:
            raise NotImplementedError(
                f"a receive from rank {peer} is called while a receive from any source is pending; wait for that receive first"
            )
        header, numbers = self._headers.pop(peer, None) or _awaited(comm, peer)
        return [header, comm.recv(x, peer, True)], lambda: _checked(numbers, peer, tag)

    def recv_any(self, x: torch.Tensor, result: Any, tag: int) -> AnySource:
        """Starts a receive from any source: it gets the first message with its tag."""
        self._await_headers()
        work = AnySource(self, x, result, tag)
        self._any.append(work)
        self._group.has_background = True
        # The watching thread checks for headers. Otherwise the sender would wait during other blocking calls of this
        # rank.
        _watch.watch(work, torch.futures.Future())
        return work

    def _await_headers(self) -> None:
        """Starts to receive a header from each rank, without a time-out.

        A rank that never sends must not end the group.
        """
        group = self._group
        group.awaits_headers = True
        with with_timeout(group, group.host, FOREVER):
            for peer in set(range(group.size)) - {group.rank} - self._headers.keys():
                self._headers[peer] = _awaited(group.host, peer)

    def match(self) -> None:
        """Starts to receive messages whose headers have arrived, for the receives from any source, oldest first."""
        with self._group.lock:
            for work in list(self._any):
                peer = next((peer for peer in self._headers if self._has_come(peer, work.tag)), None)
                if peer is None or not work.take(peer, self._headers[peer]):
                    continue
                self._any.remove(work)
                del self._headers[peer]
            if self._any:
                self._await_headers()
            self._group.has_background = bool(self._any)

    def _has_come(self, peer: int, tag: int) -> bool:
        """Whether the next message of a rank has this tag.

        Also True after a failure, so that the receive reports it.
        """
        work, numbers = self._headers[peer]
        return work.test() and (work.error() is not None or int(numbers[1]) == tag)

    def awaited(self) -> list[_libdsc_work.Work]:
        """Returns the works of the headers that have not arrived."""
        return [work for work, _ in list(self._headers.values()) if not work.test()]


class AnySource(Work):
    """A receive from any source. It first waits for headers from every rank, then receives the message of one rank."""

    def __init__(self, inbox: Inbox, x: torch.Tensor, result: Any, tag: int) -> None:
        super().__init__([], result, inbox._group.name)
        self.tag = tag
        self._inbox, self._x = inbox, x
        self._timeout_s = inbox._group.timeout.total_seconds()
        self._end_s = time.monotonic() + self._timeout_s
        self._is_matched = False

    def take(self, peer: int, header: Header) -> bool:
        """Starts to receive the message of a header.

        Returns False if the communicator is busy with another thread's call.
        """
        work, numbers = header
        self._check = lambda: _checked(numbers, peer, self.tag)
        self._works = [work]
        try:
            if work.error() is None:
                self._works = [work, self._inbox._group.host.irecv(self._x, peer)]
        except errors.BusyError:
            time.sleep(BUSY_S)
            return False
        except errors.DscError as error:
            self._failure = translated(error, self._group)
        self._is_matched = True
        return True

    def parts(self) -> list[_libdsc_work.Work]:
        return list(self._works) if self._is_matched else self._inbox.awaited()

    def is_completed(self) -> bool:
        if not self._is_matched:
            self._inbox.match()
        return self._is_matched and super().is_completed()

    def _wait_for_all(self, limit_s: Optional[float]) -> None:
        end_s = self._end_s if limit_s is None else min(self._end_s, time.monotonic() + limit_s)
        looks = 0
        while not self.is_completed() and not self._is_matched:
            if time.monotonic() > end_s:
                waited_s = self._timeout_s if limit_s is None else limit_s
                raise Error(f"no message with tag {self.tag} arrived from any rank within {waited_s} s; the receive is still pending")
            looks += 1
            if looks > LOOKS:
                _sleep_until_any(self.parts())
        super()._wait_for_all(limit_s)


def _awaited(comm: Communicator, peer: int) -> tuple[Any, torch.Tensor]:
    numbers = torch.zeros(2, dtype=torch.int64)
    return comm.recv(numbers, peer, True), numbers


def _checked(header: torch.Tensor, peer: int, tag: int) -> int:
    mark, came = header.tolist()
    if mark == MARK and came == tag:
        return peer
    text = f"rank {peer} sent a message with tag {came}, but this rank receives a message with tag {tag}"
    hint = "; the messages between two ranks arrive in the order in which they were sent"
    raise errors.from_code(_raw.Result.ERR_MISMATCH, text + hint, rank=peer, ranks=(peer,))


def _sleep_until_any(works: list[_libdsc_work.Work]) -> None:
    """Sleeps until one of the works may have completed, or for at most 100 ms."""
    poll = select.poll()
    for work in works:
        try:
            poll.register(work.fileno(), select.POLLIN)
        except (ValueError, errors.DscError):
            return  # the work has completed
    poll.poll(100)
