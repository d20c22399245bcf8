"""Fixtures that all tests of the Python package share."""

import functools
import multiprocessing
import os
import pathlib

import pytest

import libdsc as dsc

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Tests that need a new interpreter: they check what it loads, prints and imports, or need a killed rank to be reaped by
# its parent.
FRESH = ("test_spawn", "test_device_libraries", "test_tracebacks", "_kills")

multiprocessing.set_forkserver_preload(["numpy", "pytest", "libdsc"])


@pytest.fixture(autouse=True)
def ranks_start_fast(request, monkeypatch):
    """Starts ranks from a server that has already imported what all tests need.

    The imports take most of the time of a short test.
    """
    if not request.module.__name__.endswith(FRESH):
        monkeypatch.setattr(dsc, "spawn", functools.partial(dsc.spawn, start_method="forkserver"))


@pytest.fixture(scope="session")
def world():
    """A world of one rank, independent of the environment of the test run."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    world = dsc.init_distributed(rank=0, world_size=1, job_id=f"one-rank-{os.getpid()}")
    yield world
    dsc.finalize()
