"""What the tests of the Python package share."""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def world():
    """A world of one rank, whatever the environment of the test run says."""
    import libdsc as dsc

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    world = dsc.init_distributed(rank=0, world_size=1, job_id=f"one-rank-{os.getpid()}")
    yield world
    dsc.finalize()
