"""The store of torchrun's agent: the real one where PyTorch is installed, and servers that follow a script."""

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import launch
import pytest
from launch import AT_ONCE_S, LIMIT_S, PYTHON

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import jobs  # noqa: E402

CLIENT = os.environ.get("AGENT_CLIENT", "")
ENVIRONMENT = os.environ | {"TORCHELASTIC_RUN_ID": "run", "TORCHELASTIC_RESTART_COUNT": "2"}
PREFIX = "dsc/run/2/0/"
TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode == 0
needs_torch = pytest.mark.skipif(not TORCH, reason="no module torch")


def start(port, *steps, timeout_ms=20_000):
    words = [str(word) for step in steps for word in step]
    command = [CLIENT, str(port), str(timeout_ms), *words]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)


def finish(process):
    """Returns [(milliseconds, code, text)]."""
    out, _ = process.communicate(timeout=LIMIT_S)
    lines = [line.split(" ", 2) for line in out.splitlines()]
    return [(int(ms), code, text) for ms, code, text in lines]


def steps(port, *wanted, **options):
    return finish(start(port, *wanted, **options))


# ---- servers ------------------------------------------------------------------------------------------------------


class Closed(Exception):
    pass


class Conversation:
    def __init__(self, connection, slowly=False):
        self.connection, self.slowly = connection, slowly

    def read(self, count):
        data = b""
        while len(data) < count:
            part = self.connection.recv(count - len(data))
            if not part:
                raise Closed
            data += part
        return data

    def number(self, form):
        return struct.unpack(form, self.read(struct.calcsize(form)))[0]

    def text(self):
        length = self.number("=Q")
        if length > 1 << 20:
            raise Closed  # PyTorch's store refuses such a long text too
        return self.read(length)

    def write(self, data):
        for part in [data[i : i + 1] for i in range(len(data))] if self.slowly else [data]:
            self.connection.sendall(part)
            time.sleep(0.005 if self.slowly else 0)


def hold(talk, connection):
    """Serves one connection until either side ends it."""
    with connection:
        try:
            talk(connection)
        except (Closed, OSError):
            pass


@contextmanager
def serve(talk):
    """Runs talk(connection) for every connection, on threads. Yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections = []

        def accept():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connections.append(connection)
                threading.Thread(target=hold, args=(talk, connection), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        for connection in connections:
            connection.close()


class Store:
    """Behaves like PyTorch's store, of either generation."""

    SET, GET, CHECK, WAIT, COUNT = 1, 3, 5, 6, 7

    def __init__(self, handshake, slowly=False):
        self.values, self.changed = {}, threading.Condition()
        self.handshake, self.slowly = handshake, slowly

    def __call__(self, connection):
        peer = Conversation(connection, self.slowly)
        if self.handshake:
            if peer.read(1) != b"\0" or peer.number("=I") != 0x3C85F7CE:
                return
        while True:
            self.answer(peer, peer.read(1)[0] + (0 if self.handshake else 1))

    def answer(self, peer, request):
        if request == self.SET:
            key, value = peer.text(), peer.text()
            with self.changed:
                self.values[key] = value
                self.changed.notify_all()
        elif request == self.GET:
            value = self.values[peer.text()]
            peer.write(struct.pack("=Q", len(value)) + value)
        elif request == self.CHECK:
            keys = [peer.text() for _ in range(peer.number("=Q"))]
            peer.write(b"\0" if all(key in self.values for key in keys) else b"\1")
        elif request == self.WAIT:
            keys = [peer.text() for _ in range(peer.number("=Q"))]
            with self.changed:
                self.changed.wait_for(lambda: all(key in self.values for key in keys), LIMIT_S)
            peer.write(b"\0")
        elif request == self.COUNT:
            peer.write(struct.pack("=q", len(self.values)))
        else:
            raise Closed


def greet(connection):
    """Answers the greeting of both generations of clients."""
    peer = Conversation(connection)
    peer.read(9)
    peer.write(bytes(32))  # four numbers of 0 keys
    return peer


# ---- the protocol -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slowly", [False, True])
@pytest.mark.parametrize("handshake", [True, False])
def test_both_generations(handshake, slowly):
    store = Store(handshake, slowly)
    with serve(store) as port:
        waiting = start(port, ("get", "b", 1), ("get", "a", 0))
        assert [(code, text) for _, code, text in steps(port, ("put", "a", "of 0"), ("put", "b", ""))] == [("ok", "")] * 2
        assert [(code, text) for _, code, text in finish(waiting)] == [("ok", ""), ("ok", "of 0")]
    assert store.values == {f"/{PREFIX}a".encode(): b"of 0", f"/{PREFIX}b".encode(): b""}


@pytest.mark.parametrize("handshake", [True, False])
def test_a_key_that_never_comes(handshake):
    with serve(Store(handshake)) as port:
        # The connection whose wait timed out is closed. The next call makes another connection.
        late, put = steps(port, ("get", "missing", 3), ("put", "a", "1"), timeout_ms=500)
    assert late[1] == "DSC_ERR_TIMEOUT" and "'missing' of rank 3" in late[2] and 500 <= late[0] < 1000 * AT_ONCE_S
    assert put[1] == "ok"


def test_it_waits_for_an_agent_that_comes_later():
    port = jobs.free_port()
    client = start(port, ("put", "a", "1"))
    time.sleep(0.3)
    with socket.create_server(("127.0.0.1", port)) as listener:
        connection, _ = listener.accept()
        threading.Thread(target=hold, args=(Store(True), connection), daemon=True).start()
        assert finish(client)[0][1] == "ok"


def test_nobody_is_there():
    port = jobs.free_port()
    ((elapsed_ms, code, text),) = steps(port, ("get", "a", 0), timeout_ms=400)
    assert code == "DSC_ERR_TIMEOUT" and 400 <= elapsed_ms < 1000 * AT_ONCE_S
    assert f"127.0.0.1:{port} cannot be reached; tried 127.0.0.1 (Connection refused)" in text


def say_and_close(data):
    def talk(connection):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(100)

    return talk


def say_and_wait(data):
    def talk(connection):
        connection.sendall(data)
        time.sleep(LIMIT_S)

    return talk


@pytest.mark.parametrize(
    "talk, words",
    [
        (say_and_close(b"HTTP/1.1 400 Bad Request\r\n"), "answers, but is not PyTorch's store, which torchrun runs there (got 48 54 54 50 2f 31 2e 31)"),
        (say_and_wait(b"SSH-2.0-x\r\n"), "(got 53 53 48 2d 32 2e 30 2d)"),
        (say_and_close(b"\xff\x00"), "(got ff 00)"),
        (say_and_wait(b"\xff\x00"), "(got ff 00)"),
        (say_and_close(b""), "closes the connection"),
        (lambda connection: connection.recv(1), "closes the connection"),
        (lambda connection: greet(connection).write(b"\x07"), "(got 07)"),
        (lambda connection: (greet(connection).write(b"\0\xff\xff\xff\xff\xff\xff\xff\x7f"), connection.recv(100)), "(got ff ff ff ff ff ff ff 7f)"),
    ],
)
def test_somebody_else_answers(talk, words):
    with serve(talk) as port:
        ((elapsed_ms, code, text),) = steps(port, ("get", "a", 0), timeout_ms=5000)
    assert code == "DSC_ERR_PROTOCOL" and words in text and f"127.0.0.1:{port}" in text
    assert elapsed_ms < 5000 + 1000 * AT_ONCE_S


@pytest.mark.parametrize(
    "talk",
    [
        lambda connection: time.sleep(LIMIT_S),
        lambda connection: (greet(connection).write(b"\0\x05\0\0"), time.sleep(LIMIT_S)),
        lambda connection: (greet(connection).write(b"\0" + struct.pack("=Q", 5) + b"val"), time.sleep(LIMIT_S)),
    ],
)
def test_silence_ends_in_time(talk):
    with serve(talk) as port:
        ((elapsed_ms, code, text),) = steps(port, ("get", "a", 0), timeout_ms=500)
    assert code == "DSC_ERR_TIMEOUT" and f"127.0.0.1:{port}" in text and 500 <= elapsed_ms < 1000 * AT_ONCE_S


def test_an_agent_that_dies():
    def talk(connection):
        greet(connection).read(20)

    with serve(talk) as port:
        ((elapsed_ms, code, text),) = steps(port, ("get", "a", 0))
    assert code == "DSC_ERR_SYSTEM" and "the store of torchrun's agent at 127.0.0.1" in text and elapsed_ms < 1000 * AT_ONCE_S


# ---- PyTorch itself -----------------------------------------------------------------------------------------------

HOST = """
import sys, torch.distributed as dist
from datetime import timedelta
store = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=30), wait_for_workers=False)
print(store.port, flush=True)
store.set("PREFIXfrom torch", "theirs")
print(store.get("PREFIXfrom us").decode(), flush=True)
sys.stdin.read()
""".replace("PREFIX", PREFIX)


@needs_torch
def test_a_store_of_pytorch():
    command = [PYTHON, "-c", HOST]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        port = int(host.stdout.readline())
        got, put, late = steps(port, ("get", "from torch", 0), ("put", "from us", "ours"), ("get", "none", 1), timeout_ms=3000)
        assert (got[1:], put[1:], late[1]) == (("ok", "theirs"), ("ok", ""), "DSC_ERR_TIMEOUT")
        assert host.stdout.readline() == "ours\n"
        # the store has survived the greeting that it does not know
        ((_, code, text),) = steps(port, ("get", "from torch", 0))
        assert (code, text) == ("ok", "theirs")
        host.stdin.close()


@needs_torch
def test_ranks_of_torchrun(tmp_path):
    """The ranks print to files, because torchrun of PyTorch 1.13 fails without that on Python 3.11."""
    port = jobs.free_port()
    options = ["--nproc_per_node", "3", "--master_addr", "127.0.0.1", "--master_port", str(port), "--no_python"]
    options += ["--redirects", "1", "--tee", "1", "--log_dir", str(tmp_path)]
    command = [PYTHON, "-m", "torch.distributed.run", *options, CLIENT, "all"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert result.returncode == 0, result.stdout + result.stderr
    said = [line.split(" ", 1)[1].strip() for line in result.stdout.splitlines() if " ok " in line]
    assert said == ["ok 0.0 1.0 2.0 0.1 1.1 2.1"] * 3


if __name__ == "__main__":
    launch.main(__file__)
