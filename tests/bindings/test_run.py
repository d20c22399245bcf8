"""``python -m libdsc.run`` is dscrun: options, output, exit codes and signals."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

DSCRUN = os.environ.get("DSCRUN", "")
pytestmark = pytest.mark.skipif(not os.access(DSCRUN, os.X_OK), reason="DSCRUN does not name the launcher")
SECONDS = 60


def environment():
    """The package in the source tree has no programs, so the launcher of this build is found in PATH."""
    return {**os.environ, "PATH": f"{pathlib.Path(DSCRUN).parent}:{os.environ['PATH']}"}


def start(*arguments, **variables):
    command = [sys.executable, "-m", "libdsc.run", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**environment(), **variables})


def finish(process):
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return process.returncode, out, err


def test_ranks_compute_together():
    program = """
import array, libdsc
world = libdsc.init_distributed()
x = array.array("d", [world.rank + 1])
world.all_reduce(x)
print(world.size, x[0])
libdsc.finalize()
"""
    code, out, err = finish(start("-n", "2", "--", sys.executable, "-c", program))
    assert code == 0, err
    assert sorted(out.splitlines()) == ["[0] 2 3.0", "[1] 2 3.0"]


def test_help_is_that_of_dscrun():
    expected = subprocess.run([DSCRUN, "--help"], capture_output=True, text=True, timeout=SECONDS, check=True).stdout
    assert expected and finish(start("--help")) == (0, expected, "")


@pytest.mark.parametrize("arguments", [("-n", "2", "--", "/bin/sh", "-c", "exit 7"), ("--no-such-option",)])
def test_exit_code_is_that_of_dscrun(arguments):
    expected = subprocess.run([DSCRUN, *arguments], capture_output=True, text=True, timeout=SECONDS)
    assert expected.returncode != 0
    assert finish(start(*arguments))[0] == expected.returncode


def test_it_takes_the_place_of_the_interpreter():
    process = start("-n", "1", "--", "/bin/sh", "-c", "echo started; exec sleep 300")
    assert process.stdout.readline().strip().endswith("started")
    assert os.path.samefile(f"/proc/{process.pid}/exe", DSCRUN)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] != 0


def test_a_missing_program_is_named():
    code, out, err = finish(start("-n", "1", "true", PATH="/nowhere"))
    assert code == 1 and not out
    assert "dscrun" in err and "pip install ." in err
