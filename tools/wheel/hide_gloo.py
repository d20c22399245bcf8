"""Gives the functions of the bundled Gloo names of their own, so that the dynamic linker never connects them with those
of another Gloo. torch brings its own Gloo of another version, whose symbols have the same names.
"""

from __future__ import annotations

import pathlib
import subprocess
import tempfile

GLOO = "4gloo"  # how names in the namespace gloo are mangled
HIDDEN = "8dsc_gloo"


def dynamic_symbols(library: pathlib.Path) -> list[tuple[str, str, str]]:
    """Returns section, binding and name of all dynamic symbols; the section of an undefined symbol is UND."""
    command = ["readelf", "--wide", "--dyn-syms", str(library)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = (line.split() for line in listing.splitlines())
    return [(row[6], row[4], row[7].split("@")[0]) for row in rows if len(row) >= 8 and row[0].rstrip(":").isdigit()]


def renamed(symbol: str) -> str:
    return symbol.replace(GLOO, HIDDEN)


def hide(libraries: list[pathlib.Path]) -> None:
    """Renames the symbols of Gloo in all libraries that define or use them."""
    for library in libraries:
        names = sorted({name for _, _, name in dynamic_symbols(library) if GLOO in name})
        if not names:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".map") as table:
            table.write("".join(f"{name} {renamed(name)}\n" for name in names))
            table.flush()
            subprocess.run(["patchelf", "--rename-dynamic-symbols", table.name, str(library)], check=True)


def problems(libraries: list[pathlib.Path], module: pathlib.Path) -> list[str]:
    """Returns what contradicts hidden symbols: names of Gloo, and functions that the module exports."""
    found = [f"{library.name}: has the symbol {name} of Gloo" for library in libraries for _, _, name in dynamic_symbols(library) if GLOO in name]
    exported = sorted(name for section, _, name in dynamic_symbols(module) if section != "UND")
    if exported != ["dsc_transport_module"]:
        found.append(f"{module.name}: expected to export only dsc_transport_module, but exports {exported}")
    return found
