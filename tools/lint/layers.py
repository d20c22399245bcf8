#!/usr/bin/env python3
"""Includes must follow the layers: a folder of impl/ may include itself and lower layers, and all other code only the C
headers.

With --draw it writes docs/house.svg, the picture of these layers, which must be up to date.
"""

import re
import sys

import source

ENGINES = "engine_*"  # all engines that are not named separately
LAYERS = [  # lowest first; folders of the same layer cannot include each other
    {"base"},
    {"dtype"},
    {"device", "topology", "bucket_plan", "compress", "partition", "pipeline"},
    {"store"},
    {"bootstrap"},
    {"control"},
    {"comm", "transport"},
    {ENGINES, "gloo", "memory"},
    {"engine_hier", "gradients", "tensor_list"},
    {"session", "reducer", "sharded", "tied", "pipeline_run", "tensor_parallel", "context_parallel", "expert_parallel"},
    {"hooks", "join"},
]
LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
for path in source.files("impl/engine_*/*.?pp"):
    LEVEL.setdefault(path.split("/")[1], LEVEL[ENGINES])
LOOK_INSIDE = (
    "capi/",
    "tests/unit/",
    "tests/conformance/",
    "tests/fuzz/",
    "tests/support/fake_gpu/",
    "bench/bench_compress.cpp",
    "bench/bench_gpu_calls.cpp",
    "bench/bench_gpu_kernels.cpp",
    "bench/bench_kernels.cpp",
    "bench/bench_rms_norm.cpp",
    "bench/bench_transport.cpp",
)
PICTURE = "docs/house.svg"
OUTSIDE = ["bindings", "tests", "examples", "bench", "tools"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def complaint(path: str, target: str, quoted: bool) -> str | None:
    folder = target.split("/")[0] if "/" in target else ""
    top = path.split("/")[0]
    if top == "impl":
        own = path.split("/")[1]
        if folder == "dsc":
            return None if target == "dsc/types.h" else "impl/ may include only dsc/types.h of the public headers"
        if folder in LEVEL and folder != own and LEVEL[folder] >= LEVEL.get(own, -1):
            return f"{own}/ may not include {folder}/, which is not a lower layer"
        if quoted and not folder:
            return 'expected "folder/file" with a folder of impl/'
    elif not path.startswith(LOOK_INSIDE) and quoted and folder in LEVEL:
        return f"{top}/ may include only the public headers"
    elif path.startswith("capi/include/") and folder not in ("", "dsc"):
        return "a public header may include only dsc/ and the C library"
    return None


def row(y: int, names: list[str], style: str) -> str:
    """Returns one row of boxes of equal width, over 860 pixels."""
    width = (820 - 12 * (len(names) - 1)) / len(names)
    boxes = ""
    for i, name in enumerate(names):
        x = 20 + i * (width + 12)
        boxes += f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="36" rx="6" {style}/>\n'
        boxes += f'<text x="{x + width / 2:.1f}" y="{y + 23}">{name}/</text>\n'
    return boxes


def picture() -> str:
    rows = [(OUTSIDE, 'fill="#f4f4f4" stroke="#777"'), (["capi"], 'fill="#fdf3dd" stroke="#a67c1e"')]
    rows += [(sorted(folders), 'fill="#eef3fa" stroke="#3b5b85"') for folders in reversed(LAYERS)]
    height = 48 * len(rows) + 44
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {height}" width="860" height="{height}" role="img" '
        'aria-label="The folders of libdsc and what each may include">\n'
        "<style>text{font:14px sans-serif;fill:#222;text-anchor:middle}</style>\n"
        f'<rect width="860" height="{height}" fill="#fff"/>\n'
        + "".join(row(14 + 48 * i, names, style) for i, (names, style) in enumerate(rows))
        + f'<text x="430" y="{height - 14}">A folder may include the rows below its own. Folders outside '
        "capi/ and impl/ may include only the public C headers.</text>\n</svg>\n"
    )


if "--draw" in sys.argv:
    with open(PICTURE, "w", encoding="utf-8") as file:
        file.write(picture())
found = []
for path in source.files("*.c", "*.h", "*.cpp", "*.hpp", "*.cu"):
    text = source.read(path)
    for match in INCLUDE.finditer(text):
        reason = complaint(path, match.group(2), match.group(1) == '"')
        if reason:
            found.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: includes {match.group(2)}: {reason}")
unplaced = {path.split("/")[1] for path in source.files("impl/*/*.?pp")} - LEVEL.keys()
if source.read(PICTURE) != picture():
    found.append(f"{PICTURE}: does not show the current layers; run tools/lint/layers.py --draw to write it")
found += [f"impl/{folder}/: expected a layer for this folder in tools/lint/layers.py" for folder in sorted(unplaced)]
print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
sys.exit(bool(found))
