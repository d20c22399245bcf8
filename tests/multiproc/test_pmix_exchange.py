"""Values between ranks through PMIx, and what PMIx reports about ranks that end. Open MPI's mpirun is the server."""

import os
import re
import shutil
import subprocess
import time

import launch
import pytest
from launch import AT_ONCE_S, LIMIT_S

MPIRUN = shutil.which("mpirun.openmpi")
PROGRAM = os.environ.get("PMIX_EXCHANGE", "")
TIMEOUT = "DSC_ERR_TIMEOUT"

pytestmark = pytest.mark.skipif(not MPIRUN, reason="mpirun.openmpi is not installed")


def read(folder):
    """Returns what each rank wrote: {rank: [(milliseconds, code, text)]}."""
    said = {}
    for path in folder.iterdir():
        lines = [line.split(" ", 2) for line in path.read_text().splitlines()]
        said[int(path.name)] = [(int(ms), code, text) for ms, code, text in lines]
    return said


def mpirun(ranks, mode, folder, *options, variables={}, killed=False):
    """Runs until mpirun ends. Returns what each rank wrote."""
    environment = {name: value for name, value in os.environ.items() if name != "DSC_PMIX_LIBRARY"}
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables}
    # For the address sanitizer: libpmix 4.2.2 does not free the values that it passes to a callback.
    environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    command = [MPIRUN, "--oversubscribe", *options, "-n", str(ranks), PROGRAM, mode, str(folder)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    if "--enable-recovery" not in options and not killed:
        assert result.returncode == 0, result.stderr
    return read(folder)


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_everybody_reads_everybody(ranks, tmp_path):
    said = mpirun(ranks, "all", tmp_path)
    assert sorted(said) == list(range(ranks))
    for steps in said.values():
        assert [step[1:] for step in steps] == [("ok", f"of world {world};" * ranks) for world in (0, 1)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_key_that_never_comes(ranks, tmp_path):
    for put, short, long, there in mpirun(ranks, "missing", tmp_path).values():
        assert put[1] == "ok" and there[1:] == ("ok", "x")
        for (elapsed_ms, code, text), bound_ms in ((short, 300), (long, 2500)):
            assert code == TIMEOUT and f"the key 'dsc.0.missing' of rank {ranks - 1} did not arrive" in text
            assert bound_ms <= elapsed_ms < bound_ms + 1000 * AT_ONCE_S


def test_a_key_that_comes_late(tmp_path):
    for ((_, code, text),) in mpirun(3, "late", tmp_path).values():
        assert (code, text) == ("ok", "here")


def test_an_owner_that_died(tmp_path):
    """A value that the dead rank has put can still be read. A value that it has not put is a time-out.

    Whether Open MPI 4.1.4 reports the death depends on whether it first sees the end of the process or of the
    connection.
    """
    said = mpirun(3, "dead", tmp_path, "--enable-recovery")
    for rank in (0, 2):
        before, afterwards, missing, events = said[rank]
        assert before[1:] == afterwards[1:] == ("ok", "its last word")
        assert missing[1] == TIMEOUT and "of rank 1" in missing[2] and missing[0] < 1000 * AT_ONCE_S
        assert events[1] == "ok" and set(re.findall(r"of rank (-?\d+);", events[2])) <= {"1"}, events


def test_a_server_that_falls_silent(tmp_path):
    said = mpirun(2, "silent", tmp_path)
    get, put, over = said[0]
    assert get[1] == TIMEOUT and "'dsc.0.none' of rank 1" in get[2] and 500 <= get[0] < 1000 * AT_ONCE_S
    assert put[0] < 1000 * AT_ONCE_S and (put[1] == "ok" or "did not store the key 'unheard' in time" in put[2])
    assert over[1] == "ok" and said[1][0][1:] == ("ok", "well")


def test_a_server_that_dies(tmp_path):
    """libpmix itself reports the death of the server."""
    folder = tmp_path / "said"
    folder.mkdir()
    environment = {"TMPDIR": str(tmp_path)}  # mpirun leaves its own folder behind
    said = mpirun(2, "orphaned", folder, variables=environment, killed=True)
    deadline = time.monotonic() + LIMIT_S
    while [len(steps) for steps in said.values()] != [3, 3] and time.monotonic() < deadline:
        time.sleep(0.05)  # the ranks continue without mpirun
        said = read(folder)
    for get, put, event in said.values():
        assert get[1] == "DSC_ERR_SYSTEM" and get[0] < 1000 * AT_ONCE_S
        assert put[1] == "DSC_ERR_SYSTEM" and put[0] < 1000 * AT_ONCE_S
        assert event[1:] == ("ok", "-61")  # PMIX_ERR_LOST_CONNECTION


def test_an_event(tmp_path):
    of_another_job, of_this_job = mpirun(1, "notify", tmp_path)[0]
    assert of_another_job[1:] == ("ok", "-402 of rank -1")  # PMIX_ERR_PROC_ABORTED_BY_SIG
    assert of_this_job[1:] == ("ok", "-402 of rank 1")


if __name__ == "__main__":
    launch.main(__file__)
