"""The tests of one build folder, as Meson describes them, and the selection of tests by words."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import json
import os
import pathlib

LONG = "long"  # the suite of tests that repeat others with other numbers of ranks


class Unknown(Exception):
    """A word that matches no test. The text contains the word and similar names."""


@dataclasses.dataclass(frozen=True)
class Test:
    """One test: its name, its suites, and the files that ninja builds for it, relative to the build folder."""

    name: str
    suites: frozenset[str]
    needs: tuple[str, ...]


def tests(folder: pathlib.Path) -> list[Test]:
    """Returns every test of a configured build folder, in Meson's order."""
    made = {target["id"]: target["filename"] for target in _read(folder, "targets")}
    every = {name for names in made.values() for name in names}
    found = []
    for test in _read(folder, "tests"):
        files = [word for word in test["cmd"] if word in every]
        files += [name for target in test["depends"] for name in made[target]]
        suites = frozenset(suite.split(":")[-1] for suite in test["suite"])
        found.append(Test(test["name"], suites, tuple(os.path.relpath(name, folder) for name in files)))
    return found


def chosen(known: list[Test], words: list[str], without: str = "") -> list[Test]:
    """Returns the tests that match the words: a suite, a test, or a pattern of names such as 'fault_*'. No words: all
    tests but those of the suite `long`.

    Tests of the suite `without` are left out.
    """
    kept = [test for test in known if without not in test.suites]
    wanted = set()
    for word in words:
        named = _named(kept, word)
        if not named and _named(known, word):
            raise Unknown(f"'{word}' cannot run here, because the suite '{without}' is left out")
        if not named:
            raise Unknown(_hint(kept, word))
        wanted |= named
    return [test for test in kept if (test.name in wanted if words else LONG not in test.suites)]


def _named(tests: list[Test], word: str) -> set[str]:
    return {test.name for test in tests if word in test.suites or fnmatch.fnmatchcase(test.name, word)}


# The word may be the path of a source file, so only its name is compared.
def _hint(known: list[Test], path: str) -> str:
    word = pathlib.PurePath(path).stem.removeprefix("test_")
    suites = sorted({suite for test in known for suite in test.suites})
    names = list(dict.fromkeys([*suites, *(test.name for test in known)]))
    near = ([name for name in names if word in name][:4] if word else []) or difflib.get_close_matches(word, names, 3, 0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"no suite or test is called '{path}'{hint}\n  suites: {' '.join(suites)}\n  a pattern names several tests: 'fault_*'; all names: ./dev test --list"


def _read(folder: pathlib.Path, what: str) -> list[dict]:
    return json.loads((folder / f"meson-info/intro-{what}.json").read_text())
