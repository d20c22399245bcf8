"""spawn(): results, exceptions, and nothing left behind."""

import os
import signal
import time

import pytest

import libdsc as dsc

SECONDS = 60
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def describes(rank, text):
    return rank, text, [os.environ[name] for name in NAMES], os.environ["DSC_JOB_ID"], os.getpid()


def test_results_and_environment():
    results = dsc.spawn(describes, 3, ("hello",), timeout=SECONDS)
    assert [result[:3] for result in results] == [
        (rank, "hello", [str(rank), "3", str(rank), "3"]) for rank in range(3)
    ]
    assert len({result[3] for result in results}) == 1
    assert len({result[4] for result in results} | {os.getpid()}) == 4
    assert "RANK" not in os.environ


def fails(rank, folder):
    (folder / str(rank)).write_text(str(os.getpid()))
    if rank == 1:
        while not all((folder / str(r)).exists() for r in range(3)):
            time.sleep(0.01)
        raise KeyError("lost")
    time.sleep(60)


def test_an_exception_ends_all(tmp_path):
    started = time.monotonic()
    with pytest.raises(KeyError, match="lost") as caught:
        dsc.spawn(fails, 3, (tmp_path,), timeout=SECONDS)
    assert time.monotonic() - started < 30
    cause = caught.value.__cause__
    assert isinstance(cause, dsc.SpawnError) and cause.rank == 1
    assert "rank 1 raised" in str(cause) and "in fails" in str(cause)
    for rank in range(3):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / str(rank)).read_text()), 0)


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("not me")


def raises_unpicklable(rank):
    raise Unpicklable("deep inside")


def test_an_exception_that_cannot_travel_sends_its_text():
    with pytest.raises(dsc.SpawnError, match="deep inside"):
        dsc.spawn(raises_unpicklable, 1, timeout=SECONDS)


def kills_itself(rank):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_is_reported():
    with pytest.raises(dsc.SpawnError, match="rank 0 was ended by SIGKILL"):
        dsc.spawn(kills_itself, 1, timeout=SECONDS)


def sleeps(rank):
    time.sleep(60)


def test_time_out():
    with pytest.raises(TimeoutError, match=r"ranks \[0, 1\] did not end within 0.5 s"):
        dsc.spawn(sleeps, 2, timeout=0.5)


def test_wrong_number():
    with pytest.raises(ValueError, match="n is the number of processes, 1 or more; got 0"):
        dsc.spawn(sleeps, 0)
