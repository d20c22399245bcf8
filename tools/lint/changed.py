"""Chooses the sources that clang must read: those that changed since the commit in clang_base, for which clang has read
the whole tree.

If a header changed, clang reads a few of the sources that include it: the source with the same name, and the smallest
ones. `./dev lint --all` reads everything and writes the commit to clang_base. If the rules changed, everything is read
too.
"""

import functools
import os
import re
import subprocess

BASE_FILE = "tools/lint/clang_base"
MOST_PER_HEADER = 12
ROOTS = ("impl", "capi/include", "tools", "tests/support", "tests/support/fake_gpu", "tests/ranks", "tests/unit", "tests/fault", "tests/fuzz", "bench")
RULES = {".clang-tidy", "meson.build", *(f"tools/lint/{name}" for name in ("changed.py", "clang.sh", "clang_objects.py", "targets.py", "tidy.py"))}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def to_read(sources: list[str]) -> list[str]:
    """Returns the sources that clang must read."""
    changed = _changed()
    if changed is None or changed & RULES:
        return sources
    wanted = {source for source in sources if source in changed}
    smallest = sorted(sources, key=os.path.getsize)
    for header in sorted(changed - set(sources)):
        stem = os.path.splitext(header)[0]
        if os.path.exists(header):
            wanted |= {source for source in sources if os.path.splitext(source)[0] == stem}
            wanted |= set([source for source in smallest if header in _reached(source)][:MOST_PER_HEADER])
    return [source for source in sources if source in wanted]


def write_base() -> None:
    """Writes the current commit to clang_base. Does nothing if the tree has other changes."""
    if not _git("status", "--porcelain", "--untracked-files=no"):
        with open(BASE_FILE, "w", encoding="utf-8") as file:
            file.write(_git("rev-parse", "HEAD"))


def _changed() -> set[str] | None:
    """Returns the files that differ from the base; None if everything must be read."""
    if os.environ.get("LINT_ALL"):
        return None
    with open(BASE_FILE, encoding="utf-8") as file:
        base = file.read().strip()
    try:
        names = _git("diff", "--name-only", base) + _git("ls-files", "--others", "--exclude-standard")
    except subprocess.CalledProcessError:  # the commit is missing in this clone
        return None
    return set(names.splitlines())


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


@functools.cache
def _included(path: str) -> list[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        names = INCLUDE.findall(file.read())
    places = [[os.path.join(root, name) for root in (os.path.dirname(path), *ROOTS)] for name in names]
    return [os.path.normpath(found) for tried in places for found in tried if os.path.isfile(found)]


def _reached(source: str) -> set[str]:
    """Returns every file of the project that a source includes, directly or indirectly."""
    seen, left = {source}, [source]
    while left:
        new = [path for path in _included(left.pop()) if path not in seen]
        seen.update(new)
        left += new
    return seen


if __name__ == "__main__":
    write_base()
