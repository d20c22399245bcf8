"""Runs the steps of a document in one shell inside a root, as a user would type them, and compares what they print."""

from __future__ import annotations

import pathlib
import shlex
import threading
import time
from typing import Callable, IO

import document
import root as bare_root

# One shell runs all steps, so that a later step sees what an earlier one exported. It reports the end of each step on
# its standard output.
SHELL = """
cd {folder}
for step in {session}/*.step; do
  source "$step" >"${{step%.step}}.out" 2>&1 </dev/null
  echo "${{step%.step}} $?"
done
"""


# Launchers of other projects, which their users have installed. Open MPI refuses root and more ranks than cores by
# default.
LAUNCHERS = {"mpirun": "openmpi-bin"}
INSTALL = "apt-get install -y -qq --no-install-recommends {package} >/dev/null\n"
VARIABLES = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


class Failed(Exception):
    """A step failed, or its output differs from the document. The text says which step and what differs."""


def run(root: bare_root.Root, name: str, text: str, folder: str, limit_s: int, log: IO[str], say: Callable[[str], None]) -> None:
    """Runs all steps of the document `name` in `folder` inside `root`. Raises Failed with all failures."""
    steps = document.steps(text)
    session = f"/srv/session-{pathlib.PurePath(name).parent.name or 'root'}"
    outside = root.path(session)
    outside.mkdir()
    outside.chmod(0o777)
    for number, step in enumerate(steps):
        (outside / f"{number:03}.step").write_text(_shell(step))
    process = root.start(SHELL.format(folder=shlex.quote(folder), session=session), folder, **VARIABLES, **bare_root.ci())
    watchdog = threading.Timer(limit_s, process.kill)
    watchdog.start()
    problems = []
    try:
        assert process.stdout
        for number, step in enumerate(steps):
            start = time.monotonic()
            line = process.stdout.readline().split()
            printed = (outside / f"{number:03}.out").read_text(errors="replace") if line else _what_there_is(outside, number)
            log.write(f"$ {step.name or step.text}\n{printed}")
            log.flush()
            problem = _problem(step, line, printed, limit_s)
            if problem:
                problems.append(f"{name}: {step.name or step.text}\n{problem}")
            if problem or not step.name:
                say(f"{'FAILED ' if problem else ''}{name}: {step.text.splitlines()[0]} ({time.monotonic() - start:.0f} s)")
            if not line:
                break
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
    if problems:
        raise Failed("\n".join(problems))


def _shell(step: document.Step) -> str:
    if not step.name:
        package = LAUNCHERS.get(step.text.split()[0])
        return (INSTALL.format(package=package) if package else "") + step.text + "\n"
    folder = str(pathlib.PurePath(step.name).parent)
    return f"mkdir -p {shlex.quote(folder)}\ncat >{shlex.quote(step.name)} <<'END OF FILE'\n{step.text}END OF FILE\n"


def _what_there_is(outside: pathlib.Path, number: int) -> str:
    path = outside / f"{number:03}.out"
    return path.read_text(errors="replace") if path.exists() else ""


def _problem(step: document.Step, line: list[str], printed: str, limit_s: int) -> str:
    last = "\n".join(printed.splitlines()[-60:])
    if not line:
        return f"the document took longer than {limit_s} s here, or the shell ended; printed so far:\n{last}"
    if line[1] != "0":
        return f"exit {line[1]}; printed:\n{last}"
    problem = document.difference(step.promised, printed)
    return problem and f"{problem}\nprinted:\n{last}"
