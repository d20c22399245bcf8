#!/usr/bin/env python3
"""No path of one particular machine and no promise of later work stands in a tracked file."""

import re
import sys

import source

RULES = [
    (re.compile(r"(?<![\w.~}\])/-])/(?:work|root|home|tmp)/"), "a path of one machine; ask for a folder (mktemp, TMPDIR)"),
    (re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"), "do it, or write an issue"),
]
DATA = (".csv", ".json", ".jsonl", ".abi")

found = []
for path in source.files():
    if path.endswith(DATA) or path == "LICENSE":
        continue
    for number, line in enumerate(source.read(path).splitlines(), 1):
        found += [f"{path}:{number}: '{m.group()}': {why}" for rule, why in RULES if (m := rule.search(line))]
print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
sys.exit(bool(found))
