#!/usr/bin/env python3
"""Measures the cost of a call from Python: a 4-byte all_reduce on one rank, compared with the same call from C and from
torch.

Python and C use the same communicator and the same array, in turn. A number is the median over the rounds of the time
per call, in nanoseconds. Torch runs in a separate process if a Python has it.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CALLS = 5000  # in one round


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(
        prog="./dev bench python_call", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="default: 15")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--build", type=Path, default=root / "build", metavar="FOLDER", help="default: build")
    # This script runs itself with this option for torch.
    parser.add_argument("--torch-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch_only:
        print(statistics.median(torch_rounds(options.rounds)))
        return 0
    figures = libdsc_figures(options) | torch_figure(options)
    for name, ns in figures.items():
        print(f"{name:<24} {ns:>8.0f} ns")
    if options.json:
        import machine

        context = machine.describe(options.build)
        options.json.write_text(json.dumps({"ns": figures, "machine": context}, indent=1) + "\n")
    return 0


def libdsc_figures(options: argparse.Namespace) -> dict[str, float]:
    import numpy

    import libdsc

    c_loop = ctypes.CDLL(str(options.build / "bench" / "libbench_call.so")).bench_call_ns
    c_loop.restype = ctypes.c_double
    c_loop.argtypes = [ctypes.c_void_p, ctypes.c_int]
    world = libdsc.init_distributed(rank=0, world_size=1)
    x = numpy.ones(1, numpy.float32)
    from_c, from_python = [], []
    for _ in range(options.rounds):
        from_c.append(c_loop(x.ctypes.data, CALLS))
        from_python.append(per_call_ns(lambda calls: loop(world.all_reduce, x, calls)))
    if min(from_c) < 0:
        sys.exit("bench: the all-reduce from C failed")
    c, python = statistics.median(from_c), statistics.median(from_python)
    libdsc.finalize()
    return {"C": c, "Python": python, "Python over C": python - c}


def torch_figure(options: argparse.Namespace) -> dict[str, float]:
    from engines import torch_python

    python = torch_python()
    if python is None:
        print("bench: no python3 has the module torch", file=sys.stderr)
        return {}
    command = [python, __file__, "--torch-only", "--rounds", str(options.rounds)]
    return {"torch (gloo)": float(subprocess.check_output(command, text=True))}


def torch_rounds(rounds: int) -> list[float]:
    import torch
    import torch.distributed as dist

    with tempfile.TemporaryDirectory(prefix="libdsc-bench-") as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        x = torch.ones(1)
        times = [per_call_ns(lambda calls: loop(dist.all_reduce, x, calls)) for _ in range(rounds)]
        dist.destroy_process_group()
    return times


def loop(call, x, calls: int) -> None:
    for _ in range(calls):
        call(x)


def per_call_ns(run) -> float:
    run(100)
    start = time.perf_counter_ns()
    run(CALLS)
    return (time.perf_counter_ns() - start) / CALLS


if __name__ == "__main__":
    sys.exit(main())
