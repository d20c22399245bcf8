"""DSC_LOG: what precedes each record in a line, and what start-up and planning log."""

import datetime
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import launch
import pytest
from launch import run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import jobs  # noqa: E402

LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z libdsc\[(?P<host>[^:]*):(?P<pid>\d+)(?: rank (?P<rank>\d+))?\] "
    r"(?P<level>error|warn|info|debug): (?P<text>.*)"
)

PROGRAM = """
import os, libdsc as dsc
print(os.getpid(), flush=True)
dsc.partition_layers([1, 1, 1, 4], 2)                            # before this process has a rank
world = dsc.init_distributed(timeout=30)
assert dsc.init_distributed() is world
dsc.partition_layers([1, 1, 1, 3], 2)
dsc.partition_layers(None, 3, method="uniform", names=["a", "b"])
dsc.finalize()
dsc.partition_layers([2, 2], 1)
"""

THREADS = """
import threading, libdsc as dsc
def rank(number):
    world = dsc.init_distributed(rank=number, world_size=2, rank_per_thread=True, init_timeout=30)
    world.barrier()
    dsc.finalize()
threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


HOSTS = """
import libdsc as dsc
dsc.read_log("info")
world = dsc.init_distributed(init_timeout=40)
print([text for _, text in iter(lambda: dsc.read_log("info"), None) if "backend" in text])
dsc.finalize()
"""


def environment(**more):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("DSC_TOKEN", "DSC_HOST", "MASTER_"))}
    return {**own, "DSC_LOG": "info", **more}


def records_of(program, *args, **variables):
    result = run(*args, "--", sys.executable, "-c", program, env=environment(**variables))
    assert result.returncode == 0, result.stderr
    ranks = [launch.lines_of(result.stderr, rank) for rank in range(2)]
    return [[LINE.fullmatch(line) for line in lines] for lines in ranks], launch.lines_of(result.stdout, 0)


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def texts(records):
    return [record["text"].partition(" (dscrun")[0] for record in records]


def test_what_start_up_and_planning_say():
    (first, second), _ = records_of(PROGRAM, "-n", "2")
    alone = ["partition (bottleneck): stage 0 of 2 has 3 layers, 0 to 2, weight 3", "partition (bottleneck): stage 1 of 2 has layer 3, weight 4"]
    after = ["partition (bottleneck): stage 0 of 1 has 2 layers, 0 to 1, weight 4"]
    assert texts(second) == alone + ["rank 1 of 2 is ready"] + after
    assert texts(first) == [
        *alone,
        "rank 0 of 2 is ready",
        "distributed backend: host (asked for: auto)",
        "distributed backend is already initialized: the existing world is used",
        "partition (bottleneck): stage 0 of 2 has 3 layers, 0 to 2, weight 3",
        "partition (bottleneck): stage 1 of 2 has layer 3, weight 3",
        "partition (uniform): stage 0 of 3 has layer 0",
        "partition (uniform): stage 1 of 3 has layer 1",
        "partition (uniform): stage 2 of 3 has no layers",
        *after,
    ]


def test_lines_say_when_and_where():
    before = now() - datetime.timedelta(milliseconds=1)  # the times of records have milliseconds
    (first, second), pid = records_of(PROGRAM, "-n", "2")
    after = now()
    for number, records in enumerate((first, second)):
        inside = len(records) - 3
        assert [record["rank"] for record in records] == [None] * 2 + [str(number)] * inside + [None]
        assert {record["host"] for record in records} == {socket.gethostname()}
        assert {record["level"] for record in records} == {"info"}
        times = [datetime.datetime.fromisoformat(record["time"] + "+00:00") for record in records]
        assert before <= times[0] and times == sorted(times) and times[-1] <= after
    assert {record["pid"] for record in first} == set(pid)


AFTER_A_FAILURE = """
import libdsc as dsc
try:
    dsc.init_distributed(init_method="tcp://127.0.0.1:9", rank=1, world_size=2, init_timeout=0.3)
except dsc.DscError:
    dsc.partition_layers([1, 1], 1)
"""


def test_a_start_that_failed_leaves_no_rank():
    result = subprocess.run([sys.executable, "-c", AFTER_A_FAILURE], env=environment(), capture_output=True, text=True, timeout=60)
    last = LINE.fullmatch(result.stderr.splitlines()[-1])
    assert last["text"].startswith("partition") and last["rank"] is None, result.stderr


def test_the_host_has_the_name_that_it_was_given():
    (first, second), _ = records_of(PROGRAM, "-n", "2", DSC_HOST_ID="box")
    assert {record["host"] for record in first + second} == {"box"}


def test_threads_have_ranks_of_their_own():
    (records, _), _ = records_of(THREADS, "-n", "1")
    ready = {record["text"][:12]: record["rank"] for record in records if "is ready" in record["text"]}
    assert ready == {"rank 0 of 2 ": "0", "rank 1 of 2 ": "1"}


def test_the_backend_between_hosts():
    features = subprocess.run([launch.DSCCTL, "info", "--json"], capture_output=True, check=True).stdout
    if not json.loads(features)["features"]["gloo"]:
        pytest.skip("this library was built without Gloo")
    assert jobs.Job(2, HOSTS).place([0, 1]).finish() == ["['distributed backend: inter_host (asked for: auto)']", "[]"]


if __name__ == "__main__":
    launch.main(__file__)
