"""Helpers of several checks: the files of the project, and the functions in C and C++ text."""

import re
import subprocess
from typing import Iterator, NamedTuple


def files(*patterns: str) -> list[str]:
    """Returns tracked and new files that match the git patterns, without files that git ignores."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "--", *patterns]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    deleted = subprocess.run(["git", "ls-files", "--deleted"], check=True, capture_output=True, text=True).stdout
    return sorted(set(listed) - set(deleted.splitlines()))


def read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class Function(NamedTuple):
    name: str
    first_line: int
    last_line: int
    body: str

    @property
    def lines(self) -> int:
        return self.last_line - self.first_line + 1


NOISE = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)" | "(?:\\.|[^"\\\n])*" | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'
      | ^[ \t]*\#(?:\\\n|[^\n])*""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
SCOPE = re.compile(r"^\s*(template\s*<.*>\s*)?(inline\s+|typedef\s+)?(namespace|class|struct|union|enum|extern)\b", re.DOTALL)


def code_only(text: str) -> str:
    """Replaces comments, literals and preprocessor lines by blanks, so that all positions stay the same."""
    return NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def functions(text: str) -> Iterator[Function]:
    """Yields the bodies of functions at namespace or class level. Lambdas belong to the function that contains them."""
    code = code_only(text)
    head_start, depth_inside, stack = 0, 0, []
    for match in re.finditer(r"[{};]", code):
        position, mark = match.start(), match.group()
        if depth_inside:
            depth_inside += {"{": 1, "}": -1}.get(mark, 0)
            if depth_inside == 0 and stack[-1] is not None:
                name, begin = stack[-1]
                first = code.count("\n", 0, begin) + 1
                yield Function(name, first, code.count("\n", 0, position) + 1, code[begin : position + 1])
            if depth_inside == 0:
                stack.pop()
                head_start = position + 1
        elif mark == "{":
            head = code[head_start:position]
            if opens_scope(head):
                head_start = position + 1
            else:
                stack.append(named(head, head_start))
                depth_inside = 1
        else:
            head_start = position + 1


def opens_scope(head: str) -> bool:
    return bool(SCOPE.match(head)) and not re.search(r"\)\s*(const|noexcept|override|final|->.*)?\s*$", head)


def named(head: str, head_start: int) -> tuple[str, int] | None:
    """Returns name and start of the function whose text before the brace is `head`; None for an initializer."""
    called = re.search(r"((?:[\w~]+::)*(?:operator\s*\S+?|[~\w]+))\s*\(", head)
    if not called or "=" in re.sub(r"operator\s*\S+|\(.*\)", "", head, flags=re.DOTALL):
        return None
    return called.group(1), head_start + len(head) - len(head.lstrip())
