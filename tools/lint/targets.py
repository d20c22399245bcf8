"""The sources that a build folder compiles, by target, from Meson's data."""

import json
import os
import re
import shlex
from typing import NamedTuple


class Source(NamedTuple):
    """One compilation: its source file, its target, its object, and the complete command."""

    path: str
    target: str
    output: str
    command: str

    @property
    def flags(self) -> tuple[str, ...]:
        """Returns the options of the command, without the names of the source and of the output files."""
        words = re.sub(r" -MD| -(MQ|MF|o|c) \S+", "", self.command)
        words = re.sub(r" -I(?!\.\.)\S+\.p\b", "", words)  # the private folder of each target
        return tuple(shlex.split(words)[1:])

    def has_instruction_sets(self) -> bool:
        """Returns whether Highway compiles the file once for each instruction set."""
        with open(self.path, encoding="utf-8") as file:
            return "foreach_target.h" in file.read()


def sources(folder: str) -> list[Source]:
    """Returns every C and C++ file of the project that is compiled in a configured folder, except generated files."""
    with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    found = []
    for command in commands:
        path = os.path.relpath(os.path.join(folder, command["file"]))
        if path.endswith((".c", ".cpp")) and not path.startswith((folder, "..")):
            found.append(Source(path, os.path.dirname(command["output"]), command["output"], command["command"]))
    return found
