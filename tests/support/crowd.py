"""Many ranks of one world in a few processes: runs build/tests/unit/join_crowd and talks to it line by line."""

import json
import os
import pathlib
import subprocess

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"
PROGRAM = os.environ.get("JOIN_CROWD", str(BUILD / "tests" / "unit" / "join_crowd"))
LIMIT_S = 60


class Crowd:
    """The ranks of `world` from `first` on. With per_host 0 they are on this host, otherwise on simulated hosts.

    `start` runs a program like subprocess.Popen.
    """

    def __init__(self, world, first, count, host, port, token, per_host=0, timeout_s=120, start=subprocess.Popen, **variables):
        environment = {name: value for name, value in os.environ.items() if name not in ("DSC_TOKEN", "DSC_HOST_ID")}
        environment |= {"DSC_LOG": "warn"} | ({"DSC_TOKEN": token} if token else {}) | variables
        pipe = subprocess.PIPE
        argv = [PROGRAM, *map(str, (world, first, count, host, port, per_host, timeout_s * 1000))]
        self.process = start(argv, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def say(self):
        """The first call starts the ranks. Later calls ask for the resources used."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def hear(self):
        return json.loads(self.process.stdout.readline())

    def end(self):
        """Lets the ranks leave. Returns what they logged."""
        return self.process.communicate(timeout=LIMIT_S)[1]


def split(world, processes):
    """Returns (first, count) for each process, for all ranks except 0."""
    bounds = [1 + (world - 1) * i // processes for i in range(processes + 1)]
    return [(a, b - a) for a, b in zip(bounds, bounds[1:]) if b > a]
