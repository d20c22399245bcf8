#!/usr/bin/env python3
"""Says what ./dev must do before it runs some tests: choose.py suites|programs FOLDER WITHOUT [WORD ...]

Prints the suites that the words touch, or the files that ninja has to make. WITHOUT is a suite that is left out, or empty.
"""

import pathlib
import sys
from typing import Optional

import catalog


def main(what: str, folder: str, without: str, *words: str) -> Optional[str]:
    """Returns a complaint, or None."""
    known = [test for test in catalog.tests(pathlib.Path(folder)) if without not in test.suites]
    try:
        chosen = catalog.chosen(known, list(words))
    except catalog.Unknown as unknown:
        return f"dev: {unknown}"
    print(*sorted({word for test in chosen for word in (test.suites if what == "suites" else test.needs)}))
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
