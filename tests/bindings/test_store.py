"""Stores in Python: their rules, many processes, errors, and Ctrl-C."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import libdsc as dsc

TOKEN = "ab" * 32


@pytest.fixture(params=["memory", "file", "tcp", "prefix"])
def store(request, tmp_path):
    if request.param == "tcp":
        opened = dsc.Store("tcp://127.0.0.1:0", serve=True, token=TOKEN, timeout=20)
    else:
        opened = dsc.Store(f"file://{tmp_path}/store" if request.param == "file" else "memory://", timeout=20)
    with opened:
        yield opened.prefix("part") if request.param == "prefix" else opened


def test_rules(store):
    store.set("key", b"a\0b")
    assert store.get("key") == b"a\0b"
    store.set("key", "text")
    assert store.get("key") == b"text"
    store.set("long", bytes(1 << 20))
    assert store.get("long") == bytes(1 << 20)
    assert store.add("n") == 1 and store.add("n", -5) == -4 and store.get("n") == b"-4"
    assert store.compare_set("c", "old", "new") == b"old"
    assert store.compare_set("c", "", "new") == b"new"
    assert store.compare_set("c", "new", memoryview(b"newer")) == b"newer"
    store.append("c", "!")
    assert store.get("c") == b"newer!"
    assert store.check(["c", "n"]) and not store.check(["c", "x"]) and store.check([])
    assert store.delete("c") and not store.delete("c")
    assert store.count() == 3
    store.wait(["key", "n"])


def test_waiting(store):
    with pytest.raises(dsc.TimeoutError, match="never"):
        store.get("never", timeout=0)
    with pytest.raises(TimeoutError, match="never.*nowhere"):
        store.wait(["never", "nowhere"], timeout=0.05)
    setter = threading.Timer(0.3, store.set, ("late", "v"))
    setter.start()
    assert store.get("late") == b"v"
    setter.join()


def test_wrong_arguments(store):
    with pytest.raises(dsc.InvalidArgError, match="empty"):
        store.set("", "v")
    with pytest.raises(dsc.InvalidArgError, match="1048577"):
        store.set("k", bytes((1 << 20) + 1))
    with pytest.raises(TypeError, match="value is a int"):
        store.set("k", 1)
    with pytest.raises(TypeError, match="list of strings"):
        store.check("key")
    with pytest.raises(ValueError, match="amount"):
        store.add("n", 2**63)
    store.set("k", "x")
    with pytest.raises(dsc.InvalidArgError, match="whole number"):
        store.add("k", 1)


def test_opening():
    for uri in ("memory", "http://host:1", "tcp://host"):
        with pytest.raises(dsc.InvalidArgError, match="expected"):
            dsc.Store(uri)
    with pytest.raises(dsc.ConfigError, match="64"):
        dsc.Store("tcp://127.0.0.1:0", serve=True, token="secret")
    with pytest.raises(ValueError, match="timeout"):
        dsc.Store("memory://", timeout=0)
    store = dsc.Store("memory://")
    assert repr(store) == "<libdsc.Store memory://>"
    store.close()
    store.close()
    assert "closed" in repr(store)
    with pytest.raises(dsc.BadHandleError, match="memory:// is closed"):
        store.count()
    with pytest.raises(dsc.StateError, match="serve"):
        dsc.Store("memory://").port


def test_tokens_and_foreign_ports():
    with dsc.Store("tcp://127.0.0.1:0", serve=True, token=TOKEN) as server:
        uri = f"tcp://127.0.0.1:{server.port}"
        with pytest.raises(dsc.AuthError, match="same token"):
            dsc.Store(uri, token="cd" * 32)
        with pytest.raises(dsc.AuthError, match="requires a token"):
            dsc.Store(uri)
        with pytest.raises(dsc.AddrInUseError, match="taken"):
            dsc.Store(uri, serve=True, token=TOKEN)
        with pytest.raises(dsc.AuthError, match="DSC_TOKEN"):
            dsc.Store("tcp://127.0.0.1:0", serve=True, bind="any")
        with dsc.Store(uri, token=TOKEN) as client:
            server.set("k", "v")
            assert client.get("k") == b"v"
            server.close()
            with pytest.raises(dsc.PeerDeadError, match="gone"):
                client.get("k", timeout=20)
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        threading.Thread(target=lambda: foreign.accept()[0].sendall(b"HTTP/1.1 400\r\n" * 9), daemon=True).start()
        with pytest.raises(dsc.ProtocolError, match="48 54 54 50"):
            dsc.Store(f"tcp://127.0.0.1:{foreign.getsockname()[1]}", timeout=10)


CHILD = """
import sys, libdsc as dsc
with dsc.Store(sys.argv[1], timeout=30) as store:
    store.add("sum", int(sys.argv[2]))
    if store.add("came") == 4:
        store.set("all", "")
    store.wait(["all"])
    print(int(store.get("sum")))
"""


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_many_processes(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("DSC_TOKEN", TOKEN)
    uri = f"file://{tmp_path}/store" if kind == "file" else "tcp://127.0.0.1:0"
    with dsc.Store(uri, serve=kind == "tcp", timeout=30) as store:
        if kind == "tcp":
            uri = f"tcp://127.0.0.1:{store.port}"
        children = [
            subprocess.Popen([sys.executable, "-c", CHILD, uri, str(2**i)], stdout=subprocess.PIPE, text=True)
            for i in range(4)
        ]
        assert [child.communicate(timeout=40)[0].strip() for child in children] == ["15"] * 4
        assert [child.returncode for child in children] == [0] * 4
    assert not os.path.exists(tmp_path / "store")


def test_callbacks():
    values, calls = {}, []

    def put(key, value, timeout):
        calls.append(timeout)
        values[key] = value

    def get(key, timeout):
        if key == "broken":
            raise KeyError("no shelf")
        if key not in values:
            raise TimeoutError
        return values[key]

    store = dsc.Store.from_callbacks(put, get)
    part = store.prefix("p")
    part.set("k", "v")
    assert values == {"p/k": b"v"} and 0 < calls[0] <= 300
    assert store.get("p/k") == b"v"
    with pytest.raises(dsc.TimeoutError, match="other"):
        store.get("other", timeout=0.1)
    with pytest.raises(dsc.UnsupportedError, match="add"):
        store.add("k", 1)
    with pytest.raises(dsc.CallbackError) as failed:
        store.get("broken", timeout=0.1)
    assert isinstance(failed.value.__cause__, KeyError)
    store.close()
    assert part.get("k") == b"v"  # the part of the store keeps it alive


def test_control_c_ends_a_wait():
    with dsc.Store("memory://") as store:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            store.get("never")
        assert time.monotonic() - start < 15
        store.set("k", "v")
        assert store.get("k") == b"v"
