"""Tests that need a framework. `./dev test torch` and `./dev test jax` install the framework and run its tests."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Some tests, and the processes of their ranks, use helpers of other folders of tests.
SHARED = [str(ROOT / "tests/bindings"), str(ROOT / "tests/support")]
sys.path += SHARED
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *SHARED]))


def pytest_addoption(parser):
    parser.addoption("--gate", action="store_true", help="leave out what takes long and says little more")


def pytest_configure(config):
    config.addinivalue_line("markers", "full: takes long; left out with --gate")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--gate"):
        left_out = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def world():
    """A world of one rank, independent of the environment of the test run."""
    import libdsc as dsc

    yield dsc.init_distributed(rank=0, world_size=1, job_id=f"one-rank-{os.getpid()}")
    dsc.finalize()
