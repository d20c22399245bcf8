#!/usr/bin/env python3
"""Writes debian/libdsc0.symbols from capi/dsc.map: every function, with the version that first had it.

`./dev abi-baseline` runs this. `./dev lint exports` and the build of the Debian packages compare the result with the
library.
"""

import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
HEAD = "libdsc.so.0 libdsc0 #MINVER#\n* Build-Depends-Package: libdsc-dev\n"


def lines(version_map: str) -> list[str]:
    """Returns the lines of the symbols file, sorted as dpkg-gensymbols sorts them."""
    found = []
    for node, release, body in re.findall(r"(DSC_(\d+\.\d+)) \{(.*?)\}", version_map, re.DOTALL):
        names = re.findall(r"\bdsc_\w+(?=;)", body)
        found += [f" {name}@{node} {release}.0" for name in [node, *names]]
    return sorted(found)


def main() -> None:
    version_map = (HERE / "../capi/dsc.map").read_text()
    (HERE / "libdsc0.symbols").write_text(HEAD + "\n".join(lines(version_map)) + "\n")


if __name__ == "__main__":
    main()
