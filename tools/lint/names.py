#!/usr/bin/env python3
"""Every public name of C in a guide must exist in bindings/api.json, or be an inline function of a header."""

import json
import re
import sys

import source

NAME = re.compile(r"(?<![\w./-])dsc_[a-z0-9_]*[a-z0-9]\b")
NOT_PUBLIC = ("docs/extending.md",)  # names internal functions
INLINE = re.compile(r"static inline [\w ]+?\*? ?(dsc_\w+)\(")  # functions of a header that the library does not export
OF_MESON = {"dsc_dep"}
CHOSEN = "docs/calls.md"  # the page of the functions that most programs need

api = json.loads(source.read("bindings/api.json"))
inline = {name for path in source.files("capi/include/*.h") for name in INLINE.findall(source.read(path))}
functions = {one["name"] for one in api["functions"]} | inline
public = {one["name"] for kind in api.values() if isinstance(kind, list) for one in kind} | inline | OF_MESON

found = []
for path in source.files("README.md", "docs/*.md"):
    if path in NOT_PUBLIC:
        continue
    known, what = (functions, "function") if path == CHOSEN else (public, "name")
    for number, line in enumerate(source.read(path).splitlines(), 1):
        missing = [name for name in NAME.findall(line) if name not in known]
        found += [f"{path}:{number}: bindings/api.json has no {what} {name}" for name in missing]
print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
sys.exit(bool(found))
