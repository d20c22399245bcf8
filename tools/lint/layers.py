#!/usr/bin/env python3
"""Includes follow the arrows: a folder of impl/ sees itself and the layers below, everyone outside sees the C headers."""

import re
import sys

import source

LAYERS = [  # lowest first; folders of one layer do not see each other
    {"base"},
    {"dtype", "device", "topology", "bucket_plan", "partition", "pipeline"},
    {"store"},
    {"bootstrap"},
    {"control"},
    {"host", "nccl"},
    {"wire"},
    {"comm", "gloo"},
    {"tensor", "reducer", "pipeline_run"},
]
LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
LOOK_INSIDE = (
    "capi/",
    "tests/unit/",
    "tests/fuzz/",
    "tests/support/fake_gpu/",
    "bench/bench_gpu_calls.cpp",
    "bench/bench_gpu_kernels.cpp",
    "bench/bench_kernels.cpp",
    "bench/bench_wire.cpp",
)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def complaint(path: str, target: str, quoted: bool) -> str | None:
    folder = target.split("/")[0] if "/" in target else ""
    top = path.split("/")[0]
    if top == "impl":
        own = path.split("/")[1]
        if folder == "dsc":
            return None if target == "dsc/types.h" else "impl/ knows of the public headers only dsc/types.h"
        if folder in LEVEL and folder != own and LEVEL[folder] >= LEVEL.get(own, -1):
            return f"{folder}/ is not below {own}/"
        if quoted and not folder:
            return 'expected "folder/file" with a folder of impl/'
    elif not path.startswith(LOOK_INSIDE) and quoted and folder in LEVEL:
        return f"{top}/ sees only the public headers"
    elif path.startswith("capi/include/") and folder not in ("", "dsc"):
        return "a public header includes only dsc/ and the C library"
    return None


found = []
for path in source.files("*.c", "*.h", "*.cpp", "*.hpp", "*.cu"):
    text = source.read(path)
    for match in INCLUDE.finditer(text):
        reason = complaint(path, match.group(2), match.group(1) == '"')
        if reason:
            found.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: includes {match.group(2)}: {reason}")
unplaced = {path.split("/")[1] for path in source.files("impl/*/*.?pp")} - LEVEL.keys()
found += [f"impl/{folder}/: no layer in tools/lint/layers.py" for folder in sorted(unplaced)]
print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
sys.exit(bool(found))
