#!/usr/bin/env python3
"""Runs test programs of collectives with one rank, over the host engine and over the loopback engine.

What one rank passes over the host engine it must pass over the loopback engine. Cases that need a second rank
fail over both. Usage: conformance.py FOLDER_OF_LOOPBACK_LIBRARY PROGRAM...
"""

import os
import re
import subprocess
import sys
from pathlib import Path

LEAST_CASES = 25  # fewer would mean that the programs no longer run with one rank
TIMEOUT_S = 300  # of one program; under the thread sanitizer, on a busy machine, one takes more than a minute


def passed(program: str, folder: str | None) -> set[str]:
    """The names of the cases that pass; a crash counts as the case that was running."""
    environment = os.environ | {"DSC_TEST_SIZE": "1", "DSC_TEST_SCALE": "16"}
    if folder:
        environment["LD_LIBRARY_PATH"] = folder
    run = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return {f"{Path(program).name}: {name}" for name in re.findall(r"\[ +OK \] (\w+)", run.stdout + run.stderr)}


def main() -> int:
    folder, *programs = sys.argv[1:]
    expected, found = set(), set()
    for program in programs:
        expected |= passed(program, None)
        found |= passed(program, folder)
    for case in sorted(expected - found):
        print(f"passes over the host engine, not over the loopback engine: {case}")
    print(f"{len(found & expected)} of {len(expected)} cases that one rank passes")
    return 1 if expected - found or len(expected) < LEAST_CASES else 0


if __name__ == "__main__":
    sys.exit(main())
