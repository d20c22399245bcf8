#!/usr/bin/env python3
"""Prints the objects that clang has yet to compile for their warnings: clang_objects.py FOLDER OTHER_FOLDER.

Not those of the library, except where instruction sets are checked, since clang-tidy reports clang's warnings there; and
not those that the other folder has, if clang made them with the same warnings as errors and they are up to date.
"""

import json
import os
import re
import subprocess
import sys

WANTED = {"werror": True, "warning_level": "3"}


def commands(folder: str) -> dict[str, str]:
    """Object to command."""
    with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as file:
        return {command["output"]: command["command"] for command in json.load(file) if looked_at(command["file"])}


def looked_at(file: str) -> bool:
    return file.endswith((".c", ".cpp")) and not re.match(r"\.\./(impl/(?!(?:compress|dtype)/)|capi/)", file)


def warnings(command: str) -> set[str]:
    return {word for word in command.split() if word.startswith("-W") and not word.startswith("-Wno-error")}


def is_strict(folder: str) -> bool:
    asked = ["meson", "introspect", "--buildoptions", folder]
    options = {option["name"]: option["value"] for option in json.loads(subprocess.check_output(asked))}
    return all(options[name] == value for name, value in WANTED.items())


def compiled(folder: str) -> dict[str, str]:
    """Objects that are up to date in a folder that is as strict, and their commands."""
    if not os.path.exists(os.path.join(folder, "build.ninja")) or not is_strict(folder):
        return {}
    subprocess.run(["ninja", "-C", folder, "build.ninja"], stdout=subprocess.DEVNULL, check=True)
    made = {name: command for name, command in commands(folder).items() if os.path.exists(os.path.join(folder, name))}
    if not made:
        return {}
    planned = subprocess.check_output(["ninja", "-C", folder, "-n", "-v", *made], text=True)
    stale = set(re.findall(r" -o (\S+) -c ", planned))
    return {name: command for name, command in made.items() if name not in stale}


def main(folder: str, other: str) -> None:
    done = compiled(other)
    for name, command in commands(folder).items():
        same = name in done and command.split()[0] == done[name].split()[0]
        if not same or not warnings(command) <= warnings(done[name]):
            print(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
