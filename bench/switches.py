#!/usr/bin/env python3
"""Counts the context switches of operations, and compares them with the least possible number.

If n ranks on c processors wait for each other, this costs at least n - c switches, in any order:
docs/oversubscription.md. Numbers are per operation, for all ranks together. "slept" means that a rank went to sleep in
the kernel, and "yielded" that it let another one run.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

import machine
from arguments import numbers, output_file, sizes
from engines import Engine, Failure, Runner
from tables import human

OPS = ("barrier", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all")
IN_PARTS = ("reduce_scatter", "all_to_all")  # a stage contains a block for each rank
BLOCKS = ("all_gather", *IN_PARTS)  # a block is the size divided by the number of ranks
SHARED_COPY_MIN_BYTES = 256 << 10  # from this size, running ranks copy for the others
PLAIN, SHARED = (Engine(name, "bench_switches") for name in ("libdsc", "libdsc_zero_copy"))


def main() -> int:
    options = parse()
    cores = len(os.sched_getaffinity(0))
    machine.warn_if_busy(machine.busy_cores())
    runner, rows, failed = Runner(options.build / "bench", options.quick), [], False
    for ranks in options.ranks:
        print(f"\n{ranks} ranks on {cores} processors: context switches per operation, all ranks together")
        print(f"{'':<15} {'bytes':>8} {'buffers':<9} {'least':>7} {'counted':>8} {'slept':>7} {'yielded':>8} {'us':>9}")
        for op in options.ops:
            for size in [0] if op == "barrier" else options.sizes:
                for engine in (PLAIN,) if op == "barrier" else (PLAIN, SHARED):
                    try:
                        row = count(runner, engine, op, ranks, size, cores)
                    except Failure as failure:
                        failed = True
                        print(f"bench: {op} on {ranks} ranks failed: {failure}", file=sys.stderr)
                        continue
                    rows.append(row)
                    show(row)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "machine": machine.describe(options.build)}, indent=1) + "\n")
        print(f"written to {options.json}")
    return int(failed)


def parse() -> argparse.Namespace:
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(
        prog="./dev bench switches", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", type=operations, default=OPS, help=f"of {','.join(OPS)}; default: all")
    parser.add_argument("--ranks", type=numbers, default=[2, 4, 8], help="default: 2,4,8")
    parser.add_argument("--sizes", type=sizes, default=[1 << 10, 64 << 10, 4 << 20], help="default: 1KiB,64KiB,4MiB")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="also write rows and machine to FILE")
    parser.add_argument("--quick", action="store_true", help="few repetitions: does it work?")
    parser.add_argument("--build", type=Path, default=root / "build", metavar="FOLDER", help="default: build")
    return parser.parse_args()


def operations(text: str) -> list[str]:
    found = text.split(",")
    for name in found:
        if name not in OPS:
            raise argparse.ArgumentTypeError(f"unknown operation '{name}' (known: {', '.join(OPS)})")
    return found


def count(runner: Runner, engine: Engine, op: str, ranks: int, size: int, cores: int) -> dict:
    run = runner.run(engine, op, ranks, size)
    settings = {key: int(value) for key, value in (item.split("=") for item in run["tuning"].split(","))}
    slept, yielded = sum(run["voluntary"]), sum(run["involuntary"])
    return {
        "op": op,
        "engine": engine.name,
        "ranks": ranks,
        "bytes": size,
        "least": meetings(op, engine is SHARED, size, ranks, settings) * max(0, ranks - cores),
        "voluntary": round(slept, 3),
        "involuntary": round(yielded, 3),
        "elapsed_us": round(max(run["elapsed_us"]), 3),
        "repetitions": run["repetitions"],
    }


def meetings(op: str, shared: bool, size: int, ranks: int, settings: dict[str, int]) -> int:
    """Returns how often all ranks must have arrived before any of them continues, with more ranks than processors."""
    if op == "barrier":
        return 1
    block = max(4, size // 4 // ranks * 4) if op in BLOCKS else size
    in_stage = ranks if op in IN_PARTS else 1
    if shared and block * in_stage >= settings["zero_copy_min_bytes"]:
        claimed = op == "all_reduce" or (op in ("broadcast", "gather") and block >= SHARED_COPY_MIN_BYTES)
        return 1 if claimed else 2  # the second time, all ranks wait until the buffers have been read
    if op not in ("all_reduce", "reduce", "reduce_scatter") and block >= settings["single_copy_min_bytes"]:
        return 2  # the second time, all ranks wait until the buffers have been read
    return math.ceil(block / (settings["stage_bytes"] // in_stage))


def show(row: dict) -> None:
    counted = row["voluntary"] + row["involuntary"]
    buffers = "plain" if row["engine"] == "libdsc" else "zero copy"
    print(
        f"{row['op']:<15} {human(row['bytes']):>8} {buffers:<9} {row['least']:>7} {counted:>8.1f}"
        f" {row['voluntary']:>7.1f} {row['involuntary']:>8.1f} {row['elapsed_us']:>9.1f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
