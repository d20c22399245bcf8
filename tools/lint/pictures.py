#!/usr/bin/env python3
"""Pictures of the guides must be small, readable on light and dark pages, and shown on a page."""

import re
import sys
import xml.etree.ElementTree as ElementTree

import source

MOST_BYTES = 60 << 10
LEAST_PX = 11  # minimum size of letters, in a picture as wide as a page
SIZE = re.compile(r'font-size="([\d.]+)"|font:(?:\w+ )?([\d.]+)px')
GROUND = re.compile(r'<rect width="\d+" height="[\d.]+"(?: rx="\d+")? fill="#(?:fff|ffffff)"/>')


def problems(text: str) -> list[str]:
    """Returns the problems of an SVG."""
    found = []
    try:
        ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        found.append(f"is not well-formed XML: {error}")
    if len(text.encode()) > MOST_BYTES:
        found.append(f"has {len(text.encode())} bytes, expected at most {MOST_BYTES}")
    sizes = [float(one or other) for one, other in SIZE.findall(text)]
    if not sizes or min(sizes) < LEAST_PX:
        found.append(f"has text with letters of {min(sizes, default=0):g} px, expected at least {LEAST_PX} px")
    if not GROUND.search(text):
        found.append("has no white background, so its text cannot be read on dark pages")
    return found


def main() -> int:
    pages = "".join(source.read(path) for path in source.files("README.md", "docs/*.md"))
    found = []
    for path in source.files("docs/*.svg"):
        found += [f"{path}: {problem}" for problem in problems(source.read(path))]
        if not re.search(rf"!\[[^\]]{{10,}}\]\((?:docs/)?{path.split('/')[1]}\)", pages):
            found.append(f"{path}: no page shows this picture; expected ![description](picture) with 10 or more letters in README.md or docs/*.md")
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
