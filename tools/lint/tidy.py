#!/usr/bin/env python3
"""Runs clang-tidy over the library: tidy.py BUILD_FOLDER. Prints findings, and fails if there are any. changed.py
chooses the files.

Most of the time is spent in headers, so several files of a target are joined into one temporary file. Clang takes all
of them for the main file. If clang-tidy reports anything, or if the files do not compile together, each file is read
separately, and only that result counts. The first compiler also reads each file separately, so missing includes are
still found.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import changed
import targets

TOGETHER = 6
# Clang's warning about reserved names finds the same as bugprone-reserved-identifier, in a tenth of the time.
TIDY = ["clang-tidy-14", "--quiet", "--extra-arg=-Wreserved-identifier"]


def pieces(sources: list[targets.Source]) -> list[list[targets.Source]]:
    """Groups sources that are read together. Long and short sources of a target are distributed evenly."""
    alike: dict[tuple[str, ...], list[targets.Source]] = {}
    result = []
    for source in sorted(sources, key=lambda one: os.path.getsize(one.path), reverse=True):
        if source.has_instruction_sets():  # the file includes itself, once for each instruction set
            result.append([source])
        else:
            alike.setdefault((source.target, *source.flags), []).append(source)
    for group in alike.values():
        count = -(-len(group) // TOGETHER)
        result += [group[first::count] for first in range(count)]
    return sorted(result, key=lambda piece: sum(os.path.getsize(one.path) for one in piece), reverse=True)


def tidy(words: Iterable[str], folder: str) -> tuple[bool, str]:
    done = subprocess.run([*TIDY, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.returncode == 0 and not done.stdout.strip(), done.stdout


def look(folder: str, piece: list[targets.Source]) -> tuple[bool, str]:
    if len(piece) > 1:
        name = os.path.join("tidy", piece[0].path.replace("/", "-"))
        with open(os.path.join(folder, name), "w", encoding="utf-8") as whole:
            for source in piece:
                with open(source.path, encoding="utf-8") as part:
                    whole.write(part.read())
        if tidy([name, "--", *piece[0].flags], folder)[0]:
            return True, ""
    found = [tidy(["-p", folder, source.path], ".") for source in piece]
    return all(good for good, _ in found), "".join(text for _, text in found)


def main(folder: str) -> int:
    os.makedirs(os.path.join(folder, "tidy"), exist_ok=True)
    library = {source.path: source for source in targets.sources(folder) if re.match("(impl|capi)/", source.path)}
    read = [library[path] for path in changed.to_read(sorted(library))]
    good = True
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for fine, text in pool.map(lambda piece: look(folder, piece), pieces(read)):
            good = good and fine
            sys.stdout.write(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
