#!/usr/bin/env python3
"""Lets many ranks join one world through TCP, and reports the cost of each.

Each rank is a thread that runs the real protocol of a rank on another host. Several processes contain these ranks, and
another process contains rank 0 with the store. Each host has 8 ranks. Numbers for the server are those of rank 0's
process. Bytes are all bytes in this network namespace, including headers.
"""

import argparse
import json
import resource
import secrets
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from crowd import Crowd, split  # noqa: E402
from jobs import free_port  # noqa: E402

RANKS_PER_HOST = 8


def octets():
    """Returns the bytes received in this network namespace so far."""
    lines = Path("/proc/self/net/netstat").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("IpExt:"))
    return int(dict(zip(names, values))["InOctets"])


def join(world, processes):
    port, token = free_port(), secrets.token_hex(32)
    crowds = [Crowd(world, first, count, "127.0.0.1", port, token, RANKS_PER_HOST) for first, count in [(0, 1), *split(world, processes)]]
    server, *others = crowds
    server.say()
    time.sleep(0.2)
    octets_before, start_ns = octets(), time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    for crowd in others:
        crowd.say()
    heard = [crowd.hear() for crowd in crowds]
    octets_at_end, start_of_end = octets(), time.monotonic()
    server.say()
    used = server.hear()
    for crowd in reversed(crowds):
        sys.stderr.write(crowd.end())
    return {
        "ranks": world,
        "joined": sum(sum(h["joined"].values()) for h in heard),
        "shapes": sorted({shape for h in heard for shape in h["joined"]}),
        "errors": {text: n for h in heard for text, n in h["errors"].items()},
        "seconds": (max(h["done_ns"] for h in heard) - start_ns) / 1e9,
        "leave_s": time.monotonic() - start_of_end,
        "server_cpu_s": used["cpu_s"],
        "clients_cpu_s": sum(h["cpu_s"] for h in heard[1:]),
        "server_peak_mib": used["peak_kib"] / 1024,
        "bytes": octets_at_end - octets_before,
    }


def main():
    parser = argparse.ArgumentParser(prog="./dev bench join", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="64,256,1024,4096,10000", help="default: 64,256,1024,4096,10000")
    parser.add_argument("--processes", type=int, default=8, help="number of processes that contain the ranks other than rank 0; default: 8")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows = []
    print(f"{'ranks':>6} {'seconds':>8} {'us/rank':>8} {'server us':>10} {'clients us':>11} {'KiB/rank':>9} {'peak MiB':>9} {'leave s':>8}")
    for world in map(int, options.ranks.split(",")):
        row = join(world, options.processes)
        rows.append(row)
        per = 1e6 / world
        print(
            f"{world:>6} {row['seconds']:>8.2f} {row['seconds'] * per:>8.0f} {row['server_cpu_s'] * per:>10.0f} {row['clients_cpu_s'] * per:>11.0f}"
            f" {row['bytes'] / world / 1024:>9.1f} {row['server_peak_mib']:>9.1f} {row['leave_s']:>8.2f}", flush=True
        )
        if row["joined"] != world:
            print(f"join: {row['joined']} of {world} joined: {row['errors']}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["joined"] != row["ranks"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
