#!/usr/bin/env python3
"""Measures libdsc and its peers in turn, on the same sizes, and compares them.

All engines run the same loop (bench/harness.cpp). They are interleaved: in each round every engine runs once per
operation and size, so that a machine whose speed changes slows down all of them equally. A number is the time of the
slowest rank: the median over the repetitions of a run, then the median over the rounds.

Several operations, such as "broadcast,gather", are measured in one interleaved run. An overview of all of them follows
their tables. "all" means the nine operations that move data, and "tensor_map" all mappings.
"""

import argparse
import difflib
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import heat_map
import machine
import overview
from arguments import numbers, output_file, positive, sizes
from engines import ALL_OPS, ENGINES, MAPPINGS, PEERS, Engine, Runner
from rounds import Cell, Rounds
from tables import human, plain, short

OURS = ("libdsc", "libdsc_zero_copy")
LISTS = {"all": tuple(op for op in ALL_OPS if op != "barrier"), "tensor_map": MAPPINGS}
SIZES = [4, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20]
OVERVIEW_SIZES = [4, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
MAP_SIZES = [16 << 10, 256 << 10, 2 << 20, 16 << 20, 32 << 20]  # 1 to 2,048 rows of 4,096
QUICK_SIZES = [1 << 10, 1 << 20]


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exits through the finally clauses
    if options.install_peers:
        install_peers(options.build)
    context = machine.describe(options.build)
    machine.warn_if_busy(context["busy_cores_before"])
    chosen, missing = choose(options)
    plan = {
        Cell(op, ranks, size): engines
        for ranks in options.ranks
        for op, engines in chosen.items()
        for size in options.sizes_of(op)
    }
    bench = Rounds(Runner(options.build / "bench", options.quick, options.hosts, options.bind), plan, options.rounds)
    try:
        bench.run()
    except KeyboardInterrupt:
        print("\nbench: stopped; what was measured until now:", file=sys.stderr)
    write(options, bench, context, missing)
    able = all(engines for engines in chosen.values())
    return 0 if able and not bench.failed and not any(ours in missing for ours in OURS) else 1


def write(options: argparse.Namespace, bench: Rounds, context: dict, missing: dict[str, str]) -> None:
    """Prints the tables, and writes the files that were asked for."""
    measured = bench.medians()
    for op in options.ops:
        for ranks in options.ranks:
            print_tables(op, ranks, options.rounds, measured)
    if len(options.ops) > 1 and measured:
        print(f"\n{overview.text(measured, options.rounds)}")
    about = f"{context['cpu']}, {context['cores']} cores, {context['caches']}, {context['kernel']}; {context['build']}"
    print(f"\n{about}")
    rows = [
        {"op": cell.op, "engine": engine, "ranks": cell.ranks, "bytes": cell.size, "median_us": round(median_us, 3)}
        for cell, engines in measured.items()
        for engine, median_us in engines.items()
    ]
    report = {"rows": rows, "machine": context, "runs": bench.runs, "missing": missing}
    for path, text in (
        (options.json, lambda: json.dumps(report, indent=1) + "\n"),
        (options.markdown, lambda: overview.page(measured, options.rounds, context)),
        (options.svg, lambda: heat_map.draw(measured, f"{context['cpu']}, {context['cores']} cores; median of {options.rounds}")),
    ):
        if path:
            path.write_text(text())
            print(f"written to {path}")


class Options(argparse.Namespace):
    def sizes_of(self, op: str) -> list[int]:
        if op == "barrier":
            return [0]
        if self.sizes or self.quick:
            return self.sizes or QUICK_SIZES
        return MAP_SIZES if op in MAPPINGS else OVERVIEW_SIZES if len(self.ops) > 1 else SIZES


def parse(arguments: list[str] | None = None) -> Options:
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = ", ".join((*ALL_OPS, *MAPPINGS, *LISTS))
    others = "ddp, context_parallel, expert_parallel, tensor_map_types, pipe_run, python_call, instructions, switches"
    parser.add_argument("ops", type=operations, metavar="OP", help=f"{known}, or several with commas; and {others}, see their --help")
    parser.add_argument("--peers", type=names, default=None, help=f"of {','.join(PEERS)}; none; default: all installed; for all also without wire")
    parser.add_argument("--ranks", type=numbers, default=None, help="default: 2,4; for a quick run of all only 2")
    parser.add_argument("--hosts", type=positive, default=1, help="number of hosts, as network namespaces, over which the ranks are distributed; default: 1")
    parser.add_argument("--sizes", type=sizes, default=None, help="such as 4,1KiB,25MiB; default: 4 B to 100 MiB; for several operations to 64 MiB")
    parser.add_argument("--rounds", type=positive, default=None, help="default: 3; for all 5")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="also write rows, machine and every run to FILE")
    parser.add_argument("--markdown", type=output_file, metavar="FILE", help="also write the overview to FILE, as a section of a page")
    parser.add_argument("--svg", type=output_file, metavar="FILE", help="also draw each cell's ratio to the better of Open MPI and MPICH")
    parser.add_argument("--quick", action="store_true", help="one round, two sizes, few repetitions: does it work?")
    parser.add_argument("--bind", action=argparse.BooleanOptionalAction, default=None, help="bind each rank to a processor, which Open MPI does with two ranks; default: only for all")
    parser.add_argument("--install-peers", action="store_true", help="install the packages of the chosen peers first")
    parser.add_argument("--build", type=Path, default=root / "build", metavar="FOLDER", help="default: build")
    options = parser.parse_args(arguments, Options())
    everything = options.ops == LISTS["all"]
    options.rounds = options.rounds or (1 if options.quick else 5 if everything else 3)
    options.ranks = options.ranks or ([2] if everything and options.quick else [2, 4])
    options.bind = everything if options.bind is None else options.bind
    if options.peers is None:
        options.peers = [name for name in PEERS if not everything or name in overview.OTHERS]
    if options.hosts > min(options.ranks):
        parser.error(f"--hosts: expected at most {min(options.ranks)}, the number of ranks, got {options.hosts}")
    if "send_recv" in options.ops and any(ranks % 2 for ranks in options.ranks):
        parser.error("send_recv runs between pairs of ranks: expected even numbers in --ranks")
    if options.svg and not set(options.peers) & set(overview.MPI):
        parser.error("--svg compares with openmpi and mpich: expected at least one of them in --peers")
    return options


def operations(text: str) -> tuple[str, ...]:
    found: list[str] = []
    for name in text.split(","):
        if name not in (*ALL_OPS, *MAPPINGS, *LISTS):
            near = difflib.get_close_matches(name, (*ALL_OPS, *MAPPINGS, *LISTS), 1)
            guess = f"; did you mean '{near[0]}'?" if near else ""
            raise argparse.ArgumentTypeError(f"unknown operation '{name}'{guess}")
        found += LISTS.get(name, (name,))
    return tuple(dict.fromkeys(found))


def names(text: str) -> list[str]:
    found = [] if text == "none" else text.split(",")
    for name in found:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"unknown peer '{name}' (known: {', '.join(PEERS)}, none)")
    return found


def choose(options: Options) -> tuple[dict[str, list[Engine]], dict[str, str]]:
    """Returns the engines that can run each operation, and the reasons why others cannot. Prints these reasons."""
    place = "hosts" if options.hosts > 1 else "one host"
    wanted = [
        engine
        for engine in ENGINES.values()
        if (not engine.is_peer or engine.name in options.peers) and place in engine.places and set(engine.ops) & set(options.ops)
    ]
    missing = {engine.name: reason for engine in wanted if (reason := engine.missing(options.build / "bench"))}
    for name, reason in missing.items():
        print(f"bench: without {name}: {reason}", file=sys.stderr)
    packages = " ".join(ENGINES[name].packages for name in missing if ENGINES[name].is_peer)
    if packages:
        line = f"apt-get install --no-install-recommends {packages}"
        print(f"bench: --install-peers adds more peers with: {line}", file=sys.stderr)
    chosen = {op: [engine for engine in wanted if op in engine.ops and engine.name not in missing] for op in options.ops}
    for op, engines in chosen.items():
        if not engines:
            print(f"bench: no installed library can measure {op}", file=sys.stderr)
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


def print_tables(op: str, ranks: int, rounds: int, measured: overview.Times) -> None:
    table = {cell.size: engines for cell, engines in measured.items() if (cell.op, cell.ranks) == (op, ranks)}
    engines = [name for name in ENGINES if any(name in row for row in table.values())]
    if not engines:
        return
    print(f"\n{op}, f32, {ranks} ranks: microseconds, slowest rank, median of {rounds} round{'s' * (rounds > 1)}")
    print_table(engines, {human(size): {name: short(us) for name, us in row.items()} for size, row in table.items()})
    for ours in OURS:
        others = [name for name in engines if name not in OURS]
        rows = {size: ratios(row, ours, others) for size, row in table.items() if ours in row}
        if not rows or not others:
            continue
        means = geometric_means([row for size, row in rows.items() if size >= overview.MEAN_FROM])
        named = {human(size): row for size, row in rows.items()} | ({f"{human(overview.MEAN_FROM)}+": means} if means else {})
        print(f"\n{op}, {ranks} ranks: time of the others divided by the time of {ours}")
        print_table(others, {size: {name: f"{ratio:.2f}x" for name, ratio in row.items()} for size, row in named.items()})


def ratios(row: dict[str, float], ours: str, others: list[str]) -> dict[str, float]:
    return {name: row[name] / row[ours] for name in others if name in row}


def geometric_means(rows: list[dict[str, float]]) -> dict[str, float]:
    """Returns geometric means for the engines that were measured at every size."""
    common = set.intersection(*(set(row) for row in rows)) if len(rows) > 1 else set()
    return {name: statistics.geometric_mean(row[name] for row in rows) for name in common}


def print_table(columns: list[str], rows: dict[str, dict[str, str]]) -> None:
    print(plain(["bytes", *columns], [[head, *(row.get(name, "-") for name in columns)] for head, row in rows.items()]))


if __name__ == "__main__":
    sys.exit(main())
