#!/usr/bin/env python3
"""docs/environment.md must list exactly the variables that the code reads. The programs' help must list those of the
programs.

Variables are found as string literals in the sources: names that start with DSC_ in all files, and other names in files
that read the environment.
"""

import json
import re
import sys
from typing import NamedTuple

import source

PAGE = "docs/environment.md"
READERS = ("impl/*.?pp", "capi/*.cpp", "tools/common/*.cpp", "tools/dscrun/*.cpp", "tools/dscctl/*.cpp", "bindings/python/*.py",
           "bindings/rust/*/build.rs")
# The texts of --help and of the man page.
HELP = {"dscrun": "tools/dscrun/usage.cpp", "dscctl": "tools/dscctl/main.cpp"}
READS = re.compile(r"\b(?:environment_?|getenv|environ|kLaunchers|var_os|env::var|variable)\b")
LITERAL = re.compile(r'"([A-Z][A-Z0-9]+(?:_\w*[A-Za-z0-9])*)=?"')
DIRECT = re.compile(r'(?:environment_?|getenv|environ\.get|environ|variable|var_os|env::var)[(\[]\s*"([A-Z][A-Z0-9_]+)"')
ROW = re.compile(r"^\|(.*)\|$")
CODE = re.compile(r"`([A-Z][A-Z0-9]+(?:_\w+)*)`")
LINK = re.compile(r"\]\(([\w.]+)\)")
HERE = "this page"
OTHERS = {"TARGET", "PKG_CONFIG_PATH"}  # read by cargo, or named only as advice in an error
NO_VARIABLES = {"RAISE_VARARGS"}  # literals that look like variables, in files that read the environment


class Row(NamedTuple):
    number: int  # number of the line
    names: list[str]
    readers: list[str]  # the programs that read them
    explained_by: str  # the page in docs/ that explains them; empty: this page


def rows() -> list[Row]:
    """Returns the rows of the page's tables of variables and of launchers."""
    made = []
    for number, line in enumerate(source.read(PAGE).splitlines(), 1):
        cells = [cell.strip() for cell in found[1].split(" | ")] if (found := ROW.match(line)) else []
        if len(cells) == 5 and CODE.match(cells[0]):
            link = LINK.search(cells[4])
            explained_by = link[1] if link else "" if cells[4] == HERE else cells[4]
            made.append(Row(number, CODE.findall(cells[0]), re.findall(r"`(dsc\w+)`", cells[3]), explained_by))
        elif len(cells) == 2 and CODE.match(cells[1]):
            made.append(Row(number, CODE.findall(cells[1]), [], ""))
    return made


def other_names() -> set[str]:
    """Returns public names that look like variables: enumerators, constants, and names of results."""
    api = json.loads(source.read("bindings/api.json"))
    values = [one["name"] for enum in api["enums"] for one in enum["values"]]
    return {*values, *(one["name"] for one in api["constants"]), "DSC_UNKNOWN_RESULT"} | NO_VARIABLES | OTHERS


def variables_of(path: str) -> set[str]:
    """Returns the variables that a source file reads, or lists for other files to read."""
    text = re.sub(r"^\s*(?://|\*|/\*|#\s).*$", "", source.read(path), flags=re.MULTILINE)
    literals = set(LITERAL.findall(text))
    names = {name for name in literals if name.startswith("DSC_")} | set(DIRECT.findall(text))
    return names | {name for name in literals if "_" in name and READS.search(text)}


def problems() -> list[str]:
    others, made = other_names(), rows()
    read = {path: variables_of(path) - others for path in source.files(*READERS)}
    everything = "".join(source.read(path) for path in read)
    listed = {name for row in made for name in row.names}
    found = [f"{path}: reads or sets {name}, but {PAGE} does not list it" for path, names in read.items() for name in sorted(names - listed)]
    for row in made:
        for name in row.names:
            at = f"{PAGE}:{row.number}: {name}: "
            if not re.search(rf'"{name}=?"', everything):
                found.append(at + "no code reads or sets it")
            if row.explained_by and not mentions(f"docs/{row.explained_by}", name):
                found.append(at + f"docs/{row.explained_by} does not mention it; name another page, or '{HERE}'")
            for program in row.readers:
                if program in HELP and not mentions(HELP[program], name):
                    found.append(at + f"{HELP[program]} does not mention it, so {program}'s help and man page do not")
    return found


def mentions(path: str, name: str) -> bool:
    return bool(re.search(rf"\b{name}\b", source.read(path)))


if __name__ == "__main__":
    found = problems()
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    sys.exit(bool(found))
