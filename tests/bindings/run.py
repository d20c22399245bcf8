#!/usr/bin/env python3
"""Runs one file of tests with pytest. Exits with 77 (skipped) and a reason if a needed module is missing."""

import importlib.util
import sys


def main():
    needed = ["pytest", "numpy"]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {sys.executable} has no {' and no '.join(missing)}")
        return 77
    import pytest

    return pytest.main(["-q", "-rs", "-p", "no:cacheprovider", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
