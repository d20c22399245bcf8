#!/usr/bin/env python3
"""Runs clang-tidy over the library: tidy.py BUILD_FOLDER. Prints what it finds, and fails then. changed.py says which files it reads.

Most of its time goes into headers, so several files of a target are read as one, one after another in a made-up file: to clang all
of them are the main file. Where it finds anything, and where files do not go together, each is read by itself, and that
counts. So does each file by itself for the first compiler: it includes what it needs.
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
# Clang's warning about reserved names says what bugprone-reserved-identifier says, in a tenth of the time.
TIDY = ["clang-tidy-14", "--quiet", "--extra-arg=-Wreserved-identifier"]


def pieces(sources: list[targets.Source]) -> list[list[targets.Source]]:
    """Sources that are read together; the longest and the shortest of a target share the work evenly."""
    alike: dict[tuple[str, ...], list[targets.Source]] = {}
    result = []
    for source in sorted(sources, key=lambda one: os.path.getsize(one.path), reverse=True):
        if source.has_instruction_sets():  # it includes itself, once for each
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
