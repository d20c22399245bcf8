#!/usr/bin/env python3
"""Prints the objects that clang must still compile for their warnings: clang_objects.py FOLDER OTHER_FOLDER.

Objects of the library are left out, because clang-tidy reports clang's warnings for them, except those for which
instruction sets are checked. Objects that the other folder has are left out too, if clang compiled them with the same
warnings as errors and they are up to date. changed.py decides which files are read at all.
"""

import json
import os
import re
import subprocess
import sys

import changed
import targets

WANTED = {"werror": True, "warning_level": "3"}


def looked_at(source: targets.Source) -> bool:
    return not re.match("(impl|capi)/", source.path) or source.has_instruction_sets()


def warnings(command: str) -> set[str]:
    return {word for word in command.split() if word.startswith("-W") and not word.startswith("-Wno-error")}


def is_strict(folder: str) -> bool:
    asked = ["meson", "introspect", "--buildoptions", folder]
    options = {option["name"]: option["value"] for option in json.loads(subprocess.check_output(asked))}
    return all(options[name] == value for name, value in WANTED.items())


def compiled(folder: str) -> dict[str, str]:
    """Returns the objects that are up to date in a folder with equally strict warnings, and their commands."""
    if not os.path.exists(os.path.join(folder, "build.ninja")) or not is_strict(folder):
        return {}
    subprocess.run(["ninja", "-C", folder, "build.ninja"], stdout=subprocess.DEVNULL, check=True)
    made = {one.output: one.command for one in targets.sources(folder) if os.path.exists(os.path.join(folder, one.output))}
    if not made:
        return {}
    planned = subprocess.check_output(["ninja", "-C", folder, "-n", "-v", *made], text=True)
    stale = set(re.findall(r" -o (\S+) -c ", planned))
    return {name: command for name, command in made.items() if name not in stale}


def main(folder: str, other: str) -> None:
    done = compiled(other)
    sources = [source for source in targets.sources(folder) if looked_at(source)]
    read = set(changed.to_read(sorted({source.path for source in sources})))
    for source in sources:
        same = source.output in done and source.command.split()[0] == done[source.output].split()[0]
        if source.path in read and not (same and warnings(source.command) <= warnings(done[source.output])):
            print(source.output)


if __name__ == "__main__":
    main(*sys.argv[1:])
