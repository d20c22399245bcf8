#!/usr/bin/env python3
"""Runs selected tests of a build folder with `meson test`, shows the progress, and explains what to do after a failure.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Callable, NoReturn

import catalog

# Matches a line of `meson test` about a test that has ended, such as "12/441 libdsc:unit / dtype   OK   0.52s".
ENDED = re.compile(r"^\s*(\d+)/(\d+) (.+?)\s+(OK|EXPECTEDFAIL|SKIP|FAIL|TIMEOUT|ERROR|INTERRUPT|UNEXPECTEDPASS)\s+([\d.]+)s")
GOOD = {"OK", "EXPECTEDFAIL", "SKIP"}
PROGRESS_S = 10
SLOWEST = 20
INTERRUPTED = 130


class Progress:
    """Prints the progress of a run every ten seconds, on a separate thread."""

    def __init__(self, say: Callable[[str], None], total: int) -> None:
        self._say, self._start = say, time.monotonic()
        self._seen: set[str] = set()
        self._total = total
        self.failed: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()

    def read(self, line: str) -> None:
        """Processes one line of `meson test`."""
        match = ENDED.match(line)
        if not match or match[1] in self._seen or match[4] == "INTERRUPT":  # Meson repeats failures at the end
            return
        self._seen.add(match[1])
        if match[4] not in GOOD:
            name = match[3].split(" / ")[-1]
            self.failed.append(name)
            self._say(f"{match[4]} {name} ({float(match[5]):.0f} s)")

    def interrupted(self) -> NoReturn:
        """Prints how far the run came, and ends the program."""
        self.stop()
        self._say(f"interrupted; {len(self._seen) - len(self.failed)} passed, {len(self.failed)} failed{': ' if self.failed else ''}{' '.join(self.failed)}")
        sys.exit(INTERRUPTED)

    def stop(self) -> int:
        """Ends the thread. Returns the seconds that the run took."""
        self._over.set()
        self._thread.join()
        return round(time.monotonic() - self._start)

    def _tick(self) -> None:
        while not self._over.wait(PROGRESS_S):
            bad = f", {len(self.failed)} failed" if self.failed else ""
            seconds = time.monotonic() - self._start
            self._say(f"testing, {len(self._seen)} of {self._total}{bad} ({seconds:.0f} s)")


def say(text: str) -> None:
    print(f"dev: {text}", flush=True)


def run(folder: pathlib.Path, tests: list[catalog.Test], meson_words: list[str]) -> tuple[int, list[str]]:
    """Runs the tests. Returns the seconds that this took, and the names of the tests that failed."""
    command = ["meson", "test", "-C", str(folder), "--no-rebuild", "--logbase", "testlog", *meson_words]
    command += [test.name for test in tests]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    progress = Progress(say, len(tests))
    lines = []
    assert process.stdout
    interrupts = []

    def interrupt(*_: object) -> None:  # on SIGINT, Meson would end only one test
        interrupts.append(process.terminate())

    signal.signal(signal.SIGINT, interrupt)
    for line in process.stdout:
        progress.read(line)
        lines.append(line)
    code = process.wait()
    if interrupts:
        progress.interrupted()
    seconds = progress.stop()
    if code and not progress.failed:  # Meson itself has failed
        sys.exit(f"{''.join(lines[-40:])}dev: meson test failed (exit {code})")
    return seconds, progress.failed


def wait_for_others(folder: pathlib.Path) -> IO[str]:
    """Waits until no other run uses the folder, because both would write to the same log."""
    lock = open(folder / "test-lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"waiting for another ./dev test in {folder.name}")
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def results(folder: pathlib.Path) -> list[dict]:
    """Returns what Meson recorded of the last run."""
    log = folder / "meson-logs/testlog.json"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def name_of(result: dict) -> str:
    return result["name"].split(" / ")[-1]


def show_failures(folder: pathlib.Path, failed: list[str], most_lines: int = 100) -> None:
    for result in results(folder):
        if name_of(result) in failed:
            text = (result.get("stdout", "") + result.get("stderr", "")).splitlines()
            cut = [f"... ({len(text) - most_lines} lines before)"] if len(text) > most_lines else []
            print(f"---- {name_of(result)}: {result['result']}", *cut, *text[-most_lines:], sep="\n", flush=True)


def show_skipped(folder: pathlib.Path) -> None:
    for result in results(folder):
        if result["result"] == "SKIP":
            reason = (result.get("stdout", "") + result.get("stderr", "")).strip().splitlines()
            say(f"skipped {name_of(result)}{': ' + reason[-1] if reason else ''}")


def show_slowest(folder: pathlib.Path, command: str) -> int:
    """Prints the slowest tests of the last run."""
    last = sorted(results(folder), key=lambda result: -result["duration"])
    if not last:
        say(f"no test has run in {folder.name} yet; {command} runs them")
        return 1
    total = sum(result["duration"] for result in last)
    print(f"{len(last)} tests took {total:.0f} s one after another; the slowest:")
    for result in last[:SLOWEST]:
        print(f"{result['duration']:7.1f} s  {name_of(result)}")
    return 0


def summary(folder: pathlib.Path, command: str, seconds: int, failed: list[str]) -> int:
    kinds = [result["result"] for result in results(folder)]
    skipped = kinds.count("SKIP")
    show_failures(folder, failed)
    show_skipped(folder)
    say(f"{len(kinds) - skipped - len(failed)} passed, {len(failed)} failed, {skipped} skipped ({seconds} s)")
    if failed:
        log = os.path.relpath(folder / "meson-logs/testlog.txt")
        say(f"failed: {' '.join(failed)}")
        say(f"to run one test with its output: {command} -v {failed[0]}; the output of all tests: {log}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--command", default="./dev test", help="the command with which a user runs these tests")
    parser.add_argument("--without", default="", help="a suite that is left out")
    parser.add_argument("--verbose", action="store_true", help="show the output of the tests, and run them one after another")
    parser.add_argument("--slowest", action="store_true", help="only print the slowest tests of the last run")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    if options.slowest:
        return show_slowest(options.folder, options.command)
    chosen = catalog.chosen(catalog.tests(options.folder), options.words, options.without)
    # About half of the tests are always waiting, so more tests run than there are processors. Tests with their own
    # time limits report more than Meson's time-out.
    jobs = 1 if options.verbose else len(os.sched_getaffinity(0)) + 2
    times = int(os.environ.get("DSC_TEST_REPETITIONS") or 100) // 100
    # The limits of tests are for an idle machine; the gate runs two sets of tests and a compiler beside each other.
    patience = 5 if times <= 1 else 10 * times  # with ten or more repetitions, some tests try all cases
    meson_words = ["--num-processes", str(jobs), "--timeout-multiplier", str(patience)]
    lock = wait_for_others(options.folder)  # held until this program ends
    if options.verbose:
        folder = str(options.folder)
        return subprocess.call(["meson", "test", "-C", folder, "--no-rebuild", "-v", "--logbase", "testlog", *meson_words, *[t.name for t in chosen]])
    (options.folder / "meson-logs/testlog.json").unlink(missing_ok=True)
    seconds, failed = run(options.folder, chosen, meson_words)
    return summary(options.folder, options.command, seconds, failed)


if __name__ == "__main__":
    sys.exit(main())
