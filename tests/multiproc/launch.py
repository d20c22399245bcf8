"""Runs dscrun for the tests and checks that nothing of a job is left behind."""

import ctypes
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"
DSCRUN = os.environ.get("DSCRUN", str(BUILD / "tools" / "dscrun"))
DSCCTL = os.environ.get("DSCCTL", str(BUILD / "tools" / "dscctl"))
PYTHON = sys.executable
LIMIT_S = 60  # limit of one run on a busy machine; every test that measures a time has its own limit
AT_ONCE_S = 15  # long enough, even on a busy machine, for a call that waits for no rank


def become_subreaper():
    """Makes this process the new parent of all processes that a job leaves behind, so that they are found."""
    pr_set_child_subreaper = 36
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(pr_set_child_subreaper, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children():
    """Returns the ids and names of the child processes, including zombies."""
    found = {}
    for entry in os.listdir("/proc"):
        try:
            stat = pathlib.Path("/proc", entry, "stat").read_text() if entry.isdigit() else ""
        except OSError:
            continue
        match = re.match(r"(\d+) \((.*)\) \S (\d+)", stat, re.DOTALL)
        if match and int(match[3]) == os.getpid():
            found[int(match[1])] = match[2]
    return found


def has_stopped(thread):
    try:
        return thread.joinpath("stat").read_text().rpartition(") ")[2][0] == "T"
    except OSError:  # the thread has ended
        return True


def stop_process(pid):
    """Returns when no thread of the process runs any more.

    On a busy machine some still run for a while after the signal.
    """
    os.kill(pid, signal.SIGSTOP)
    while not all(has_stopped(thread) for thread in pathlib.Path(f"/proc/{pid}/task").iterdir()):
        time.sleep(0.001)


def wait_until_nothing_is_left(limit_s=20.0):
    """Reaps orphans as they end. A process that still runs at the limit is killed and reported."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0 and time.monotonic() > deadline:
            left = children()
            for child in left:
                os.kill(child, signal.SIGKILL)
            raise AssertionError(f"still running {limit_s} s after the run: {left}")
        if pid == 0:
            time.sleep(0.005)


def run(*args, **popen):
    """Runs dscrun until it ends. Input and output are text."""
    popen.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([DSCRUN, *args], capture_output=True, text=True, timeout=LIMIT_S, **popen)


def lines_of(text, rank):
    prefix = f"[{rank}] "
    return [line[len(prefix) :] for line in text.splitlines() if line.startswith(prefix)]


class Started:
    """A dscrun that runs while the test goes on."""

    def __init__(self, *args, **popen):
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("stderr", subprocess.PIPE)
        self.process = subprocess.Popen([DSCRUN, *args], stdout=subprocess.PIPE, **popen)
        self.pid = self.process.pid
        self.seen = b""

    def read_lines(self, count):
        """Returns the first `count` lines of standard output when they have been printed."""
        deadline = time.monotonic() + LIMIT_S
        while self.seen.count(b"\n") < count:
            ready, _, _ = select.select([self.process.stdout], [], [], deadline - time.monotonic())
            data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            assert data, f"expected {count} lines, got {self.seen!r}"
            self.seen += data
        return self.seen.decode().splitlines()[:count]

    def signal(self, number):
        os.kill(self.pid, number)

    def keeper(self):
        """Returns the child process of dscrun that supervises the ranks."""
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as file:
            (pid,) = file.read().split()
        return int(pid)

    def finish(self):
        """Returns the exit code, all of standard output, and all of standard error."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, (self.seen + out).decode(), (err or b"").decode()


def main(file):
    """Runs a test file as a program: with pytest, or exit code 77 if pytest is missing."""
    try:
        import pytest
    except ImportError:
        print("skipped: pytest is not installed")
        sys.exit(77)
    # nohup and shells may have set these signals to be ignored
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    sys.exit(pytest.main([file, "-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
