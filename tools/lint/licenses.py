#!/usr/bin/env python3
"""REUSE.toml and debian/copyright must name the same files with the same licenses, and LICENSES/ must contain exactly
the texts of these licenses. Addresses in packages and pages must be those of tools/release/addresses.toml.
"""

import pathlib
import re
import subprocess
import sys
import tomllib

import source

OWN_NAME = "LicenseRef-"  # SPDX requires it before a name that it does not define


def packaged() -> dict[str, tuple[str, str]]:
    """Returns copyright and license of the files of each paragraph of debian/copyright."""
    found = {}
    for paragraph in source.read("debian/copyright").split("\n\n"):
        fields = dict(re.findall(r"^(Files|Copyright|License): (.*)$", paragraph, re.MULTILINE))
        if "Files" in fields:
            found[fields["Files"]] = (fields["Copyright"], fields["License"])
    return found


annotations = tomllib.loads(source.read("REUSE.toml"))["annotations"]
declared = {
    "*" if entry["path"] == "**" else entry["path"]: (entry["SPDX-FileCopyrightText"], entry["SPDX-License-Identifier"].removeprefix(OWN_NAME))
    for entry in annotations
}
found = []
if declared != packaged():
    found.append(f"REUSE.toml and debian/copyright differ: {declared} and {packaged()}")
found += [f"REUSE.toml: there is no file {path}" for path in declared if path != "*" and not pathlib.Path(path).is_file()]
texts = {path.stem for path in pathlib.Path("LICENSES").glob("*.txt")}
used = {entry["SPDX-License-Identifier"] for entry in annotations}
if texts != used:
    found.append(f"LICENSES has the texts of {sorted(texts)}, expected {sorted(used)}")
addresses = subprocess.run(["tools/release/addresses.py", "check"], capture_output=True, text=True)
found += [addresses.stderr.strip()] if addresses.returncode else []
print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
sys.exit(bool(found))
