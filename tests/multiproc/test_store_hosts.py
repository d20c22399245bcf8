"""A TCP store between hosts: real addresses, a token, and cables that are unplugged."""

import pathlib
import sys
import time
from contextlib import contextmanager

import launch
import pytest
from launch import LIMIT_S
from store_peer import TOKEN, Peer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import netns  # noqa: E402

NOTICED_S = 5.0 + 10  # the promised limit for noticing a lost peer is 5 s; a busy machine gets 10 s more


def peer_on(hosts, host, *args, token=TOKEN):
    return Peer(*args, token=token, start=lambda argv, **popen: hosts.run(host, argv, **popen))


@contextmanager
def served(count, address=netns.Hosts.address, token=TOKEN):
    """Starts hosts with a server on host 0.

    Yields the hosts, the server, and a function that starts a client on another host.
    """
    with netns.Hosts(count) as hosts:
        server = peer_on(hosts, 0, "serve", address(hosts, 0), 0, count, token=token)
        port = int(server.hear())

        def client(host, token=token):
            peer = peer_on(hosts, host, "ask", address(hosts, 0), port, token=token)
            assert peer.hear() == "ready"
            return peer

        yield hosts, server, client


def until(condition, limit_s=NOTICED_S):
    """Waits until the condition holds and returns the seconds."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < limit_s
        time.sleep(0.02)
    return time.monotonic() - start


@pytest.mark.parametrize("address", [netns.Hosts.address, netns.Hosts.address6], ids=["ipv4", "ipv6"])
def test_hosts_share_a_store(address):
    with served(3, address) as (_, server, client):
        one, two = client(1), client(2)
        assert one.ask("open")[1:] == ("ok", "1")
        assert two.ask("open")[1:] == ("ok", "2")
        two.say("get key 20000")
        until(lambda: server.counts()["waiting"] == 1)
        assert one.ask("set key value")[1:] == ("ok", "")
        assert two.answer()[1:] == ("ok", "value")


def test_only_the_token_joins():
    with served(2) as (_, server, client):
        for wrong in ("6" * 64, ""):
            assert client(1, token=wrong).ask("open")[1] == "DSC_ERR_AUTH"
        assert client(1).ask("open")[1] == "ok"
        assert server.counts()["authenticated"] == 1


def test_without_a_token_no_server_listens_to_other_hosts():
    with netns.Hosts(1) as hosts:
        server = peer_on(hosts, 0, "serve", hosts.address(0), 0, 2, token="")
        _, error = server.process.communicate(timeout=LIMIT_S)
        assert server.process.returncode != 0 and "set DSC_TOKEN to it" in error


def test_a_pulled_cable_is_noticed_at_both_ends():
    """A waiting client, a client that calls later, and the server all notice. Another client is not disturbed."""
    with served(4) as (hosts, server, client):
        waits, calls, other = client(1), client(2), client(3)
        for peer in (waits, calls, other):
            assert peer.ask("open")[1] == "ok"
        waits.say("get never 60000")
        until(lambda: server.counts()["waiting"] == 1)
        start = time.monotonic()
        hosts.cut(1)
        hosts.cut(2)
        calls.say("set key lost")
        server_s = until(lambda: server.counts()["members"] == 1)
        assert server.counts()["waiting"] == 0
        for peer in (waits, calls):
            _, code, text = peer.answer()
            assert code == "DSC_ERR_PEER_DEAD" and hosts.address(0) in text
        client_s = time.monotonic() - start
        assert client_s < NOTICED_S
        print(f"noticed by the server after {server_s:.1f} s, by the clients after {client_s:.1f} s")
        assert other.ask("set key value")[1] == "ok"
        hosts.join(1)
        assert waits.ask("open")[1] == "ok"
        assert waits.ask("get key 20000")[1:] == ("ok", "value")


def test_a_deadline_comes_first():
    """If the time-out of a wait comes before the connection is given up, the error is a time-out: no peer is known to
    be dead."""
    with served(2) as (hosts, server, client):
        cut = client(1)
        assert cut.ask("open")[1] == "ok"
        cut.say("get never 500")
        until(lambda: server.counts()["waiting"] == 1)
        hosts.cut(1)
        seconds, code, _ = cut.answer()
        assert code == "DSC_ERR_TIMEOUT" and seconds < 0.5 + NOTICED_S


if __name__ == "__main__":
    if reason := netns.unavailable():
        print(f"skipped: no network namespaces: {reason}")
        sys.exit(77)
    launch.main(__file__)
