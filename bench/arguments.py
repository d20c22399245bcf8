"""Values on the command line that several benchmarks have in common."""

import argparse
from pathlib import Path

UNITS = {"": 1, "B": 1, "K": 1 << 10, "KIB": 1 << 10, "M": 1 << 20, "MIB": 1 << 20}


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, got '{text}'")
    return int(text)


def numbers(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def sizes(text: str) -> list[int]:
    found = []
    for part in text.split(","):
        digits = part.rstrip("BKMibkm")
        unit = part[len(digits) :].upper()
        if not digits.isdecimal() or unit not in UNITS:
            raise argparse.ArgumentTypeError(f"expected a size such as 4, 16KiB or 25MiB, got '{part}'")
        found.append(int(digits) * UNITS[unit])
    if any(size < 4 or size % 4 for size in found):
        raise argparse.ArgumentTypeError("expected multiples of 4 bytes, the size of one f32")
    return found


def output_file(text: str) -> Path:
    """A file that can be written at the end of a run, which may be hours later."""
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder does not exist: {path.absolute().parent}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file, got the folder {path}")
    return path
