#!/usr/bin/env python3
"""Measures the exchanges of context, expert and tensor parallelism from Python, compared with torch and gloo.

Both take turns in the same processes, call by call, on the same arrays. Torch packs and unpacks with its own
operations. A number is the time of the slowest rank in microseconds: the median over the calls of a run, then the
median over the rounds, which start new processes. The results of both are compared once. Without torch, libdsc is
measured alone, on arrays of numpy.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from arguments import numbers, output_file, positive, sizes
from engines import Failure, end_with_parent, stop, torch_python
from parallel_cases import OPS, Arrays
from tables import human, short

SIZES = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
BUDGET_S = 1.0  # for the calls of one case; slow cases have fewer calls
LIMIT_S = 600  # for a run


def main() -> int:
    options = parse()
    if options.store:
        return run_rank(options)
    import machine  # only the parent needs it

    context = machine.describe(options.build)
    machine.warn_if_busy(context["busy_cores_before"])
    options.python = None if options.peers == "none" else options.python or torch_python()
    if options.python is None and options.peers != "none":
        print("bench: no python3 has the module torch", file=sys.stderr)
    runs = []
    for ranks in options.ranks:
        for number in range(options.rounds):
            print(f"bench: {ranks} ranks, round {number + 1} of {options.rounds}", file=sys.stderr)
            runs += run(options, ranks)
    print_tables(options, runs)
    print(f"\n{context['cpu']}, {context['cores']} cores, {context['caches']}, {context['kernel']}; {context['build']}")
    if options.json:
        options.json.write_text(json.dumps({"runs": runs, "machine": context}, indent=1) + "\n")
    return 0


def parse() -> argparse.Namespace:
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("op", choices=OPS, metavar="OP", help=", ".join(OPS))
    parser.add_argument("--peers", choices=["torch", "none"], default="torch", help="default: torch where a Python has it")
    parser.add_argument("--python", metavar="PYTHON", help="one with torch and numpy; default: $DSC_TORCH_PYTHON, or what has torch")
    parser.add_argument("--ranks", type=numbers, default=[2, 4], help="default: 2,4")
    parser.add_argument("--sizes", type=sizes, default=None, help="such as 64KiB,1MiB; default: 64 KiB to 16 MiB")
    parser.add_argument("--rounds", type=positive, default=None, help="default: 3")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="also write every run to FILE")
    parser.add_argument("--quick", action="store_true", help="one round, one size, few calls: does it work?")
    parser.add_argument("--build", type=Path, default=root / "build", metavar="FOLDER", help="default: build")
    # This script runs itself as a rank with this option: the file with which torch's ranks meet.
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.sizes = options.sizes or (SIZES[:1] if options.quick else SIZES)
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


def run(options: argparse.Namespace, ranks: int) -> list[dict]:
    """Starts the ranks once and returns their measurements."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="libdsc-bench-") as store:
        command = [options.python or sys.executable, __file__, options.op, "--store", store]
        command += ["--sizes", ",".join(map(str, options.sizes)), "--peers", "torch" if options.python else "none"]
        command += ["--quick"] * options.quick
        processes = []
        for rank in range(ranks):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
            env = os.environ | {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
            output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            processes.append(subprocess.Popen(command, env=env, stdout=output, text=True, preexec_fn=end_with_parent))
        try:
            output = processes[0].communicate(timeout=LIMIT_S)[0]
            if any(process.wait(LIMIT_S) for process in processes):
                raise Failure("a rank failed")
        finally:
            stop(processes)
    return [json.loads(line) for line in output.splitlines()]


def print_tables(options: argparse.Namespace, runs: list[dict]) -> None:
    for ranks in options.ranks:
        print(f"\n{options.op}, {ranks} ranks: microseconds, slowest rank, median of {options.rounds} round{'s' * (options.rounds > 1)}")
        print(f"{'':<28}{'bytes':>8}{'libdsc':>10}{'torch':>10}{'ratio':>8}")
        found: dict[tuple[str, int], list[dict]] = {}
        for one in runs:
            if one["ranks"] == ranks:
                found.setdefault((one["case"], one["bytes"]), []).append(one)
        for (case, size), of_rounds in sorted(found.items(), key=lambda item: item[0][0]):
            ours = statistics.median(one["libdsc_us"] for one in of_rounds)
            line = f"{case:<28}{human(size):>8}{short(ours):>10}"
            if of_rounds[0]["torch_us"] is not None:
                theirs = statistics.median(one["torch_us"] for one in of_rounds)
                line += f"{short(theirs):>10}{theirs / ours:>7.1f}x"
            print(line)


# ---- a rank --------------------------------------------------------------------------------------------------------


def run_rank(options: argparse.Namespace) -> int:
    import numpy

    import libdsc as dsc

    torch = dist = None
    world = dsc.init_distributed(timeout=60)
    if options.peers == "torch":
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{options.store}/torch", rank=world.rank, world_size=world.size)
    arrays = Arrays(torch, numpy)
    for size in options.sizes:
        for case in OPS[options.op](world, arrays, dist, size):
            ours, theirs = measure(world, numpy, case, torch, options.quick)
            if world.rank == 0:
                facts = {"case": case.name, "ranks": world.size, "bytes": size, "libdsc_us": ours, "torch_us": theirs}
                print(json.dumps(facts), flush=True)
    if dist:
        dist.destroy_process_group()
    dsc.finalize()
    return 0


def measure(world, numpy, case, torch, quick: bool) -> tuple[float, float | None]:
    """Returns the medians of both in microseconds, for the slowest rank of each call."""
    ways = [case.ours] if case.theirs is None or not torch else [case.ours, case.theirs]
    if len(ways) == 2 and not equal(numpy, case.ours(), case.theirs()):
        raise Failure(f"{case.name}: libdsc and torch have different results")
    once = numpy.array([sum(timed(world, way) for way in ways)])
    world.all_reduce(once, "max")
    calls = 3 if quick else max(7, min(300, int(BUDGET_S / once[0])))
    times = numpy.array([[timed(world, way) for way in ways] for _ in range(calls)])
    world.all_reduce(times, "max")
    medians = (numpy.median(times, axis=0) * 1e6).tolist()
    return medians[0], medians[1] if len(ways) == 2 else None


def timed(world, way) -> float:
    world.barrier()
    begin = time.perf_counter()
    way()
    return time.perf_counter() - begin


def equal(numpy, a, b) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(numpy, *pair) for pair in zip(a, b))
    return bool((a == b).all()) if hasattr(a, "shape") else a == b


if __name__ == "__main__":
    sys.exit(main())
