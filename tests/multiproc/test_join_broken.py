"""The connections of a rank break during start-up. Both ranks end by init_timeout with the reason."""

import ast
import socket
import sys
import threading
import time
from pathlib import Path

import launch

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import jobs  # noqa: E402

INIT_TIMEOUT_S = 6
LATE_S = 2.5  # a result at the deadline needs a second to arrive
QUIET_S = 0.5  # after its arrival a rank gets no data until the result

JOIN = """
import os, time, numpy as np, libdsc as dsc
start = time.monotonic()
try:
    world = dsc.init_distributed(init_timeout=float(os.environ["INIT_TIMEOUT"]), timeout=20)
    x = np.ones(3)
    world.all_reduce(x)
    print(["up", x[0], time.monotonic() - start, ""])
    dsc.finalize()
except dsc.DscError as error:
    print([type(error).__name__, list(getattr(error, "ranks", ())), time.monotonic() - start, str(error)])
"""


class Relay:
    """Forwards connections to a port.

    After `armed` is set the first connection breaks when data comes back. Later connections break immediately if
    `for_good`.
    """

    def __init__(self, port, for_good):
        self.port, self.for_good, self.armed = port, for_good, False
        self.latest_s = None  # when the first connection last returned data
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        first = True
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = None if self.armed and self.for_good else socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                server = None  # rank 0 does not listen yet
            if server is None:
                client.close()
                continue
            for ends in ((client, server, False), (server, client, first)):
                threading.Thread(target=self.forward, args=ends, daemon=True).start()
            first = False

    def forward(self, source, target, breaks):
        try:
            while data := source.recv(1 << 16):
                if breaks and self.armed:
                    break
                if breaks:
                    self.latest_s = time.monotonic()
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def await_quiet(self):
        end = time.monotonic() + launch.LIMIT_S
        while self.latest_s is None or time.monotonic() < self.latest_s + QUIET_S:
            assert time.monotonic() < end, "rank 1 did not arrive"
            time.sleep(0.01)


def run_through(init_timeout_s, for_good):
    """Returns the output of three ranks on three hosts.

    The connection of rank 1 breaks when the result arrives, which the other ranks have got.
    """
    job = jobs.Job(3, JOIN, INIT_TIMEOUT=str(init_timeout_s))
    relay = Relay(job.port, for_good)
    with relay.listener:
        job.start(0, DSC_HOST_ID="host0")
        job.start(1, DSC_HOST_ID="host1", MASTER_PORT=str(relay.listener.getsockname()[1]))
        relay.await_quiet()
        relay.armed = True
        job.start(2, DSC_HOST_ID="host2")
        return [ast.literal_eval(output) for output in job.finish()]


def test_whose_connections_break_from_the_result_on():
    """The world has formed, but rank 1 never gets the result."""
    told = run_through(INIT_TIMEOUT_S, for_good=True)
    for name, ranks, seconds, text in told[:2]:
        assert name == "TimeoutError" and INIT_TIMEOUT_S - 0.5 < seconds < INIT_TIMEOUT_S + LATE_S, told
    assert told[0][1] == [1] and told[2][0] != "up" and told[2][2] < INIT_TIMEOUT_S + LATE_S, told


def test_who_comes_again_is_a_member_of_the_world_that_formed_with_it():
    """Rank 1 connects again. It must not be counted as an additional rank."""
    for name, value, *_ in (told := run_through(40, for_good=False)):
        assert name == "up" and value == 3, told


if __name__ == "__main__":
    launch.main(__file__)
