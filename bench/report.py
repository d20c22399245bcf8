#!/usr/bin/env python3
"""Measures libdsc and its peers in turn, on the same sizes, and compares them.

All engines run the same loop (bench/harness.cpp). They are interleaved: in each round every engine runs once per size,
so that a machine whose speed changes slows down all of them equally. A number is the time of the slowest rank: the
median over the repetitions of a run, then the median over the rounds.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import machine
from engines import ALL_OPS, ENGINES, MAPPINGS, PEERS, Failure, Runner

OURS = ("libdsc", "libdsc_zero_copy")
MEAN_FROM = 1 << 10  # the last line of a ratio table is the geometric mean over sizes of at least this many bytes
SIZES = [4, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20]
MAP_SIZES = [16 << 10, 256 << 10, 2 << 20, 16 << 20, 32 << 20]  # 1 to 2,048 rows of 4,096
QUICK_SIZES = [1 << 10, 1 << 20]
UNITS = {"": 1, "B": 1, "K": 1 << 10, "KIB": 1 << 10, "M": 1 << 20, "MIB": 1 << 20}


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exits through the finally clauses
    if options.install_peers:
        install_peers(options.build)
    context = machine.describe(options.build)
    busy = context["busy_cores_before"]
    if busy > 0.2:
        print(f"bench: other programs keep {busy} of the machine's cores busy, so the figures will be inexact", file=sys.stderr)
    report: dict = {"rows": [], "machine": context, "runs": [], "missing": {}}
    good = [measure(options, op, report) for op in (MAPPINGS if options.op == "tensor_map" else (options.op,))]
    print(f"\n{context['cpu']}, {context['cores']} cores, {context['caches']}, {context['kernel']}; {context['build']}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
        print(f"written to {options.json}")
    return 0 if all(good) else 1


def measure(options: argparse.Namespace, op: str, report: dict) -> bool:
    """Measures one operation, prints its tables and adds to the report. Returns False if something could not be
    measured.
    """
    chosen, missing = choose(options, op)
    if not chosen:
        print(f"bench: no installed library can measure {op}", file=sys.stderr)
        return False
    bench = Bench(options, op, chosen)
    try:
        bench.run()
    except KeyboardInterrupt:
        print("\nbench: stopped; what was measured until now:", file=sys.stderr)
    for ranks in options.ranks:
        print_tables(op, ranks, options.rounds, bench.table(ranks))
    report["rows"] += bench.rows()
    report["runs"] += bench.runs
    report["missing"] |= missing
    return not bench.failed and not any(ours in missing for ours in OURS)


def parse() -> argparse.Namespace:
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("op", choices=(*ALL_OPS, *MAPPINGS, "tensor_map"), metavar="OP", help=", ".join((*ALL_OPS, *MAPPINGS)) + "; tensor_map: all mappings" + "; and ddp, context_parallel, expert_parallel, tensor_map_types, pipe_run, python_call, instructions, switches, see their --help")
    parser.add_argument("--peers", type=names, default=None, help=f"of {','.join(PEERS)}; none; default: all installed")
    parser.add_argument("--ranks", type=numbers, default=[2, 4], help="default: 2,4")
    parser.add_argument("--hosts", type=positive, default=1, help="number of hosts, as network namespaces, over which the ranks are distributed; default: 1")
    parser.add_argument("--sizes", type=sizes, default=None, help="such as 4,1KiB,25MiB; default: 4 B to 100 MiB")
    parser.add_argument("--rounds", type=positive, default=None, help="default: 3")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write rows, machine and every run to FILE")
    parser.add_argument("--quick", action="store_true", help="one round, two sizes, few repetitions: does it work?")
    parser.add_argument("--bind", action="store_true", help="bind each rank to a processor, which Open MPI always does")
    parser.add_argument("--install-peers", action="store_true", help="install the packages of the chosen peers first")
    parser.add_argument("--build", type=Path, default=root / "build", metavar="FOLDER", help="default: build")
    options = parser.parse_args()
    usual = QUICK_SIZES if options.quick else MAP_SIZES if options.op in ("tensor_map", *MAPPINGS) else SIZES
    options.sizes = [0] if options.op == "barrier" else options.sizes or usual
    options.rounds = options.rounds or (1 if options.quick else 3)
    if options.hosts > min(options.ranks):
        parser.error(f"--hosts: expected at most {min(options.ranks)}, the number of ranks, got {options.hosts}")
    if options.op == "send_recv" and any(ranks % 2 for ranks in options.ranks):
        parser.error("send_recv runs between pairs of ranks: expected even numbers in --ranks")
    return options


def names(text: str) -> list[str]:
    found = [] if text == "none" else text.split(",")
    for name in found:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"unknown peer '{name}' (known: {', '.join(PEERS)}, none)")
    return found


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, got '{text}'")
    return int(text)


def numbers(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def sizes(text: str) -> list[int]:
    found = []
    for part in text.split(","):
        digits = part.rstrip("BKMibkm")
        unit = part[len(digits) :].upper()
        if not digits.isdecimal() or unit not in UNITS:
            raise argparse.ArgumentTypeError(f"expected a size such as 4, 16KiB or 25MiB, got '{part}'")
        found.append(int(digits) * UNITS[unit])
    if any(size < 4 or size % 4 for size in found):
        raise argparse.ArgumentTypeError("expected multiples of 4 bytes, the size of one f32")
    return found


def choose(options: argparse.Namespace, op: str) -> tuple[list, dict[str, str]]:
    """Returns the engines that can run, and the reasons why the others cannot. Prints these reasons."""
    wanted = PEERS if options.peers is None else options.peers
    chosen, missing = [], {}
    for engine in ENGINES.values():
        if (engine.is_peer and engine.name not in wanted) or op not in engine.ops:
            continue
        if ("hosts" if options.hosts > 1 else "one host") not in engine.places:
            continue
        reason = engine.missing(options.build / "bench")
        if reason:
            missing[engine.name] = reason
            print(f"bench: without {engine.name}: {reason}", file=sys.stderr)
        else:
            chosen.append(engine)
    packages = " ".join(ENGINES[name].packages for name in missing if ENGINES[name].is_peer)
    if packages:
        line = f"apt-get install --no-install-recommends {packages}"
        print(f"bench: './dev bench {op} --install-peers' adds more peers with: {line}", file=sys.stderr)
    return chosen, missing


def install_peers(build: Path) -> None:
    packages = " ".join(ENGINES[name].packages for name in PEERS).split()
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    for command in (
        [*as_root, "apt-get", "update"],
        [*as_root, "apt-get", "install", "-y", "--no-install-recommends", *packages],
        ["meson", "setup", "--reconfigure", str(build)],
        ["ninja", "-C", str(build)],
    ):
        print("bench:", " ".join(command), file=sys.stderr)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"{done.stdout}bench: {command[-1]} failed with exit status {done.returncode}")


class Bench:
    """Runs the rounds and keeps the results of every run."""

    def __init__(self, options: argparse.Namespace, op: str, chosen: list):
        self.options, self.op, self.chosen = options, op, chosen
        self.runner = Runner(options.build / "bench", op, options.quick, options.hosts, options.bind)
        self.runs: list[dict] = []
        self.failed: set[tuple[str, int]] = set()

    def run(self) -> None:
        for ranks in self.options.ranks:
            for number in range(self.options.rounds):
                for size in self.options.sizes:
                    self._run_size(ranks, number, size)

    def _run_size(self, ranks: int, number: int, size: int) -> None:
        start = f"{ranks} ranks, round {number + 1} of {self.options.rounds}, {human(size):>7}:"
        print(start, end="", file=sys.stderr, flush=True)
        turn = number % len(self.chosen)  # no engine always runs first, when the machine is cool
        for engine in self.chosen[turn:] + self.chosen[:turn]:
            if (engine.name, ranks) in self.failed:
                continue
            try:
                run = self.runner.run(engine, ranks, size)
            except Failure as failure:
                self.failed.add((engine.name, ranks))
                print(f"\nbench: {engine.name} failed and is left out at {ranks} ranks: {failure}", file=sys.stderr)
                continue
            self.runs.append(run | {"round": number})
            print(f" {engine.name} {short(run['median_us'])}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)

    def table(self, ranks: int) -> dict[int, dict[str, float]]:
        """Returns a table: bytes -> engine -> microseconds."""
        times: dict[tuple[int, str], list[float]] = {}
        for run in self.runs:
            if run["ranks"] == ranks:
                times.setdefault((run["bytes"], run["engine"]), []).append(run["median_us"])
        return {
            size: {
                engine.name: statistics.median(times[size, engine.name])
                for engine in self.chosen
                if (size, engine.name) in times
            }
            for size in self.options.sizes
        }

    def rows(self) -> list[dict]:
        return [
            {"op": self.op, "engine": engine, "ranks": ranks, "bytes": size, "median_us": round(median_us, 3)}
            for ranks in self.options.ranks
            for size, engines in self.table(ranks).items()
            for engine, median_us in engines.items()
        ]


def print_tables(op: str, ranks: int, rounds: int, table: dict[int, dict[str, float]]) -> None:
    engines = [name for name in ENGINES if any(name in row for row in table.values())]
    print(f"\n{op}, f32, {ranks} ranks: microseconds, slowest rank, median of {rounds} round{'s' * (rounds > 1)}")
    print_table(engines, {size: {name: short(us) for name, us in row.items()} for size, row in table.items()})
    for ours in OURS:
        others = [name for name in engines if name not in OURS]
        rows = {size: ratios(row, ours, others) for size, row in table.items() if ours in row}
        if not rows or not others:
            continue
        print(f"\n{op}, {ranks} ranks: time of the others divided by the time of {ours}")
        print_table(others, {size: {name: f"{ratio:.2f}x" for name, ratio in row.items()} for size, row in rows.items()})
        means = geometric_means([row for size, row in rows.items() if size >= MEAN_FROM])
        if means:
            print_row(f"{human(MEAN_FROM)}+", others, {name: f"{mean:.2f}x" for name, mean in means.items()})


def ratios(row: dict[str, float], ours: str, others: list[str]) -> dict[str, float]:
    return {name: row[name] / row[ours] for name in others if name in row}


def geometric_means(rows: list[dict[str, float]]) -> dict[str, float]:
    """Returns geometric means for the engines that were measured at every size."""
    common = set.intersection(*(set(row) for row in rows)) if len(rows) > 1 else set()
    return {name: statistics.geometric_mean(row[name] for row in rows) for name in common}


def print_table(columns: list[str], cells: dict[int, dict[str, str]]) -> None:
    print_row("bytes", columns, {name: name for name in columns})
    for size, row in cells.items():
        print_row(human(size), columns, row)


def print_row(head: str, columns: list[str], cells: dict[str, str]) -> None:
    print(f"{head:>8}", *(f"{cells.get(name, '-'):>{max(9, len(name))}}" for name in columns))


def human(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def short(us: float) -> str:
    return f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 100 else f"{us:.0f}"


if __name__ == "__main__":
    sys.exit(main())
