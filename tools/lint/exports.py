#!/usr/bin/env python3
"""The library must export exactly the functions that the headers declare, and that the version map and Debian's symbols
file list.

It checks the most recently built library of all build folders.
"""

import glob
import os
import re
import subprocess
import sys

import source

# Meson creates the link libdsc.so before the library, so its target may not exist yet
built = sorted(filter(os.path.exists, glob.glob("build*/capi/libdsc.so")), key=os.path.getmtime)
if len(sys.argv) < 2 and not built:
    sys.exit("exports: the library is not built; run ./dev build first")
LIBRARY = sys.argv[1] if len(sys.argv) > 1 else built[-1]

declared = set()
for path in source.files("capi/include/dsc/*.h"):
    declared |= set(re.findall(r"\bDSC_API\b[^;(]*?\b(\w+)\s*\(", source.code_only(source.read(path))))

mapped = set()
for node in re.findall(r"\{(.*?)\}", re.sub(r"/\*.*?\*/|#[^\n]*", "", source.read("capi/dsc.map"), flags=re.DOTALL), re.DOTALL):
    mapped |= set(re.findall(r"[\w*]+(?=\s*;)", node.split("local:")[0]))

listing = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True)
if listing.returncode:
    sys.exit(f"exports: nm {LIBRARY}: {listing.stderr.strip()}")
symbols = [line.split()[1:] for line in listing.stdout.splitlines()]
exported = {name.split("@")[0] for kind, name in symbols if kind != "A"}  # A: the names of the version nodes

packaged = set(re.findall(r"^ (dsc_\w+)@", source.read("debian/libdsc0.symbols"), re.MULTILINE))

places = {"the library": exported, "the headers": declared, "capi/dsc.map": mapped, "debian/libdsc0.symbols": packaged}
found = [
    f"{name}: in {' and '.join(w for w in places if name in places[w])}, but not in {' or '.join(w for w in places if name not in places[w])}"
    for name in sorted(exported | declared | mapped | packaged)
    if not all(name in place for place in places.values())
]
if not declared:
    found.append("no function is declared: expected declarations with DSC_API in capi/include/dsc/*.h")
print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
sys.exit(bool(found))
