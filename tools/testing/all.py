#!/usr/bin/env python3
"""Runs everything that can be tested on this machine, at full counts. It is meant for nights and releases, and takes
hours.

Stages that have passed on the same tree are skipped, so a run that was interrupted continues. --again starts from the
beginning.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

PROJECT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "build/all"
FUZZ_S = 5 * 60  # per target
PROGRESS_S = 60
LONG = {"DSC_TEST_REPETITIONS": "1000"}  # percent of the usual counts


def stages() -> dict[str, tuple[list[str], dict[str, str]]]:
    """Returns the command and the variables of each stage by its name. Stages that find much in little time come first.
    """
    sys.path.insert(0, str(PROJECT / "tests/bare"))
    import bare

    found: dict[str, tuple[list[str], dict[str, str]]] = {
        "tests": (["./dev", "test"], {}),
        "long": (["./dev", "test", "long"], {}),
        "lint": (["./dev", "lint", "--all"], {}),
        "asan": (["./dev", "test", "asan"], {}),
        "tsan": (["./dev", "test", "tsan"], {}),
    }
    found |= {framework: (["./dev", "test", framework], {}) for framework in ("torch", "jax")}
    found |= {f"bare-{way}": (["./dev", "test", "bare", way], {}) for way in bare.WAYS}
    targets = re.findall(r"^void fuzz_(\w+)\(", (PROJECT / "tests/fuzz/fuzz.hpp").read_text(), re.MULTILINE)
    found |= {f"fuzz-{target}": (["./dev", "fuzz", target, "--seconds", str(FUZZ_S)], {}) for target in sorted(targets)}
    found["faults"] = ["./dev", "test", "-v", "fault"], LONG
    found["configure"] = ["./dev", "test", "-v", "configure"], LONG
    return found


def fingerprint() -> str:
    """Returns a hash of the tree including uncommitted changes, except for the file that the stage lint writes."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=PROJECT, check=True, capture_output=True)
    found = hashlib.sha256()
    for name in sorted(set(os.fsdecode(listed.stdout).split("\0")) - {"", "tools/lint/clang_base"}):
        path = PROJECT / name
        found.update(os.fsencode(name) + (path.read_bytes() if path.is_file() else b""))
    return found.hexdigest()


def is_committed() -> bool:
    """Returns whether the tree is the same as HEAD, because the bare test uses HEAD."""
    words = ["git", "status", "--porcelain", "--", ":!tools/lint/clang_base"]
    return not subprocess.run(words, cwd=PROJECT, check=True, capture_output=True).stdout


def say(text: str) -> None:
    print(f"all: {text}", flush=True)


def run(name: str, command: list[str], variables: dict[str, str]) -> tuple[bool, int]:
    """Runs one stage with its output in a separate file. Returns whether it passed, and its seconds. A skipped stage
    has not passed.
    """
    log = FOLDER / f"{name}.log"
    start = told = time.monotonic()
    say(f"{name}: {' '.join(command)}")
    with log.open("w") as output:
        environment = {**os.environ, **variables}
        process = subprocess.Popen(command, cwd=PROJECT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        while True:
            try:
                process.wait(1)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() - told >= PROGRESS_S:
                    told = time.monotonic()
                    say(f"{name} ({told - start:.0f} s): {last_line(log)}")
    seconds = round(time.monotonic() - start)
    if process.returncode:
        say(f"{name} FAILED (exit {process.returncode}, {seconds} s); the end of {log.relative_to(PROJECT)}:")
        print(*log.read_text(errors="replace").splitlines()[-60:], sep="\n", flush=True)
    return process.returncode == 0, seconds


def last_line(log: pathlib.Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1] if lines else ""


def arguments(known: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev test all", description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(known)}; default: all")
    parser.add_argument("--again", action="store_true", help="also run stages that have already passed on this tree")
    options = parser.parse_args()
    unknown = [name for name in options.stages if name not in known]
    if unknown:
        parser.error(f"unknown stage '{unknown[0]}' (known: {' '.join(known)})")
    return options


def main() -> int:
    known = stages()
    options = arguments(list(known))
    FOLDER.mkdir(parents=True, exist_ok=True)
    state_path, tree = FOLDER / "passed.json", fingerprint()
    state = json.loads(state_path.read_text()) if state_path.exists() and not options.again else {}
    passed: dict[str, int] = state["passed"] if state.get("tree") == tree else {}
    chosen = options.stages or list(known)
    failed = []
    if not is_committed() and any(name.startswith("bare-") for name in chosen):
        say("the tree has uncommitted changes, and the stage bare tests the last commit; commit first")
        return 2
    for name in chosen:
        if name in passed:
            say(f"{name} passed before ({passed[name]} s)")
            continue
        good, seconds = run(name, *known[name])
        if good and fingerprint() != tree:
            say(f"{name} passed, but the tree has changed meanwhile, so it counts as failed")
            good = False
        if good:
            passed[name] = seconds
            state_path.write_text(json.dumps({"tree": tree, "passed": passed}, indent=1))
        else:
            failed.append(name)
    say(f"{len(chosen) - len(failed)} of {len(chosen)} stages passed on this tree{': failed ' + ' '.join(failed) if failed else ''}")
    for name in chosen:
        print(f"{passed[name]:7d} s  {name}" if name in passed else f"  FAILED  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
