#!/usr/bin/env python3
"""Tracked files must not contain paths of one particular machine or promises of future work. Guides, READMEs and public
headers must not contain phrases that readers have to read twice. Lines of prose in Markdown have at most 120
characters.
"""

import re
import sys
from typing import Iterator

import source

RULES = [
    (re.compile(r"(?<![\w.~}\])/-])/(?:work|root|home|tmp)/"), "an absolute path of one machine; use a folder from mktemp or TMPDIR"),
    (re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"), "a note of work left; do it, or write an issue"),
]
DATA = (".csv", ".json", ".jsonl", ".abi")

WORDED = ("docs/*.md", "*README*.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "capi/include/*.h")
MOST_CHARACTERS = 120  # in a line of prose
PHRASES = [  # phrases that are always wrong in this project, and what to write instead
    (r"besides", "also, in addition, or except"),
    (r"but for", "except, or except for"),
    (r"whence", "from where"),
    (r"(?:comes?|coming|goes) behind", "is ordered after, or after"),
    (r"of the (?:caller's|program's own|user's own|ring's own)", "user-defined, or your own"),
    (r"of one's own", "your own"),
    (r"none of the \w+'s own", "not of the ..."),
    (r"that live(?! on)", "surviving"),
    (r"mend(?:s|ed|ing)?", "fix"),
    (r"in (?:small|capital) letters", "in lower case, or in upper case"),
    (r"for ever", "without end, or until what ends it"),
    (r"strangers?", "another program"),
    (r"voids?(?! ?[*(])", "invalidates"),
    (r"turns (?:the \w+ |it )?round", "reverses"),
    (r"is no error", "is not an error, or raises no error"),
    (r"(?:that|which|who) (?:is|are) no (?!longer|more)\w+", "that is not a ..."),
    (r"(?:has|have|had) come", "arrived"),
    (r"(?:comes?|came) too late", "arrives late"),
    (r"looked for", "searched for"),
    (r"by hand", "manually, or yourself"),
    (r"stands?(?! for| still)", "is, or is written"),
    (r"(?:that|which) (?:is|are) there", "that exists, or that is ready"),
    (r"to and fro", "forward and back"),
    (r"does as well", "works too"),
]
PHRASE = [(re.compile(rf"(?<![\w`'-]){phrase}(?![\w'-])", re.IGNORECASE), better) for phrase, better in PHRASES]


def prose(path: str) -> Iterator[tuple[int, str]]:
    """Yields lines and their numbers: in Markdown those outside of code blocks, in a header its comments."""
    in_code = in_comment = False
    for number, line in enumerate(source.read(path).splitlines(), 1):
        if path.endswith(".md"):
            in_code ^= line.lstrip().startswith("```")
            if not in_code and not line.startswith(("    ", "```")):
                yield number, line
            continue
        begins = line.find("/*")
        if begins >= 0 or in_comment:
            yield number, line[max(begins, 0) :]
        in_comment = (in_comment or begins >= 0) and "*/" not in line


def without_code(line: str) -> str:
    """Replaces names, addresses and quoted commands, because these are not prose."""
    return re.sub(r"`[^`]*`|\]\([^)]*\)|\(void\)|void\*", lambda found: "_" * len(found.group()), line)


def is_too_long(line: str) -> bool:
    """Returns whether a line of Markdown is too long and could be broken. Rows of tables, pictures and links cannot be
    broken.
    """
    if line.startswith("|") or line.lstrip().startswith("!["):
        return False
    return len(re.sub(r"\]\([^)]*\)", "]", line)) > MOST_CHARACTERS


def wording(path: str) -> list[str]:
    found = []
    for number, line in prose(path):
        found += [f"{path}:{number}: '{m.group()}': {better}" for rule, better in PHRASE for m in rule.finditer(without_code(line))]
        if path.endswith(".md") and is_too_long(line):
            found.append(f"{path}:{number}: {len(line)} characters, expected at most {MOST_CHARACTERS}")
    return found


def main() -> int:
    found = []
    for path in source.files():
        if path.endswith(DATA) or path == "LICENSE":
            continue
        for number, line in enumerate(source.read(path).splitlines(), 1):
            found += [f"{path}:{number}: '{m.group()}': {why}" for rule, why in RULES if (m := rule.search(line))]
    for path in source.files(*WORDED):
        found += wording(path)
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
