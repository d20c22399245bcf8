"""Many ranks, and ranks of several hosts, meet through TCP. Only the meeting is tested, without a world."""

import os
import pathlib
import resource
import socket
import sys
import threading
import time
from contextlib import contextmanager

import launch
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import netns  # noqa: E402
from crowd import Crowd, split  # noqa: E402
from jobs import free_port  # noqa: E402

TOKEN = "5e" * 32
needs_hosts = pytest.mark.skipif(bool(netns.unavailable()), reason=f"no network namespaces: {netns.unavailable()}")


def go(crowds):
    for crowd in crowds:
        crowd.say()
    return [crowd.hear() for crowd in crowds]


def end(crowds):
    """Ends all crowds. The first one, with rank 0, ends last. No crowd may have printed a warning."""
    for crowd in reversed(crowds):
        assert crowd.end() == ""


def test_512_ranks_of_64_hosts():
    port = free_port()
    parts = [(0, 1), *split(512, 3)]
    crowds = [Crowd(512, first, count, "127.0.0.1", port, TOKEN, per_host=8) for first, count in parts]
    start = time.monotonic()
    heard = go(crowds)
    took_s = time.monotonic() - start
    for (_, count), ranks in zip(parts, heard):
        assert ranks["errors"] == {} and ranks["joined"] == {"64 hosts, 8 here": count}, heard
    crowds[0].say()
    used = crowds[0].hear()
    print(f"512 ranks in {took_s:.2f} s; rank 0's process took {used['cpu_s'] / 512 * 1e6:.0f} us and {used['peak_kib'] / 512:.1f} KiB for each")
    end(crowds)


def test_too_few_descriptors_are_told_at_once():
    """The error comes before any rank is refused.

    Rank 0 waits a little for the other ranks, so that they get the error.
    """
    few = 100
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        alone = Crowd(512, 0, 1, "127.0.0.1", free_port(), TOKEN, timeout_s=30)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    (heard,) = go([alone])
    (error,) = heard["errors"]
    assert error.startswith("DSC_ERR_CONFIG") and "512" in error and "ulimit -n" in error and str(few) in error, error
    alone.end()


def forward(source, target):
    """Forwards each byte in a separate packet."""
    try:
        while data := source.recv(4096):
            for i in range(len(data)):
                target.sendall(data[i : i + 1])
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def relay(listener, port):
    """Forwards connections until the listener is closed."""
    while True:
        try:
            inner, _ = listener.accept()
        except OSError:
            return
        outer = socket.create_connection(("127.0.0.1", port))
        for end in (inner, outer):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for ends in ((inner, outer), (outer, inner)):
            threading.Thread(target=forward, args=ends, daemon=True).start()


def test_single_bytes_and_signals():
    """All other ranks connect through a relay that forwards single bytes, and each process gets 1,000 signals per
    second."""
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=relay, args=(listener, port), daemon=True).start()
        signals = {"SIGNALS_HZ": "1000"}
        host = Crowd(9, 0, 1, "127.0.0.1", port, TOKEN, **signals)
        host.say()
        time.sleep(0.2)  # rank 0 must listen before the relay accepts connections
        others = Crowd(9, 1, 8, "127.0.0.1", listener.getsockname()[1], TOKEN, **signals)
        others.say()
        for count, ranks in zip((1, 8), (host.hear(), others.hear())):
            assert ranks["errors"] == {} and ranks["joined"] == {"1 hosts, 9 here": count}, ranks
        end([host, others])
        listener.shutdown(socket.SHUT_RDWR)


def test_a_world_that_is_too_large():
    alone = Crowd(65_537, 1, 1, "127.0.0.1", free_port(), TOKEN, timeout_s=30)
    (heard,) = go([alone])
    (error,) = heard["errors"]
    assert error.startswith("DSC_ERR_UNSUPPORTED") and "65537" in error and "65536" in error, error
    alone.end()


# ---- processes that die while others wait ---------------------------------------------------------------------------


def one_each(world, ranks, port, timeout_s):
    crowds = [Crowd(world, rank, 1, "127.0.0.1", port, TOKEN, timeout_s=timeout_s) for rank in ranks]
    for crowd in crowds:
        crowd.say()
    return crowds


def kill(crowd):
    crowd.process.kill()
    crowd.process.communicate(timeout=launch.LIMIT_S)


def test_rank_0_dies_and_comes_again():
    """A rank that waited for the first rank 0 starts again with the second."""
    port = free_port()
    first, waiting = one_each(3, [0, 1], port, timeout_s=50)
    time.sleep(0.3)
    kill(first)
    time.sleep(0.3)
    crowds = [*one_each(3, [0, 2], port, timeout_s=50), waiting]
    for crowd in crowds:
        assert crowd.hear()["joined"] == {"1 hosts, 3 here": 1}
    end(crowds)


def test_rank_0_dies_for_good():
    """The other ranks try until their deadline, and report the address where no process listens any more."""
    port = free_port()
    start = time.monotonic()
    first, *waiting = one_each(4, [0, 1, 2], port, timeout_s=2)
    time.sleep(0.3)
    kill(first)
    for crowd in waiting:
        (error,) = crowd.hear()["errors"]
        assert error.startswith("DSC_ERR_TIMEOUT") and "rank 0 did not arrive" in error and f"127.0.0.1:{port}" in error, error
        assert time.monotonic() - start < 2 + launch.AT_ONCE_S
        crowd.end()


def test_a_rank_that_dies_is_missing():
    host, dies = one_each(3, [0, 1], free_port(), timeout_s=7)
    time.sleep(3)  # the rank has arrived after this time
    kill(dies)
    (error,) = host.hear()["errors"]
    assert "only 1 of 3 ranks arrived" in error and "missing: rank 1, 2" in error and "arrived and left: rank 1 (pid" in error, error
    host.end()


# ---- several hosts -------------------------------------------------------------------------------------------------


@contextmanager
def ranks_of(hosts, count, per_host, address, token=TOKEN, timeout_s=20, **variables):
    """Starts `per_host` ranks on each of the hosts, in order."""
    crowds = [
        Crowd(
            count * per_host, host * per_host, per_host, address, 29500, token, timeout_s=timeout_s,
            start=lambda argv, host=host, **popen: hosts.run(host, argv, **popen), **variables,
        )  # fmt: skip
        for host in range(count)
    ]
    yield crowds


@needs_hosts
@pytest.mark.parametrize("count, family", [(2, "address"), (4, "address"), (2, "address6")])
def test_ranks_of_several_hosts(count, family):
    with netns.Hosts(count) as hosts, ranks_of(hosts, count, 3, getattr(hosts, family)(0)) as crowds:
        for ranks in go(crowds):
            assert ranks["errors"] == {} and ranks["joined"] == {f"{count} hosts, 3 here": 3}
        end(crowds)


@needs_hosts
def test_hosts_without_a_token():
    """All ranks are told what to do, and no store has listened."""
    with netns.Hosts(2) as hosts, ranks_of(hosts, 2, 1, hosts.address(0), token="") as crowds:
        start = time.monotonic()
        for ranks in go(crowds):
            (error,) = ranks["errors"]
            assert error.startswith("DSC_ERR_AUTH") and "set DSC_TOKEN to it" in error
        assert time.monotonic() - start < launch.AT_ONCE_S
        end(crowds)


@needs_hosts
def test_hosts_that_are_open_on_purpose():
    with netns.Hosts(2) as hosts, ranks_of(hosts, 2, 1, hosts.address(0), token="", DSC_ALLOW_UNAUTHENTICATED="1") as crowds:
        for ranks in go(crowds):
            assert ranks["joined"] == {"2 hosts, 1 here": 1}
        crowds[1].end()
        assert "has no token" in crowds[0].end()


@needs_hosts
def test_a_host_that_is_not_reached_is_missing():
    """The ranks behind an unplugged cable never arrive.

    All other ranks are told which ranks are missing and where the others are.
    """
    with netns.Hosts(3) as hosts, ranks_of(hosts, 3, 2, hosts.address(0), timeout_s=5) as crowds:
        hosts.cut(2)
        for ranks in go(crowds[:2]):
            assert ranks["joined"] == {}
            for error in ranks["errors"]:
                assert error.startswith("DSC_ERR_TIMEOUT") and "only 4 of 6 ranks arrived" in error and "missing: rank 4, 5" in error, error


@needs_hosts
def test_a_cable_that_is_pulled_while_others_are_awaited():
    """A rank that had arrived and cannot be reached any more counts as missing, and is reported as gone."""
    with netns.Hosts(3) as hosts, ranks_of(hosts, 3, 1, hosts.address(0), timeout_s=15) as crowds:
        crowds[0].say()
        crowds[1].say()
        time.sleep(3)  # the rank has arrived after this time
        hosts.cut(1)
        ranks = crowds[0].hear()
        (error,) = ranks["errors"]
        assert "missing: rank 1, 2" in error and "arrived and left: rank 1 (pid" in error, error


if __name__ == "__main__":
    os.environ.pop("DSC_TOKEN", None)
    launch.main(__file__)
