#!/usr/bin/env python3
"""Runs clang-tidy over the library: tidy.py BUILD_FOLDER. Prints what it finds, and fails then.

Most of its time goes into headers, so several files are read as one, one after another in a made-up file: to clang all
of them are the main file. Where it finds anything, and where files do not go together, each is read by itself, and that
counts. So does each file by itself for the first compiler: it includes what it needs.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

TOGETHER = 6
# Read by themselves: what includes itself, once for each instruction set, and what has a name of its own for which
# others know something else.
ALONE = re.compile(r"impl/(compress/|dtype/|comm/device_(engine_watch|start)\.)")
# Clang's warning about reserved names says what bugprone-reserved-identifier says, in a tenth of the time.
TIDY = ["clang-tidy-14", "--quiet", "--extra-arg=-Wreserved-identifier"]


def sources() -> list[str]:
    """Of the library, without what is deleted and not yet committed; the longest first."""
    names = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "impl/*.cpp", "capi/*.cpp"],
        text=True,
    )
    return sorted(filter(os.path.exists, names.split("\0")), key=os.path.getsize, reverse=True)


def flags(folder: str) -> dict[str, tuple[str, ...]]:
    """What each source is compiled with, without its own name and those of what comes out."""
    with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    known = {}
    for command in commands:
        words = re.sub(r" -MD| -(MQ|MF|o|c) \S+", "", command["command"])
        words = re.sub(r" -I(?!\.\.)\S+\.p\b", "", words)  # each target's own folder
        known[os.path.relpath(os.path.join(folder, command["file"]))] = tuple(shlex.split(words)[1:])
    return known


def pieces(folder: str) -> list[list[str]]:
    """Sources that are read together; the longest and the shortest of a folder share the work evenly."""
    known = flags(folder)
    alike: dict[tuple[str, ...], list[str]] = {}
    result = []
    for source in sources():
        if ALONE.match(source) or source not in known:
            result.append([source])
        else:
            alike.setdefault(known[source], []).append(source)
    for group in alike.values():
        count = -(-len(group) // TOGETHER)
        result += [group[first::count] for first in range(count)]
    return sorted(result, key=lambda piece: sum(map(os.path.getsize, piece)), reverse=True)


def tidy(words: Iterable[str], folder: str) -> tuple[bool, str]:
    done = subprocess.run([*TIDY, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.returncode == 0 and not done.stdout.strip(), done.stdout


def look(folder: str, piece: list[str]) -> tuple[bool, str]:
    if len(piece) > 1:
        name = os.path.join("tidy", piece[0].replace("/", "-"))
        with open(os.path.join(folder, name), "w", encoding="utf-8") as whole:
            for source in piece:
                with open(source, encoding="utf-8") as part:
                    whole.write(part.read())
        if tidy([name, "--", *flags(folder)[piece[0]]], folder)[0]:
            return True, ""
    found = [tidy(["-p", folder, source], ".") for source in piece]
    return all(good for good, _ in found), "".join(text for _, text in found)


def main(folder: str) -> int:
    os.makedirs(os.path.join(folder, "tidy"), exist_ok=True)
    good = True
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for fine, text in pool.map(lambda piece: look(folder, piece), pieces(folder)):
            good = good and fine
            sys.stdout.write(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
