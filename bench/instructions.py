#!/usr/bin/env python3
"""Counts the instructions of the fast paths, for a world of one rank, with valgrind's callgrind.

On a shared machine, the noise is larger than times of a few nanoseconds, but instructions are exact. The numbers are
compared with recorded ones. Another compiler or C library changes them too, so a difference is not a failure.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import machine

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs" / "instructions.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench instructions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help=f"record these figures for later comparisons, in {RECORD.name}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--build", type=Path, default=ROOT / "build", metavar="FOLDER", help="default: build")
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        print("bench: valgrind is not in PATH: apt-get install valgrind", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="libdsc-bench-") as folder:
        counts = count(options.build / "bench" / "bench_instructions", Path(folder) / "profile")
    before = json.loads(RECORD.read_text())["instructions"] if RECORD.exists() else {}
    print(f"{'path':<22} {'instructions':>12} {'recorded':>9} {'change':>8}")
    for name, instructions in counts.items():
        old = before.get(name)
        change = "new" if old is None else f"{(instructions - old) / old:+.1%}"
        print(f"{name:<22} {instructions:>12} {old if old is not None else '-':>9} {change:>8}")
    report = json.dumps({"build": machine.build_kind(options.build), "instructions": counts}, indent=1) + "\n"
    for target in [options.json] * bool(options.json) + [RECORD] * options.record:
        target.write_text(report)
        print(f"written to {target}")
    return 0


def count(driver: Path, profile: Path) -> dict[str, int]:
    """Returns the instructions per unit for each path."""
    paths = subprocess.check_output([driver], text=True).split()
    return {path: count_path(driver, path, profile) for path in paths}


def count_path(driver: Path, path: str, profile: Path) -> int:
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}", "--toggle-collect=measured"]
    done = subprocess.run([*command, driver, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{done.stderr}bench: {driver.name} {path} under valgrind: exit status {done.returncode}")
    summary = re.search(r"^summary: (\d+)", profile.read_text(errors="replace"), re.MULTILINE)
    return round(int(summary[1]) / int(done.stdout))


if __name__ == "__main__":
    sys.exit(main())
