#!/usr/bin/env python3
"""Prints what ./dev needs before it runs tests: choose.py suites|programs|list FOLDER WITHOUT [WORD ...]

Prints the suites of the selected tests, the files that ninja must build, or a list of the tests for users. WITHOUT is a
suite that is left out, or empty.
"""

import pathlib
import sys
from typing import Optional

import catalog


def main(what: str, folder: str, without: str, *words: str) -> Optional[str]:
    """Returns an error message, or None."""
    try:
        chosen = catalog.chosen(catalog.tests(pathlib.Path(folder)), list(words), without)
    except catalog.Unknown as unknown:
        return f"dev: {unknown}"
    if what == "list":
        print(*(f"{' '.join(sorted(test.suites)):20} {test.name}" for test in chosen), sep="\n")
        return None
    print(*sorted({word for test in chosen for word in (test.suites if what == "suites" else test.needs)}))
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
