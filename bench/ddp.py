#!/usr/bin/env python3
"""Measures how much reducing gradients adds to a training step: libdsc's BucketReducer and PyTorch's
DistributedDataParallel.

A step is a backward pass of PyTorch whose gradients are made one after another, the last parameter's first. All ways of
reducing them take turns in the same processes, on the same parameters. Exposed time is the time of the slowest rank's
step minus that rank's median step without communication: the part of the reduction for which the step has to wait.

  alone         no communication
  torch         DistributedDataParallel with gloo and its defaults
  torch_views   torch with gradient_as_bucket_view=True
  torch_kept    torch_views with zero_grad(set_to_none=False), which keeps gradients in the buckets
  libdsc        BucketReducer, mark_ready(i, p.grad) in hooks of autograd
  libdsc_views  p.grad is the reducer's grad_view(i), and is zeroed after each step

If memory is short, ways that copy more are left out.
"""

import argparse
import difflib
import functools
import glob
import json
import os
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
from arguments import numbers, output_file, positive
from bench_ddp import HOOKS, MODELS, shapes_of
from engines import ENGINES, Failure, Runner, end_with_parent, stop

OURS, THEIRS = ("libdsc", "libdsc_views"), ("torch", "torch_views", "torch_kept")
DISPENSABLE = ("torch", "torch_views", "libdsc")  # the first to be left out if memory is short
COPIES = {"plain": 1, "fp16": 2, "powersgd": 3}  # copies of all gradients that a way keeps
NEEDED = "torch 2.1 or newer, and numpy"
ADVICE = "python3 -m venv FOLDER, FOLDER/bin/pip install torch numpy, then --python FOLDER/bin/python3"
BUDGET_S = 30  # for the steps of one run; slow runs take fewer steps
START_S = 120  # until the steps begin
PROGRESS_S = 10
F32 = 4


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exits through the finally clauses
    python = options.torch_python
    ways = ["alone", *(THEIRS if python else ()), *OURS]
    context = machine.describe(options.build)
    context["command"] = context["command"].replace("./dev bench", "./dev bench ddp", 1)
    context["torch"] = torch_version(python) if python else None
    machine.warn_if_busy(context["busy_cores_before"])
    bench, failed = Bench(options, python or sys.executable, ways), False
    try:
        bench.run()
    except (Failure, KeyboardInterrupt) as end:
        failed = True
        print(f"\nbench: {end or 'stopped'}; what was measured until now:", file=sys.stderr)
    rows = bench.rows()
    print_tables(rows)
    with_torch = f"torch {context['torch']}" if python else "without torch: gradients of numpy"
    print(f"\n{context['cpu']}, {context['cores']} cores, {context['caches']}, {context['kernel']}; {context['build']}; {with_torch}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "machine": context, "runs": bench.runs}, indent=1) + "\n")
        print(f"written to {options.json}")
    return int(failed)


def parse() -> argparse.Namespace:
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(
        prog="./dev bench ddp",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: ./dev bench ddp --models resnet50 --ranks 2 --steps 10 --rounds 1 --json ddp.json",
    )
    parser.add_argument("--models", type=listed("model", MODELS), default=None, help="of resnet50,gpt2,small; default: resnet50,gpt2")
    parser.add_argument("--hooks", type=listed("hook", HOOKS), default=list(HOOKS), help="of plain,fp16,powersgd; default: all")
    parser.add_argument("--ranks", type=numbers, default=None, help="default: 2,4")
    parser.add_argument("--steps", type=positive, default=None, help="steps of each way in a run, fewer if steps are slow; default: 20")
    parser.add_argument("--rounds", type=positive, default=None, help="runs in new processes; default: 3")
    parser.add_argument("--peers", type=listed("peer", ["torch"]), default=None, help="torch, or none; default: torch where a Python has it")
    parser.add_argument("--python", metavar="PYTHON", help=f"one with {NEEDED}; default: $DSC_TORCH_PYTHON, or the first python3 in PATH that has them")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="also write rows, machine and every step to FILE")
    parser.add_argument("--quick", action="store_true", help="one round, a small model, few steps: does it work?")
    parser.add_argument("--build", type=Path, default=root / "build", metavar="FOLDER", help="default: build")
    options = parser.parse_args()
    options.models = options.models or (["small"] if options.quick else ["resnet50", "gpt2"])
    options.ranks = options.ranks or ([2] if options.quick else [2, 4])
    options.steps = options.steps or (5 if options.quick else 20)
    options.rounds = options.rounds or (1 if options.quick else 3)
    if not (options.build / "capi" / "libdsc.so").exists():
        parser.error(f"--build: {options.build / 'capi' / 'libdsc.so'} does not exist; run ./dev build first")
    if options.peers == []:
        if options.python:
            parser.error("--python selects a Python with torch, but --peers none leaves torch out")
        options.torch_python = None
    else:
        options.torch_python = find_torch(options, parser)
    return options


def listed(kind, known):
    """Returns a parser for comma-separated names; "none" is the empty list of peers."""

    def parsed(text: str) -> list[str]:
        found = [] if kind == "peer" and text == "none" else text.split(",")
        for name in found:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                guess = f"; did you mean '{near[0]}'?" if near else ""
                raise argparse.ArgumentTypeError(
                    f"unknown {kind} '{name}'{guess} (known: {', '.join(known)}{', none' * (kind == 'peer')})"
                )
        return list(dict.fromkeys(found))

    return parsed


def find_torch(options: argparse.Namespace, parser: argparse.ArgumentParser) -> str | None:
    """Returns a Python that can compare. Without one, the program ends if the user asked for it, and otherwise prints a
    note.
    """
    named = options.python or os.environ.get("DSC_TORCH_PYTHON")
    if named:
        python = shutil.which(named)
        reason = lacks(python) if python else "this program does not exist"
        if reason:
            parser.error(f"{'--python' if options.python else 'DSC_TORCH_PYTHON'} {named}: {reason}; {ADVICE}")
        return python
    for python in pythons():
        if not lacks(python):
            return python
    text = f"no python3 has {NEEDED} ({', '.join(f'{python}: {lacks(python)}' for python in pythons())}); to compare with it: {ADVICE}"
    if options.peers:
        parser.error(text)
    print(f"bench: without torch: {text}", file=sys.stderr)
    return None


def pythons() -> list[str]:
    folders = [*os.get_exec_path(), "/usr/bin"]
    found = [sys.executable, *(path for folder in folders for path in sorted(glob.glob(f"{folder}/python3*")))]
    real: dict[str, str] = {}
    for path in found:
        if re.fullmatch(r"python3?(\.\d+)?", Path(path).name) and os.access(path, os.X_OK):
            # A virtual environment links to the Python that made it.
            is_environment = Path(path).parent.with_name("pyvenv.cfg").exists()
            real.setdefault(path if is_environment else os.path.realpath(path), path)
    return [path for path in real.values() if answer(path, "") is not None]


@functools.cache
def lacks(python: str) -> str | None:
    """Returns why a Python cannot compare, or None."""
    find = "import importlib.util as u; print(*(name for name in ('torch', 'numpy') if u.find_spec(name) is None))"
    hook = "import torch; print('' if hasattr(torch.Tensor, 'register_post_accumulate_grad_hook') else torch.__version__)"
    missing = answer(python, find)
    if missing is None:
        return "it does not run"
    if missing:
        return "no " + " and no ".join(missing.split())
    old = answer(python, hook)
    return "import torch fails" if old is None else f"its torch is {old}" if old else None


def answer(python: str, program: str) -> str | None:
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def torch_version(python: str) -> str:
    return answer(python, "import torch, sys; print(torch.__version__, 'of Python', sys.version.split()[0])") or "?"


class Bench:
    """Runs the rounds and keeps the results of every run."""

    def __init__(self, options: argparse.Namespace, python: str, ways: list[str]):
        self.options, self.python, self.ways = options, python, ways
        self.runs: list[dict] = []
        self.floors: dict[tuple[str, int], list[float]] = {}

    def run(self) -> None:
        for number in range(self.options.rounds):
            for model in self.options.models:
                for ranks in self.options.ranks:
                    self._floor(model, ranks)
                    for hook in self.options.hooks:
                        start = f"round {number + 1} of {self.options.rounds}: {model}, {ranks} ranks, {hook}"
                        times = self._job(start, model, ranks, hook)
                        self.runs.append({"round": number, "model": model, "ranks": ranks, "hook": hook, "seconds": times})
                        steps = len(times[0]["alone"])
                        cells = [f"{way} {1e3 * statistics.median(slowest(times, way)):.1f}" for way in times[0]]
                        print(f"{start}, {steps} steps: {' '.join(cells)} ms", file=sys.stderr, flush=True)

    def _floor(self, model: str, ranks: int) -> None:
        runner = Runner(self.options.build / "bench", self.options.quick)
        engine = ENGINES["floor"]
        if engine.missing(self.options.build / "bench") is None:
            run = runner.run(engine, "all_reduce", ranks, bytes_of(model))
            self.floors.setdefault((model, ranks), []).append(run["median_us"] / 1e3)

    def _job(self, start: str, model: str, ranks: int, hook: str) -> list[dict[str, list[float]]]:
        """Returns the seconds of every step by way, for each rank. Raises Failure."""
        ways = fitting(self.ways, start, model, ranks, hook)
        with tempfile.TemporaryDirectory(prefix="libdsc-bench-") as store, tempfile.TemporaryFile("w+") as output:
            meeting = Path(store, "meeting")
            meeting.write_bytes(bytes(8 * (1 + 2 * ranks)))
            job = {"model": model, "hook": hook, "ways": ways, "torch": "torch_kept" in ways, "steps": self.options.steps}
            job |= {"budget_s": BUDGET_S, "meeting": str(meeting), "store": store, "id": f"bench-{Path(store).name}"}
            processes = [
                subprocess.Popen(
                    [self.python, str(Path(__file__).with_name("bench_ddp.py")), json.dumps(job)],
                    env=self._environment(rank, ranks),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    preexec_fn=end_with_parent,
                )
                for rank in range(ranks)
            ]
            try:
                wait_for(processes, start, meeting, len(ways))
            except Failure as failure:
                output.seek(0)
                lines = [line.strip() for line in output.read().splitlines() if line.strip()]
                raise Failure(": ".join([start, str(failure), *(lines[-3:])])) from None
            return [json.loads(Path(store, f"rank{rank}.json").read_text()) for rank in range(ranks)]

    def _environment(self, rank: int, ranks: int) -> dict[str, str]:
        build, root = self.options.build.resolve(), Path(__file__).resolve().parent.parent
        path = os.pathsep.join(filter(None, [str(root / "bindings" / "python"), os.environ.get("PYTHONPATH")]))
        return os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(ranks),
            "DSC_LIBRARY": str(build / "capi" / "libdsc.so"),
            "PYTHONPATH": path,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            # Freed memory stays with the process; otherwise page faults would take most of a step.
            "MALLOC_MMAP_MAX_": "0",
            "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        }

    def rows(self) -> list[dict]:
        """Returns a row for each way in each setting that was measured, and one for each lower bound."""
        rows = []
        for key in dict.fromkeys((run["model"], run["ranks"], run["hook"]) for run in self.runs):
            runs = [run["seconds"] for run in self.runs if (run["model"], run["ranks"], run["hook"]) == key]
            head = {"op": "ddp", "model": key[0], "ranks": key[1], "hook": key[2], "bytes": bytes_of(key[0])}
            rows += [head | row_of(runs, way) for way in runs[0][0]]
        for (model, ranks), times in self.floors.items():
            step = round(statistics.median(times), 3)
            rows.append({"op": "ddp", "model": model, "ranks": ranks, "hook": None, "bytes": bytes_of(model), "engine": "floor", "step_ms": step})
        return rows


def bytes_of(model: str) -> int:
    shapes_of(model)
    return F32 * MODELS[model][2]


def fitting(ways: list[str], start: str, model: str, ranks: int, hook: str) -> list[str]:
    """Returns the ways that fit into memory together, and prints which do not. Raises Failure if not even two fit."""
    line = next(line for line in machine.read("/proc/meminfo").splitlines() if line.startswith("MemAvailable:"))
    there, left = int(line.split()[1]) << 10, list(ways)
    for way in (*DISPENSABLE, None):
        # Parameters, gradients, and the memory of a way.
        needed = ranks * ((300 << 20) + bytes_of(model) * (2 + (len(left) - 1) * COPIES[hook]))
        if needed < 0.9 * there:
            break
        if way is None:
            raise Failure(f"{start}: needs about {needed >> 30} GiB of memory, {there >> 30} are available; expected fewer ranks or a smaller model")
        left = [one for one in left if one != way]
    if left != ways:
        print(f"bench: {start}: without {', '.join(way for way in ways if way not in left)}, for {there >> 30} GiB of memory are available", file=sys.stderr)
    return left


def wait_for(processes: list[subprocess.Popen], start: str, meeting: Path, ways: int) -> None:
    """Waits until all processes have ended successfully. Raises Failure after ending all of them."""
    begun, told = time.monotonic(), time.monotonic()
    end = begun + START_S + 4 * BUDGET_S
    descriptors = {os.pidfd_open(process.pid): process for process in processes}
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    pending = len(processes)
    try:
        while pending:
            for descriptor, _ in poll.poll(1000):
                poll.unregister(descriptor)
                pending -= 1
                if code := descriptors[descriptor].wait():
                    rank = processes.index(descriptors[descriptor])
                    raise Failure(f"rank {rank} ended with " + (f"signal {-code}" if code < 0 else f"exit status {code}"))
            now = time.monotonic()
            if now > end:
                raise Failure(f"no result after {end - begun:.0f} s")
            if now > told + PROGRESS_S:
                told = now
                met = int.from_bytes(meeting.read_bytes()[8:16], "little")
                print(f"{start}: step {met // ways}, {now - begun:.0f} s", file=sys.stderr, flush=True)
    finally:
        stop(processes)
        for descriptor in descriptors:
            os.close(descriptor)


def slowest(times: list[dict[str, list[float]]], way: str) -> list[float]:
    return [max(step) for step in zip(*(rank[way] for rank in times))]


def exposed(times: list[dict[str, list[float]]], way: str) -> list[float]:
    """Returns for each step the time of its slowest rank minus that rank's median without communication."""
    alone = [statistics.median(rank["alone"]) for rank in times]
    found = []
    for step in zip(*(rank[way] for rank in times)):
        rank = max(range(len(step)), key=step.__getitem__)
        found.append(step[rank] - alone[rank])
    return found


def row_of(runs: list[list[dict[str, list[float]]]], way: str) -> dict:
    """Returns medians over the rounds of the median in a round, and the quartiles of all steps, in milliseconds."""
    row = {"engine": way}
    for name, of in (("step", slowest), ("exposed", exposed)):
        rounds = [of(times, way) for times in runs]
        steps = sorted(step for one in rounds for step in one)
        low, _, high = statistics.quantiles(steps, n=4, method="inclusive") if len(steps) > 1 else steps * 3
        row[f"{name}_ms"] = round(1e3 * statistics.median(map(statistics.median, rounds)), 3)
        row |= {f"{name}_p25_ms": round(1e3 * low, 3), f"{name}_p75_ms": round(1e3 * high, 3)}
    return row | {"steps": sum(len(times[0][way]) for times in runs)}


def print_tables(rows: list[dict]) -> None:
    ratios = []
    for model, ranks in dict.fromkeys((row["model"], row["ranks"]) for row in rows):
        here = [row for row in rows if (row["model"], row["ranks"]) == (model, ranks)]
        tensors, parameters = MODELS[model][1:]
        print(f"\n{model}, {tensors} tensors, {parameters:,} parameters, f32; {ranks} ranks: ms, slowest rank, median (p25-p75)")
        print(f"{'hook':<9} {'':<13} {'step':>26} {'exposed':>26}")
        for row in here:
            spread = {name: f"({row[f'{name}_p25_ms']:.1f}-{row[f'{name}_p75_ms']:.1f})" for name in ("step", "exposed") if f"{name}_p25_ms" in row}
            cells = [f"{row[f'{name}_ms']:>9.1f} {text:>16}" for name, text in spread.items()] or [f"{row['step_ms']:>9.1f}"]
            if row["engine"] == "alone":
                del cells[1]
            print(f"{row['hook'] or '':<9} {row['engine']:<13} {' '.join(cells)}")
        for hook in HOOKS:
            best = [min((row for row in here if row["hook"] == hook and row["engine"] in those), key=lambda row: row["exposed_ms"], default=None) for those in (OURS, THEIRS)]
            if all(best):
                ratios.append((model, ranks, hook, *best))
    if ratios:
        print("\nexposed time of the best libdsc divided by that of the best torch: below 1, libdsc adds less")
    for model, ranks, hook, ours, theirs in ratios:
        comparable = ours["exposed_ms"] > 0 and theirs["exposed_ms"] > 0
        ratio = f"{ours['exposed_ms'] / theirs['exposed_ms']:.2f}x" if comparable else "-"
        print(f"{model:<9} {ranks} ranks {hook:<9} {ratio:>6}  {ours['engine']} {ours['exposed_ms']:.1f} ms, {theirs['engine']} {theirs['exposed_ms']:.1f} ms")


if __name__ == "__main__":
    sys.exit(main())
