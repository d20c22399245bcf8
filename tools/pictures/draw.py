#!/usr/bin/env python3
"""Makes pictures of the guides from real runs: draw.py [FOLDER], by default docs/.

`ninja -C build pictures` calls it with the library and programs of that build. It runs three jobs (job.py) with dscrun,
and draws their records. Times differ from run to run.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import mapping  # noqa: E402
import overlap  # noqa: E402
import ring  # noqa: E402
import trace_timeline  # noqa: E402
import zero  # noqa: E402

LIMIT_S = 120
DSCRUN, DSCCTL = os.environ.get("DSCRUN", "dscrun"), os.environ.get("DSCCTL", "dscctl")


def run(job: str, ranks: int, folder: pathlib.Path) -> pathlib.Path:
    """Runs a job of job.py, and returns the folder to which it wrote."""
    to = folder / job
    to.mkdir()
    command = [DSCRUN, "-n", str(ranks), "--", sys.executable, str(HERE / "job.py"), job, str(to)]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    return to


def merge(traces: pathlib.Path) -> dict[str, object]:
    """Returns the report of dscctl, whose exit code is 1 if it has findings."""
    done = subprocess.run([DSCCTL, "trace", "merge", "--json", str(traces)], stdout=subprocess.PIPE, timeout=LIMIT_S)
    if done.returncode not in (0, 1):
        sys.exit(f"dscctl trace merge exited with {done.returncode}, expected 0 or 1")
    report: dict[str, object] = json.loads(done.stdout)
    return report


def main(to: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        facts = json.loads((run("facts", 4, pathlib.Path(folder)) / "facts.json").read_text())
        traces = run("timeline", 4, pathlib.Path(folder))
        pictures = {
            "overlap": overlap.draw(run("overlap", 2, pathlib.Path(folder))),
            "zero": zero.draw(facts),
            "ring": ring.draw(facts),
            "mapping": mapping.draw(facts),
            "trace_timeline": trace_timeline.draw(traces, merge(traces)),
        }
    for name, picture in pictures.items():
        (to / f"{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[1] / "docs")
