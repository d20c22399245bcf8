"""What type checkers say: about the whole package, and about typed_calls.py line by line."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import ROOT

CALLS = pathlib.Path(__file__).parent / "typed_calls.py"


def mypy(*arguments):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip(f"{sys.executable} has no mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "bindings" / "python")


def test_the_package_has_no_error():
    done = mypy("-p", "libdsc")
    assert done.returncode == 0, done.stdout + done.stderr


def test_calls_are_accepted_and_refused():
    expected = {n for n, line in enumerate(CALLS.read_text().splitlines(), 1) if line.endswith("# error")}
    done = mypy(str(CALLS))
    found = {int(n) for n in re.findall(r"typed_calls\.py:(\d+): error", done.stdout)}
    assert found == expected and len(expected) > 5, done.stdout + done.stderr
