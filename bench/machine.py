"""Facts about the machine and the build that a reader needs to judge measurements."""

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path

from engines import ENGINES


def describe(build: Path) -> dict:
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": caches(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": f"{platform.system()} {platform.release()}",
        "transparent_huge_pages": chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        "busy_cores_before": busy_cores(),
        "build": build_kind(build),
        "commit": first_line(["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]),
        "peers": {name: versions for name in ENGINES if (versions := peer_version(name))},
        "command": shlex.join(["./dev", "bench", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


def warn_if_busy(cores: float) -> None:
    if cores > 0.2:
        print(f"bench: other programs keep {cores} of the machine's cores busy, so the figures will be inexact", file=sys.stderr)


def busy_cores() -> float:
    """Returns how many cores other processes keep busy, measured for half a second."""
    (idle, start), _, (idle_later, end) = idle_seconds(), time.sleep(0.5), idle_seconds()
    return round(max(0.0, os.cpu_count() - (idle_later - idle) / (end - start)), 2)


def idle_seconds() -> tuple[float, float]:
    """Returns the idle time of all cores together, and the time when it was read."""
    return float(read("/proc/uptime").split()[1]), time.monotonic()


def cpu_model() -> str:
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def caches() -> str:
    """Returns text such as "L1 48K, L2 1024K, L3 32768K", for core 0."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if read(folder / "type") != "Instruction":
            found[read(folder / "level")] = read(folder / "size")
    return ", ".join(f"L{level} {size}" for level, size in found.items())


def chosen(path: str) -> str:
    words = read(path).split()
    return next((word.strip("[]") for word in words if word.startswith("[")), "")


def build_kind(build: Path) -> str:
    """Returns text such as "GCC: (Debian 12.2.0-14) 12.2.0, debugoptimized"."""
    try:
        options = json.loads((build / "meson-info" / "intro-buildoptions.json").read_text())
    except (OSError, ValueError):
        options = []
    kinds = [option["value"] for option in options if option["name"] == "buildtype"]
    comment = first_line(["strings", "-n", "8", "--", str(build / "bench" / "bench_floor")], "GCC: ", "clang version")
    return ", ".join(part for part in (comment, *kinds) if part)


def peer_version(name: str) -> str:
    packages = ENGINES[name].packages.split()
    return first_line(["dpkg-query", "-W", "-f", "${Version}", packages[0]]) if packages else ""


def first_line(command: list[str], *marks: str) -> str:
    """Returns the first line of a command's output, or the first line that contains a mark; empty if the command fails.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return ""
    lines = done.stdout.strip().splitlines() if done.returncode == 0 else []
    return next((line.strip() for line in lines if not marks or any(mark in line for mark in marks)), "")


def read(path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
