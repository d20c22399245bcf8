#!/usr/bin/env python3
"""impl/ must not contain names of vendors, except in the folder of a vendor's library and in the tables that list
libraries.

Other code asks an engine, a device or a transport what it can do. Names of the ABI's options and of environment
variables are allowed in text.
"""

import re
import sys

import source

ENGINE_TABLE = "impl/session/engine_table.cpp"
OWN_ENGINES = {"host", "hier"}  # every other folder engine_NAME is named after a vendor's library
ENGINES = {path.split("/")[1].removeprefix("engine_") for path in source.files("impl/engine_*/*.?pp")} - OWN_ENGINES
# The files that may contain a vendor's name.
HOMES = {name: (f"impl/engine_{name}/", ENGINE_TABLE) for name in sorted(ENGINES)} | {
    "cuda": ("impl/device/", "impl/engine_nccl/"),
    "gloo": ("impl/gloo/", "impl/transport/library.", "impl/transport/table.h"),
}
NAMED = re.compile("|".join(HOMES), re.IGNORECASE)
ALLOWED = re.compile(r"DSC_HAS_\w+")

complaints = []
for path in source.files("impl/*.cpp", "impl/*.hpp", "impl/*.h"):
    for number, line in enumerate(source.read(path).splitlines(), 1):
        for found in NAMED.finditer(ALLOWED.sub("", line)):
            if not path.startswith(HOMES[found[0].lower()]):
                complaints.append(f"{path}:{number}: contains the name {found[0]}; expected this name only in {', '.join(HOMES[found[0].lower()])}")
print(*complaints, sep="\n", end="\n" if complaints else "", file=sys.stderr)
sys.exit(bool(complaints))
