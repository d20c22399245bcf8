#!/usr/bin/env python3
"""Assembles a page and writes it as C++: embed.py PAGE.html OUT.cpp SUBCOMMAND

`{{include FILE}}` is replaced by a file in the page's folder. The page is split at `{{data}}`, where the program
inserts its data. dscctl/SUBCOMMAND/page.hpp declares both halves, in namespace dscctl::SUBCOMMAND.
"""

import pathlib
import re
import sys

DELIMITER = "page"


def assemble(page: pathlib.Path) -> str:
    def part(match: re.Match[str]) -> str:
        return (page.parent / match[1]).read_text(encoding="utf-8").rstrip("\n")

    return re.sub(r"\{\{include ([\w.]+)\}\}", part, page.read_text(encoding="utf-8"))


def literal(name: str, text: str) -> str:
    if f"){DELIMITER}\"" in text:
        sys.exit(f"embed.py: the page contains ){DELIMITER}\"")
    return f'const char* const {name} = R"{DELIMITER}({text}){DELIMITER}";\n'


def main(page: str, out: str, subcommand: str) -> None:
    head, data, tail = assemble(pathlib.Path(page)).partition("{{data}}")
    if not data:
        sys.exit(f"embed.py: {page} has no placeholder for the data")
    body = literal("kPageHead", head) + literal("kPageTail", tail)
    space = f"dscctl::{subcommand}"
    text = f'#include "dscctl/{subcommand}/page.hpp"\n\nnamespace {space} {{\n{body}}}  // namespace {space}\n'
    pathlib.Path(out).write_text(text, encoding="utf-8")


main(*sys.argv[1:])
