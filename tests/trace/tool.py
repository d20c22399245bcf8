"""Runs dscctl for the tests of traces, and a test file as a program."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"
DSCCTL = os.environ.get("DSCCTL", str(BUILD / "tools" / "dscctl"))
FINE, FINDINGS, USAGE = 0, 1, 2


def trace(*args, **run):
    return subprocess.run([DSCCTL, "trace", *map(str, args)], capture_output=True, text=True, timeout=60, **run)


def merge(*args):
    """Returns the exit code and the report of a merge."""
    result = trace("merge", *args, "--json")
    assert result.stderr == "", result.stderr
    return result.returncode, json.loads(result.stdout)


def texts(report, kind):
    return [finding["text"] for finding in report["findings"] if finding["kind"] == kind]


def approx(value, relative=None):
    import pytest

    return pytest.approx(value, relative)


def main(file, *modules):
    """Runs pytest on this file, or returns exit code 77 if something that it needs is missing."""
    missing = [name for name in ("pytest", *modules) if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {sys.executable} has no {' and no '.join(missing)}")
        sys.exit(77)
    import pytest

    sys.exit(pytest.main([file, "-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
