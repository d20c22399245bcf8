#!/usr/bin/env python3
"""Finishes a wheel that auditwheel has repaired: finish.py WHEEL FOLDER

Hides the symbols of the bundled Gloo, adds the description and the licenses of everything that is bundled, and writes
the wheel to FOLDER. The same files give the same bytes: entries are sorted, and have the date of SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import pathlib
import sys
import tempfile
import time
import zipfile

import hide_gloo
import sbom

EARLIEST = 315532800  # 1980-01-01; earlier dates cannot be written in a zip file


def record(wheel: pathlib.Path, names: list[str], own_name: str) -> None:
    """Writes the list of all files with their checksums. The list itself has none."""
    with (wheel / own_name).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for name in names:
            data = (wheel / name).read_bytes()
            checksum = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            writer.writerow([name, f"sha256={checksum}", len(data)])
        writer.writerow([own_name, "", ""])


def pack(wheel: pathlib.Path, target: pathlib.Path, modes: dict[str, int]) -> None:
    date = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), EARLIEST))[:6]
    own_name = str(next(wheel.glob("*.dist-info/RECORD")).relative_to(wheel))
    files = sorted(str(path.relative_to(wheel)) for path in wheel.rglob("*") if path.is_file())
    names = [name for name in files if name != own_name]
    record(wheel, names, own_name)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in [*names, own_name]:
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if modes.get(name, 0) & 0o111 else 0o100644) << 16
            archive.writestr(entry, (wheel / name).read_bytes(), compresslevel=9)


def main() -> int:
    made, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    version = made.name.split("-")[1]
    with tempfile.TemporaryDirectory() as scratch:
        wheel = pathlib.Path(scratch)
        with zipfile.ZipFile(made) as archive:
            archive.extractall(wheel)
            modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        libraries = sorted([*wheel.glob("libdsc/*.so*"), *wheel.glob("libdsc.libs/*.so*")])
        hide_gloo.hide(libraries)
        problems = hide_gloo.problems(libraries, wheel / "libdsc/libdsc_gloo.so")
        if problems:
            print(*problems, sep="\n", file=sys.stderr)
            return 1
        sbom.add(wheel, version)
        pack(wheel, folder / made.name, modes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
