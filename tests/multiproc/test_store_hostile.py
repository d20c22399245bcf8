"""Ranks join while other programs attack the server's port: its memory, its processor time and its secrets."""

import collections
import contextlib
import itertools
import os
import pathlib
import resource
import socket
import statistics
import struct
import sys
import threading
import time

import launch
from store_peer import Peer

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from repetitions import repetitions  # noqa: E402

RANKS = 8
SILENT = 4096
MOST_GROWTH_BYTES = 8 << 20
JOINED_S = 10.0  # libdsc promises 1 s, but this machine may be busy
MAGIC = b"dsc-stor"
GREETING_BYTES = 48
VERDICT_BYTES = 36

# The first bytes of port scanners and of programs that connect by mistake.
PROBES = [
    b"",
    b"\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"OPTIONS * RTSP/1.0\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),  # TLS
    b"SSH-2.0-OpenSSH_9.2p1\r\n",
    b"\x80\x00\x00\x28\x72\xfe\x1d\x13\x00\x00\x00\x00\x00\x00\x00\x02",  # RPC
    b"\x00\x06\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",  # DNS
    b"\x3c\x3c\x3c\x3c\xff\xff\xff\xff",  # PyTorch's store, followed by a length
    struct.pack("<QQQ", 0xABABABABABABABAB, 1 << 62, 7),  # NCCL's magic number, followed by a length
    b"\xff" * 4096,
    MAGIC,
    MAGIC + struct.pack("<II", 99, 0),
    MAGIC + b"\x01\x00",
]


def introduction(job=b"\0" * 16, proof=b"\x55" * 32):
    """Returns what a client without the token can send."""
    return MAGIC + struct.pack("<II", 1, 1) + b"\x33" * 16 + job + proof


def allow_descriptors():
    """Returns how many silent connections this process may hold."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = 8192 if hard == resource.RLIM_INFINITY else min(hard, 8192)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(SILENT, soft - 256)


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def try_to_connect(port):
    """Returns None if the server has already closed the connection to make room for the next one."""
    try:
        return connect(port)
    except ConnectionResetError:
        return None


def all_of(connection):
    """Reads until the other side ends the connection in any way."""
    heard = b""
    try:
        while part := connection.recv(4096):
            heard += part
    except ConnectionResetError:
        pass
    return heard


def status(process, name):
    lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def cpu_s(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Job:
    """A server and the ranks that join it, as often as the test wants."""

    def __init__(self):
        self.server = Peer("serve", "127.0.0.1", 0, RANKS)
        self.port = int(self.server.hear())
        self.ranks = [Peer("ask", "127.0.0.1", self.port) for _ in range(RANKS)]
        for rank in self.ranks:
            assert rank.hear() == "ready"
        self.join()  # the first join allocates what later joins reuse
        self.resident_bytes = status(self.server.process, "VmRSS")

    def join(self):
        """All ranks join at the same time and use the store. Returns the seconds of each."""
        for rank in self.ranks:
            rank.say("open")
        answers = [rank.answer() for rank in self.ranks]
        assert {code for _, code, _ in answers} == {"ok"}, answers
        return [seconds for seconds, _, _ in answers]

    def growth(self):
        return status(self.server.process, "VmHWM") - self.resident_bytes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for peer in [*self.ranks, self.server]:
            peer.end()


@contextlib.contextmanager
def meanwhile(attack):
    """Runs attack(over) in a thread until the block ends."""
    over = threading.Event()
    errors = []

    def body():
        try:
            attack(over)
        except BaseException as error:  # the test raises it again
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not errors, errors


def report(what, seconds):
    ordered = sorted(seconds)
    p99 = ordered[max(0, int(len(ordered) * 0.99) - 1)]
    print(f"{what}: {len(ordered)} joins, p50 {statistics.median(ordered) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, max {ordered[-1] * 1e3:.1f} ms")


def crowd(port, count, silent):
    """Opens silent connections as fast as possible."""

    def attack(over):
        while len(silent) < count and not over.is_set():
            silent.append(try_to_connect(port))

    return attack


def flood(port, per_second):
    """Opens connections at this rate. Each sends different bytes, and the latest ones stay open."""

    def attack(over):
        held = collections.deque(maxlen=200)
        start = time.monotonic()
        for number, probe in enumerate(itertools.cycle([*PROBES, introduction()])):
            if over.wait(max(0.0, start + number / per_second - time.monotonic())):
                return
            held.append(try_to_connect(port))
            with contextlib.suppress(OSError):
                if held[-1]:
                    held[-1].sendall(probe)

    return attack


def test_ranks_join_in_a_crowd():
    count = allow_descriptors()
    assert count >= 1000, "the limit of descriptors leaves no room for a crowd"
    with Job() as one:
        report("undisturbed", [s for _ in range(repetitions(20, least=3)) for s in one.join()])
        joins, silent = [], []
        cpu, start = cpu_s(one.server.process), time.monotonic()
        with meanwhile(crowd(one.port, count, silent)), meanwhile(flood(one.port, 1000)):
            while len(silent) < count or time.monotonic() - start < 2:
                joins += one.join()
                assert one.server.counts()["unauthenticated"] <= 64 + 2 * RANKS
        share = (cpu_s(one.server.process) - cpu) / (time.monotonic() - start)
        refused = one.server.counts()["refused"]
        report(f"among {count} silent connections and {refused - count} others in {time.monotonic() - start:.1f} s", joins)
        print(f"the server's CPU with the joins: {share:.0%} of a core; its memory grew by {one.growth() >> 10} KiB")
        assert refused > count / 2
        assert max(joins) < JOINED_S
        assert one.growth() <= MOST_GROWTH_BYTES


def test_probes_get_the_greeting_and_nothing_else():
    with Job() as one:
        for probe in PROBES:
            with contextlib.closing(connect(one.port)) as scanner:
                with contextlib.suppress(OSError):  # the server may refuse before all bytes were sent
                    scanner.sendall(probe)
                    scanner.shutdown(socket.SHUT_WR)
                heard = all_of(scanner)
                assert len(heard) in (0, GREETING_BYTES)  # a reset may arrive before the greeting
                assert heard == b"" or heard.startswith(MAGIC)
        one.join()


def test_a_wrong_token_learns_nothing():
    """The answer has the same bytes, whichever parts of the introduction are right or wrong."""
    with Job() as one:
        one.ranks[0].ask("set secret value")
        answers = set()
        for job_id, proof in itertools.product([bytes(16), b"\x77" * 16], [b"\x00" * 32, b"\x55" * 32, b"\xff" * 32]):
            with contextlib.closing(connect(one.port)) as thief:
                greeting = thief.recv(GREETING_BYTES, socket.MSG_WAITALL)
                assert len(greeting) == GREETING_BYTES
                thief.sendall(introduction(job_id, proof))
                answers.add(all_of(thief))
        assert answers == {bytes(VERDICT_BYTES)}
        counts = one.server.counts()
        assert (counts["refused"], counts["authenticated"]) == (6, RANKS)


def test_silent_strangers_cost_no_time():
    with Job() as one:
        silent = [connect(one.port) for _ in range(64)]
        cpu, start = cpu_s(one.server.process), time.monotonic()
        time.sleep(1)
        share = (cpu_s(one.server.process) - cpu) / (time.monotonic() - start)
        print(f"the server's CPU with 64 silent connections: {share:.0%} of a core")
        assert share < 0.5  # a server in a busy loop would use a whole core
        for connection in silent:
            connection.close()


if __name__ == "__main__":
    launch.main(__file__)
