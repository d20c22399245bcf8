#!/usr/bin/env python3
"""Prints what ninja has to make for the tests of some suites, or of all: test_programs.py FOLDER WITHOUT [SUITE ...]"""

import json
import os
import subprocess
import sys

folder, without, suites = sys.argv[1], sys.argv[2], set(sys.argv[3:])


def ask(what):
    return json.loads(subprocess.check_output(["meson", "introspect", what, folder]))


made = {target["id"]: target["filename"] for target in ask("--targets")}
every = {name for names in made.values() for name in names}
needed = set()
for test in ask("--tests"):
    own = {suite.split(":")[-1] for suite in test["suite"]}
    if (not suites or suites & own) and without not in own:
        needed.update(word for word in test["cmd"] if word in every)
        needed.update(name for target in test["depends"] for name in made[target])
print(*sorted(os.path.relpath(name, folder) for name in needed))
