"""Tests that need a framework: `./dev test torch` and `./dev test jax` install it, and run those of its name."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/bindings"), str(ROOT / "tests/support")]  # of which some helpers are used


def pytest_addoption(parser):
    parser.addoption("--gate", action="store_true", help="leave out what takes long and says little more")


def pytest_configure(config):
    config.addinivalue_line("markers", "full: takes long; left out with --gate")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--gate"):
        left_out = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
