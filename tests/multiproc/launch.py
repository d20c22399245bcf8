"""Runs dscrun for the tests and proves that nothing of a job stays behind."""

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
LIMIT_S = 60  # for one run on a busy machine; every test that measures a time names its own bound
AT_ONCE_S = 15  # what waits for nobody has come by then, even there


def become_subreaper():
    """Whatever a job leaves behind, running or zombie, becomes a child of this process and is found."""
    pr_set_child_subreaper = 36
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(pr_set_child_subreaper, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children():
    """Process ids and names of this process's children, zombies included."""
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
    except OSError:  # it has ended
        return True


def stop_process(pid):
    """Returns once no thread of it runs: on a busy machine some run on for a while after the signal."""
    os.kill(pid, signal.SIGSTOP)
    while not all(has_stopped(thread) for thread in pathlib.Path(f"/proc/{pid}/task").iterdir()):
        time.sleep(0.001)


def wait_until_nothing_is_left(limit_s=20.0):
    """Reaps orphans as they end; a process that still runs at the limit is killed and reported."""
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
    """Runs dscrun to its end; text in and out."""
    popen.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([DSCRUN, *args], capture_output=True, text=True, timeout=LIMIT_S, **popen)


def lines_of(text, rank):
    prefix = f"[{rank}] "
    return [line[len(prefix) :] for line in text.splitlines() if line.startswith(prefix)]


class Started:
    """A dscrun that runs beside the test."""

    def __init__(self, *args, **popen):
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("stderr", subprocess.PIPE)
        self.process = subprocess.Popen([DSCRUN, *args], stdout=subprocess.PIPE, **popen)
        self.pid = self.process.pid
        self.seen = b""

    def read_lines(self, count):
        """The first `count` lines of standard output, as soon as they are there."""
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
        """The process below dscrun that supervises the ranks."""
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as file:
            (pid,) = file.read().split()
        return int(pid)

    def finish(self):
        """Exit code, all of standard output, all of standard error."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, (self.seen + out).decode(), (err or b"").decode()


def main(file):
    """What a test file does when it is run as a program: pytest, or exit code 77 without it."""
    try:
        import pytest
    except ImportError:
        print("skipped: pytest is not installed")
        sys.exit(77)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # nohup and shells may have had them ignored
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    sys.exit(pytest.main([file, "-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
