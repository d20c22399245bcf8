#!/usr/bin/env python3
"""Tries libdsc as a new user does. Every way runs in its own bare Debian 12 root, which has only git.

    readme    every command and source of README.md and bindings/*/README.md in order, and their output; this
              includes `./dev test`
    commands  every command of `./dev help`, and every measurement that a page names
    user      an ordinary user with sudo, without /etc/hosts and a resolvable host name: ./dev demo and a few tests
    quick     the same user: ./dev test quick
    others    the scripts in tests/bare/ways, each as root in an empty folder; files that one leaves in
              $LIBDSC_SHARED are available to the next
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import sys
import threading
import time
from typing import IO

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import root as bare_root  # noqa: E402
import session  # noqa: E402

PROJECT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = sorted((PROJECT / "tests/bare/ways").glob("*.sh"))
DOCUMENTS = {
    "readme": ["README.md", *sorted(str(path.relative_to(PROJECT)) for path in PROJECT.glob("bindings/*/README.md"))],
    "commands": ["tests/bare/commands.md"],
}
# Commands of an ordinary user, whose root cannot resolve its own host name. They start ranks from Python, as threads, as
# processes and on two hosts, because start-up uses the host name.
USER = {
    "user": ["./dev demo", "./dev test groups bootstrap_meeting bootstrap_endpoint engine_suite_hier"],
    "quick": ["./dev test quick"],
}
WAYS = [*DOCUMENTS, *USER, *(path.stem for path in SCRIPTS)]
LIMIT_S = 100 * 60  # time limit of one way, on a loaded machine
SKIPPED = 77
SHARED = "/srv/shared"


def say(text: str) -> None:
    print(f"bare: {text}", flush=True)


def run_documents(root: bare_root.Root, names: list[str], log: IO[str]) -> None:
    problems = []
    for name in names:
        try:
            session.run(root, name, (PROJECT / name).read_text(), bare_root.SOURCE, LIMIT_S, log, say)
        except session.Failed as failed:
            problems.append(str(failed))
    if problems:
        raise session.Failed("\n".join(problems))


def run_user(root: bare_root.Root, commands: list[str], log: IO[str]) -> None:
    text = "\n".join(["```sh", *commands, "```", ""])
    session.run(root, "ordinary user", text, bare_root.SOURCE, LIMIT_S, log, say)


def run_script(root: bare_root.Root, script: pathlib.Path, log: IO[str], shared: pathlib.Path) -> None:
    inside = root.path(SHARED)
    shared.mkdir(exist_ok=True)
    shutil.copytree(shared, inside)
    variables = {"LIBDSC_SOURCE": bare_root.SOURCE, "LIBDSC_SHARED": SHARED, **bare_root.ci()}
    process = root.start(f"exec bash -e {bare_root.SOURCE}/{script.relative_to(PROJECT)}", "/srv", **variables)
    watchdog = threading.Timer(LIMIT_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout
        for line in process.stdout:
            log.write(line)
            log.flush()
        if process.wait():
            raise session.Failed(f"{script.name}: exit {process.returncode}")
        shutil.copytree(inside, shared, dirs_exist_ok=True)
    finally:
        watchdog.cancel()


def keep_test_log(root: bare_root.Root, results: pathlib.Path) -> None:
    """Copies Meson's record of the tests to the folder where the gate adds up the records."""
    inside = root.clone / "build/meson-logs/testlog.json"
    if inside.exists():
        (results / "meson-logs").mkdir(parents=True, exist_ok=True)
        shutil.copy(inside, results / "meson-logs")


def run_way(way: str, base: pathlib.Path, folder: pathlib.Path, keep: bool) -> bool:
    """Runs one way and prints its result."""
    log_path = folder / f"{way}.log"
    start = time.monotonic()
    root = None
    try:
        with log_path.open("w") as log:
            root = bare_root.Root(base, folder / "run" / way, PROJECT, user="newcomer" if way in USER else None)
            if way in DOCUMENTS:
                run_documents(root, DOCUMENTS[way], log)
            elif way in USER:
                run_user(root, USER[way], log)
            else:
                run_script(root, next(path for path in SCRIPTS if path.stem == way), log, folder / "shared")
    except (session.Failed, RuntimeError, OSError) as error:
        tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-40:])
        say(f"FAILED {way} after {(time.monotonic() - start) / 60:.1f} min: {error}\n{tail}\nbare: all of it: {log_path}")
        return False
    finally:
        if root:
            keep_test_log(root, folder / way)
        if root and not keep:
            root.remove()
    say(f"ok {way} ({(time.monotonic() - start) / 60:.1f} min)")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev test bare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)}; default: all")
    parser.add_argument("--folder", type=pathlib.Path, default=PROJECT / "build/bare", help="for roots and logs; default: build/bare")
    parser.add_argument("--keep", action="store_true", help="leave what the ways wrote, to look at")
    options = parser.parse_args()
    unknown = [way for way in options.ways if way not in WAYS]
    if unknown:
        parser.error(f"there is no way '{unknown[0]}' (known: {' '.join(WAYS)})")
    try:
        bare_root.check()
    except bare_root.Unavailable as error:
        say(f"skipped: {error}")
        return 1 if os.environ.get("CI") else SKIPPED
    options.folder.mkdir(parents=True, exist_ok=True)
    say(f"the root ({options.folder})")
    base = bare_root.make_base(options.folder)
    good = [run_way(way, base, options.folder, options.keep) for way in options.ways or WAYS]
    say(f"{sum(good)} of {len(good)} ways work")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
