#!/usr/bin/env python3
"""Measures the overhead of dsc_pipe_run per instruction.

Callbacks are empty. A plain loop with the same sends and receives is timed in turn with it. The difference is what
dsc_pipe_run adds: calls of the callbacks, the comparison of all stages at the start, and the mean loss at the end.
"variable" is the same run with variable shapes, whose headers are separate messages. A number is the time of the
slowest rank per instruction: the median over repetitions, then the median over rounds.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import machine

SCHEDULES = ["deepspeed_train", "gpipe", "1f1b"]
MICRO_BATCHES = 32
REPETITIONS = 300


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(
        prog="./dev bench pipe_run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="1,2,4", help="default: 1,2,4")
    parser.add_argument("--bytes", default="64,65536", help="of a micro-batch's activations; default: 64,65536")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all runs to FILE")
    parser.add_argument("--build", type=Path, default=root / "build", metavar="FOLDER", help="default: build")
    options = parser.parse_args()
    context = machine.describe(options.build)
    runs = []
    for number in range(options.rounds):
        for ranks in options.ranks.split(","):
            for size in options.bytes.split(","):
                print(f"round {number + 1} of {options.rounds}: {ranks} ranks, {size} bytes", file=sys.stderr)
                runs += [run(options.build, schedule, ranks, size) for schedule in SCHEDULES]
    heads = ("dsc_pipe_run ns", "variable ns", "by hand ns", "added ns")
    print(f"{'schedule':<16} {'ranks':>5} {'bytes':>7} {heads[0]:>16} {heads[1]:>11} {heads[2]:>11} {heads[3]:>9}")
    for key in dict.fromkeys((one["schedule"], one["ranks"], one["bytes"]) for one in runs):
        same = [one for one in runs if (one["schedule"], one["ranks"], one["bytes"]) == key]
        names = ("run_ns", "variable_ns", "loop_ns")
        ours, varying, hand = (statistics.median(one[name] for one in same) for name in names)
        print(f"{key[0]:<16} {key[1]:>5} {key[2]:>7} {ours:>16.0f} {varying:>11.0f} {hand:>11.0f} {ours - hand:>9.0f}")
    print(f"\n{context['cpu']}, {context['cores']} cores, {context['kernel']}; {context['build']}")
    if options.json:
        options.json.write_text(json.dumps({"runs": runs, "machine": context}, indent=1) + "\n")
    return 0


def run(build: Path, schedule: str, ranks: str, size: str) -> dict:
    command = [build / "tools" / "dscrun", "-n", ranks, "--timeout", "120", "--", build / "bench" / "bench_pipe"]
    done = subprocess.run(
        [*map(str, command), schedule, str(MICRO_BATCHES), size, str(REPETITIONS)], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"bench: bench_pipe {schedule} at {ranks} ranks failed with exit status {done.returncode}")
    return json.loads(done.stdout[done.stdout.index("{") :])


if __name__ == "__main__":
    sys.exit(main())
