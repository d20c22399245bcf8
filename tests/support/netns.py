"""Hosts for tests: network namespaces on one private bridge, so that the network of this machine is not touched.

    with netns.Hosts(2) as hosts:
        server = hosts.run(0, [program, hosts.address(0)])
        hosts.cut(1)    # as if the cable was unplugged: neither end is notified
        hosts.join(1)

A namespace exists as long as a process in it: a shell that ends with its standard input. So nothing is left behind even
if the test is killed. Where namespaces are not allowed, unavailable() returns the reason.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
from types import TracebackType
from typing import IO, Any, Optional, Sequence

LIMIT_S = 20  # for each step of creating and removing the hosts


class Unavailable(Exception):
    """This machine does not allow network namespaces. The text gives the reason."""


class _Namespace:
    """A network namespace, and the shell that keeps it alive."""

    def __init__(self, inside: Sequence[str], unshare: Sequence[str]):
        script = "ip link set lo up && echo ready && exec cat"
        command = [*inside, "unshare", *unshare, "sh", "-c", script]
        pipe = subprocess.PIPE
        try:
            self._keeper = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        except FileNotFoundError as error:
            raise Unavailable(f"{error.filename} is missing (Debian: iproute2, util-linux)") from error
        self.pid = self._keeper.pid  # each of these commands replaces itself by the next one
        if _pipe(self._keeper.stdout).readline() != "ready\n":
            raise Unavailable(_pipe(self._keeper.stderr).read().strip() or "no namespace, for no reason given")

    def close(self) -> None:
        self._keeper.communicate(timeout=LIMIT_S)


def _pipe(pipe: Optional[IO[str]]) -> IO[str]:
    assert pipe is not None
    return pipe


@functools.lru_cache(maxsize=None)
def _own_user() -> bool:
    """Returns whether a user namespace is also needed: for ordinary users, and where root has too few rights."""
    if os.geteuid() != 0:
        return True
    try:
        _Namespace([], ["--net"]).close()
        return False
    except Unavailable:
        return True


@functools.lru_cache(maxsize=None)
def unavailable() -> Optional[str]:
    """Returns why hosts cannot be made here, or None if they can."""
    try:
        with Hosts(1):
            return None
    except Unavailable as error:
        return str(error)


class Hosts:
    """Hosts 0 to count - 1. They reach each other at address(i) and address6(i)."""

    def __init__(self, count: int):
        assert 1 <= count <= 250
        self._count = count
        self._namespaces: list[_Namespace] = []  # first that of the bridge, then one for each host
        self._processes: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Hosts:
        try:
            self._build()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self._close()

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def address6(self, host: int) -> str:
        return f"fd77::{host + 1:x}"

    def run(self, host: int, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Starts a program with Popen's options. The process id is that of the program itself.

        In the end the program and all processes that it started are killed.
        """
        process = subprocess.Popen([*self._enter(host + 1), *argv], start_new_session=True, **popen)
        self._processes.append(process)
        return process

    def cut(self, host: int) -> None:
        """From now on no packet reaches or leaves this host. Neither end is notified."""
        self._ip(0, f"link set port{host} nomaster")

    def join(self, host: int) -> None:
        """Reverses cut()."""
        self._ip(0, f"link set port{host} master bridge")

    def take_ipv6(self, host: int) -> None:
        """Removes IPv6, so that this host has only IPv4."""
        self._ip(host + 1, f"address del {self.address6(host)}/64 dev eth0")

    def take_ipv4_loopback(self, host: int) -> None:
        """Removes the IPv4 loopback address, so that this host has only ::1."""
        self._ip(host + 1, "address del 127.0.0.1/8 dev lo")

    def _build(self) -> None:
        own_user = ["--user", "--map-root-user"] if _own_user() else []
        self._namespaces.append(_Namespace([], [*own_user, "--net"]))
        self._ip(0, "link add bridge type bridge", "link set bridge up")
        for host in range(self._count):
            self._namespaces.append(_Namespace(self._enter(0), ["--net"]))
            pid = self._namespaces[-1].pid
            self._ip(
                0,
                f"link add port{host} type veth peer name eth0 netns {pid}",
                f"link set port{host} master bridge up",
            )
            self._ip(
                host + 1,
                f"address add {self.address(host)}/24 dev eth0",
                f"address add {self.address6(host)}/64 dev eth0 nodad",
                "link set eth0 up",
            )

    def _enter(self, namespace: int) -> list[str]:
        own_user = ["--user", "--preserve-credentials"] if _own_user() else []
        return ["nsenter", "--target", str(self._namespaces[namespace].pid), *own_user, "--net", "--"]

    def _ip(self, namespace: int, *commands: str) -> None:
        done = subprocess.run(
            [*self._enter(namespace), "ip", "-batch", "-"],
            input="\n".join(commands) + "\n",
            text=True,
            capture_output=True,
            timeout=LIMIT_S,
        )
        if done.returncode != 0:
            raise Unavailable(f"ip {commands}: {done.stderr.strip()}")

    def _close(self) -> None:
        for process in self._processes:
            try:
                # the session of the program, whose number stays reserved while it has members
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self._processes:
            process.wait(LIMIT_S)
        for namespace in reversed(self._namespaces):
            namespace.close()
        self._processes.clear()
        self._namespaces.clear()
