"""Ranks of one world as processes, on this machine or on hosts that a test has made (netns.py)."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
from typing import Any, Mapping, Optional, Sequence

from netns import Hosts

TOKEN = "5e" * 32
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "DSC_TOKEN")
FIXED_PORT = 29500  # any port is free on a simulated host (netns.py), where nothing else runs
LIMIT_S = 60  # the time limit of one run on a busy machine


def free_port() -> int:
    """Returns a port that a connection of another test is unlikely to get before a server takes it."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::", port))
            except OSError:
                continue
        return port


def environment(**variables: str) -> dict[str, str]:
    """Returns this process's environment without variables of a launcher or of an earlier job."""
    return {name: value for name, value in os.environ.items() if name not in LAUNCHERS} | variables


# For the code of a rank: returns when `ranks` ranks have reached this line, without using the library. A rank that then
# dies or leaves does not disturb a rank that has not yet noticed the end of the last operation.
MEET = """
def meet(name, ranks):
    import os, pathlib, time
    folder = pathlib.Path(os.environ["MEETINGS"])
    (folder / f"{name}.{os.environ['RANK']}").touch()
    end = time.monotonic() + 50
    while len(list(folder.glob(f"{name}.*"))) < ranks:
        assert time.monotonic() < end, f"not all came to {name}"
        time.sleep(0.005)
"""


class Job:
    """`size` ranks that find each other through TCP. Each runs `code`, or `command`."""

    def __init__(self, size: int, code: str = "", command: Optional[Sequence[str]] = None, hosts: Optional[Hosts] = None, **variables: str):
        self.size, self.hosts = size, hosts
        self.command = command or [sys.executable, "-c", code]
        self.ranks: list[subprocess.Popen[str]] = []
        self.meetings = tempfile.TemporaryDirectory()
        self.environment = environment(
            WORLD_SIZE=str(size),
            LOCAL_WORLD_SIZE="1",
            MASTER_ADDR=hosts.address(0) if hosts else "127.0.0.1",
            MASTER_PORT=str(FIXED_PORT if hosts else free_port()),
            DSC_TOKEN=TOKEN,
            MEETINGS=self.meetings.name,
        )
        self.environment |= variables

    @property
    def port(self) -> int:
        return int(self.environment["MASTER_PORT"])

    def start(self, rank: int, host: int = 0, **variables: str) -> subprocess.Popen[str]:
        options: Mapping[str, Any] = dict(env=self.environment | {"RANK": str(rank)} | variables, stdout=subprocess.PIPE, text=True)
        started = self.hosts.run(host, self.command, **options) if self.hosts else subprocess.Popen(self.command, **options)
        self.ranks.append(started)
        return started

    def start_all(self, ranks: Optional[Sequence[int]] = None) -> Job:
        for rank in range(self.size) if ranks is None else ranks:
            self.start(rank)
        return self

    def place(self, hosts: Sequence[int]) -> Job:
        """Puts rank i on host hosts[i]. If all are this machine, DSC_HOST_ID makes them look like different hosts."""
        for rank, host in enumerate(hosts):
            own = {} if self.hosts else {"DSC_HOST_ID": f"host{host}"}
            self.start(rank, host, LOCAL_WORLD_SIZE=str(hosts.count(host)), **own)
        return self

    def finish(self) -> list[str]:
        """Returns what each rank printed, in the order in which the ranks were started."""
        return [rank.communicate(timeout=LIMIT_S)[0].strip() for rank in self.ranks]
