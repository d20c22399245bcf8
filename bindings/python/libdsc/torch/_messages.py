"""Messages between two ranks, with torch's tags.

libdsc delivers the messages from one rank to another in the order in which they were sent, whatever their tags. A tag that is not 0 travels ahead of its message and is
compared: a receive that wants another one fails, with both, instead of getting the wrong data.
"""

from __future__ import annotations

from typing import Any

import torch

from libdsc import _raw, errors
from libdsc._communicator import Communicator
from libdsc.torch._work import Check

MARK = 0x6473635F746167  # so that no message of the program is taken for a tag


def send(comm: Communicator, x: torch.Tensor, peer: int, tag: int, in_batch: bool) -> tuple[list[Any], Check]:
    """Starts to send; returns the works, and what is to be checked when they are over."""
    if not _has_tag(comm, tag):
        return [comm.send(x, peer, not in_batch)], None
    header = torch.tensor([MARK, tag], dtype=torch.int64)
    return [comm.send(header, peer, not in_batch), comm.send(x, peer, not in_batch)], None


def recv(comm: Communicator, x: torch.Tensor, peer: int, tag: int, in_batch: bool) -> tuple[list[Any], Check]:
    """Starts to receive; returns the works, and what says who sent once they are over, or raises for a wrong tag."""
    if not _has_tag(comm, tag):
        return [comm.recv(x, peer, not in_batch)], lambda: peer
    header = torch.zeros(2, dtype=torch.int64)
    works = [comm.recv(header, peer, not in_batch), comm.recv(x, peer, not in_batch)]

    def check() -> int:
        mark, came = header.tolist()
        if mark != MARK or came != tag:
            text = f"rank {peer} sent a message with tag {came}, and this rank receives one with tag {tag}"
            raise errors.from_code(_raw.Result.ERR_MISMATCH, text + "; messages of a pair of ranks come in the order in which they were sent")
        return peer

    return works, check


def _has_tag(comm: Communicator, tag: int) -> bool:
    """On a GPU tags are not looked at, as with NCCL."""
    return tag != 0 and comm._device < 0
