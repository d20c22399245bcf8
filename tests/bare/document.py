"""The commands and sources of a Markdown document, and a check that they print what the document shows.

A fenced `console` block has commands after "$ " and the promised output of each. A `sh` block has only commands. A
block in a programming language is a file. Its name is the last one in backticks since the previous source that has the
suffix of the language.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SUFFIXES = {"python": ".py", "c": ".c", "rust": ".rs"}


@dataclass
class Step:
    """A command, or a file to write if `name` is set."""

    text: str
    name: str = ""
    promised: list[str] = field(default_factory=list)


def steps(text: str) -> list[Step]:
    """Returns all steps of a document, in order."""
    found: list[Step] = []
    end = 0  # the end of the previous source
    for block in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        before, language, body = text[end : block.start()], block[1], block[2]
        if language == "console":
            found += _commands(body)
        elif language == "sh":
            found += [Step(line) for line in body.splitlines() if line.strip()]
        elif language in SUFFIXES:
            found += _file(before, SUFFIXES[language], body)
            end = block.end()
    return found


def _commands(body: str) -> list[Step]:
    found: list[Step] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(Step(line[2:]))
        elif found and found[-1].text.endswith("\\"):
            found[-1].text += "\n" + line
        elif found:
            found[-1].promised.append(line)
    return found


def _file(before: str, suffix: str, body: str) -> list[Step]:
    """A block without a file name is a part of a program. Other tests compile it."""
    names = [name for name in re.findall(r"`([^`\s]+)`", before) if name.endswith(suffix)]
    return [Step(body, name=names[-1])] if names else []


def difference(promised: list[str], printed: str) -> str:
    """Returns which promised lines are missing in the output, as text, or "" if none are.

    A line "..." stands for any lines. The output of ranks may be in any order. Numbers with a decimal point depend on
    the machine, and so do drawings of measured times, and the process ids and times of log lines: any such value is
    accepted.
    """
    if not promised:
        return ""
    lines = [_plain(line) for line in printed.splitlines()]
    start, anywhere = 0, False
    for part in _parts(promised):
        if part is None:
            anywhere = True
            continue
        wanted = [_plain(line) for line in part]
        places = range(start, len(lines) - len(wanted) + 1) if anywhere else [start]
        place = next((i for i in places if _same(lines[i : i + len(wanted)], wanted)), None)
        if place is None:
            return "these lines are missing or different:\n" + "\n".join(part)
        start, anywhere = place + len(wanted), False
    if not anywhere and start < len(lines):
        return "more was printed than stands there:\n" + "\n".join(printed.splitlines()[start:])
    return ""


def _parts(promised: list[str]) -> list[list[str] | None]:
    parts: list[list[str] | None] = []
    for line in promised:
        if line.strip() == "...":
            parts.append(None)
        elif parts and parts[-1] is not None:
            parts[-1].append(line)
        else:
            parts.append([line])
    return parts


def _same(printed: list[str], promised: list[str]) -> bool:
    if all(re.match(r"\[\d+\] |rank \d", line) for line in promised):
        return sorted(printed) == sorted(promised)
    return printed == promised


def _plain(line: str) -> str:
    line = re.sub(r"\d{4}-\d\d-\d\dT\S+Z libdsc\[\S+ ", "TIME libdsc[PROCESS ", line)
    line = re.sub(r"\(pid \d+\)", "(pid NUMBER)", line)
    line = re.sub(r"[^ ]*[░▓·].*$", "DRAWING", line)
    line = re.sub(r"(\|\d+ *)+m?s$", "AXIS", line)
    line = re.sub(r"\d+\.\d+(e[-+]\d+)?", "NUMBER", line)
    return re.sub(r"\s+", " ", line).rstrip()
