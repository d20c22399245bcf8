"""Finds the messages of the library in its sources, for tests of the bindings, which rewrite them."""

import re

from conftest import ROOT

LITERALS = re.compile(r'"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*')
FORMATS = re.compile(r"%[-+ #0]*[*\d.]*(?:hh?|ll?|z|t)?[a-zA-Z]")


def messages():
    """Returns (file, text) of every message of the library, with 1 for each value that it inserts."""
    for folder in ("impl", "capi"):
        for path in sorted((ROOT / folder).rglob("*.[ch]pp")):
            code = re.sub(r"^\s*(//|#).*$", "", path.read_text(), flags=re.MULTILINE)
            for literal in LITERALS.findall(code):
                text = "".join(re.findall(r'"((?:\\.|[^"\\\n])*)"', literal)).replace('\\"', '"')
                if " " in text and "\\n" not in text:
                    yield path.name, FORMATS.sub("1", text)
