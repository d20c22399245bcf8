#!/usr/bin/env python3
"""Compares a library with the committed ABI, or accepts its ABI as the new one.

    baseline.py check LIBRARY [HEADERS BASELINE]      baseline.py write LIBRARY [HEADERS BASELINE]

Accepted are only changes that old programs cannot notice: new functions, new enumerators, and fields appended to a
struct that begins with struct_size. For all other changes abidiff returns non-zero, which is the result of the check.
abidiff's rule for appended fields (has_data_member_inserted_at = end) also accepts a field that was inserted where the
old struct ended, or whose type changed. So this program first checks that the old fields of a struct are unchanged, and
only then gives the struct that rule.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

HERE = os.path.dirname(os.path.abspath(__file__))
SKIP = 77


def describe(library: str, headers: str) -> bytes:
    """Returns the public ABI of a library as XML, without paths of this machine."""
    flags = ["--exported-interfaces-only", "--drop-private-types", "--no-show-locs", "--no-comp-dir-path", "--no-corpus-path"]
    command = ["abidw", *flags, "--headers-dir", headers, library]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def sized_structs(description: bytes) -> dict[str, list[tuple[str, str, str]]]:
    """Returns the structs that begin with struct_size: name -> fields as (name, offset in bits, type)."""
    types = {element.get("id"): element for element in ET.fromstring(description).iter() if element.get("id")}

    def spell(type_id: str | None) -> str:
        element = types[type_id]
        inner = element.get("type-id")
        extent = element.get("size-in-bits", "")
        return f"{element.tag} {element.get('name', '')}:{extent}" + (f" of {spell(inner)}" if inner else "")

    found = {}
    for struct in types.values():
        members = [m for m in struct.findall("data-member") if m.find("var-decl") is not None]
        fields = [
            (m.find("var-decl").get("name"), m.get("layout-offset-in-bits"), spell(m.find("var-decl").get("type-id")))
            for m in members
        ]
        if fields and fields[0][0] == "struct_size":
            found[struct.get("name")] = fields
    return found


def suppressions(old: bytes, new: bytes) -> str:
    """Returns the suppressions that let abidiff accept the structs that only got new fields."""
    before, after = sized_structs(old), sized_structs(new)
    grown = [name for name, fields in before.items() if len(after.get(name, [])) > len(fields)]
    only_grown = [name for name in grown if after[name][: len(before[name])] == before[name]]
    return "".join(f"[suppress_type]\n  name = {name}\n  has_data_member_inserted_at = end\n" for name in only_grown)


def check(library: str, headers: str, baseline: str) -> int:
    with open(baseline, "rb") as file:
        old = file.read()
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "suppressions")
        with open(path, "w", encoding="utf-8") as file:
            file.write(suppressions(old, describe(library, headers)))
        flags = ["--no-added-syms", "--exported-interfaces-only", "--suppressions", path]
        verdict = subprocess.run(["abidiff", *flags, baseline, library], capture_output=True, text=True)
    if verdict.returncode:
        print(verdict.stdout + verdict.stderr)
        print(f"the ABI changed (abidiff: {verdict.returncode}): programs that were compiled against 0.1 would break.")
        print("docs/packaging.md promises that they keep working; a change needs another soname, then ./dev abi-baseline")
    return verdict.returncode


def main(action: str, library: str, headers: str = HERE + "/../../capi/include", baseline: str = HERE + "/libdsc.abi") -> int:
    if not shutil.which("abidw"):
        print("abidw and abidiff (package abigail-tools) are not installed")
        return SKIP
    sections = subprocess.run(["readelf", "-S", library], check=True, capture_output=True, text=True).stdout
    if ".debug_info" not in sections:
        print(f"{library} has no debug information")
        return SKIP
    if action == "check":
        return check(library, headers, baseline)
    description = describe(library, headers)
    with open(baseline, "wb") as file:
        file.write(description)
    return 0


if len(sys.argv) not in (3, 5) or sys.argv[1] not in ("check", "write"):
    sys.exit(__doc__)
sys.exit(main(*sys.argv[1:]))
