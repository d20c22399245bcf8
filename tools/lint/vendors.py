#!/usr/bin/env python3
"""No vendor's name in impl/ outside the folder of its library and the tables that list libraries.

Code above those folders asks an engine, a device or a transport what it can do. Names of options of the ABI and of
environment variables are allowed in text.
"""

import re
import sys

import source

ENGINE_TABLE = "impl/session/engine_table.cpp"
OWN_ENGINES = {"host", "hier"}  # every other folder engine_NAME has the name of a vendor's library
ENGINES = {path.split("/")[1].removeprefix("engine_") for path in source.files("impl/engine_*/*.?pp")} - OWN_ENGINES
HOMES = {name: (f"impl/engine_{name}/", ENGINE_TABLE) for name in sorted(ENGINES)} | {  # that may name a vendor
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
                complaints.append(f"{path}:{number}: names {found[0]}, which only {', '.join(HOMES[found[0].lower()])} may")
print(*complaints, sep="\n", end="\n" if complaints else "", file=sys.stderr)
sys.exit(bool(complaints))
