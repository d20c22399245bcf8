#!/usr/bin/env python3
"""Writes the addresses of addresses.toml into packages and pages: addresses.py write | check | release

write    writes them into all files that name them
check    fails if a file differs from what `write` would write; `./dev lint licenses` runs this
release  fails in the same way, and also if an address is empty; run it before a release
"""

from __future__ import annotations

import pathlib
import re
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NO_SOURCE = "The sources are this package. libdsc has no public repository yet."
NO_CONTACT = "The project has no public contact yet. A release adds one here. Until then, tell the person from whom you got this copy."
NO_MAINTAINER = "libdsc maintainers <maintainers@libdsc.invalid>"
CONTACT = r"(<!-- security contact:[^\n]*\n).*?(<!-- end)"


def lines(fields: dict[str, str], pattern: str) -> str:
    """Returns a line for each field that is not empty."""
    return "".join(pattern.format(name, value) for name, value in fields.items() if value)


def control(text: str, to: dict[str, str]) -> str:
    text = re.sub(r"^(?:Homepage|Vcs-Git|Vcs-Browser): .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^Maintainer: .*$", lambda _: f"Maintainer: {to['maintainer'] or NO_MAINTAINER}", text, flags=re.MULTILINE)
    fields = {"Homepage": to["homepage"], "Vcs-Git": to["repository"], "Vcs-Browser": to["repository"]}
    return text.replace("Rules-Requires-Root: no\n", "Rules-Requires-Root: no\n" + lines(fields, "{}: {}\n"), 1)


def copyright_file(text: str, to: dict[str, str]) -> str:
    return re.sub(r"^Source: .*$", lambda _: f"Source: {to['repository'] or NO_SOURCE}", text, count=1, flags=re.MULTILINE)


def python_project(text: str, to: dict[str, str]) -> str:
    text = re.sub(r"\[project\.urls\]\n(?:.+\n)+\n", "", text)
    urls = lines({"Homepage": to["homepage"], "Source": to["repository"]}, '{} = "{}"\n')
    return text.replace("[project.scripts]\n", (f"[project.urls]\n{urls}\n" if urls else "") + "[project.scripts]\n", 1)


def crate(text: str, to: dict[str, str]) -> str:
    text = re.sub(r"^(?:homepage|repository) = .*\n", "", text, flags=re.MULTILINE)
    fields = lines({"homepage": to["homepage"], "repository": to["repository"]}, '{} = "{}"\n')
    return text.replace('license = "Apache-2.0"\n', 'license = "Apache-2.0"\n' + fields, 1)


def security(text: str, to: dict[str, str]) -> str:
    contact = f"Write to {to['security']}." if to["security"] else NO_CONTACT
    return re.sub(CONTACT, lambda found: f"{found[1]}{contact}\n{found[2]}", text, flags=re.DOTALL)


FILES = {
    "debian/control": control,
    "debian/copyright": copyright_file,
    "pyproject.toml": python_project,
    "bindings/rust/dsc/Cargo.toml": crate,
    "bindings/rust/dsc-sys/Cargo.toml": crate,
    "SECURITY.md": security,
}


def main() -> int:
    command = sys.argv[1] if len(sys.argv) == 2 else ""
    if command not in ("write", "check", "release"):
        print(f"addresses: expected one of write, check, release; got {sys.argv[1:]}", file=sys.stderr)
        return 2
    addresses = tomllib.loads((HERE / "addresses.toml").read_text())
    problems = []
    for name, fill in FILES.items():
        path = ROOT / name
        old = path.read_text()
        new = fill(old, addresses)
        if command == "write":
            path.write_text(new)
        elif new != old:
            problems.append(f"{name}: differs from tools/release/addresses.toml; run tools/release/addresses.py write")
    if command == "release":
        problems += [f"tools/release/addresses.toml: '{name}' is empty; a release needs it" for name, value in addresses.items() if not value]
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
