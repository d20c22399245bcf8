"""Commands, sources and output in documents are found and compared correctly, and every command that documents name is
tried."""

import pathlib
import re
import subprocess

import pytest

import document

PROJECT = pathlib.Path(__file__).resolve().parents[2]
RUN = [PROJECT / "README.md", PROJECT / "tests/bare/commands.md"]  # the documents that bare.py runs
SCRIPTS = [PROJECT / ".ci/run", *(PROJECT / "tests/bare").rglob("*.sh"), PROJECT / "tests/bare/bare.py"]

TEXT = """
In Python, `hello.py`:

```python
print("hello")
```

```console
$ python3 hello.py
hello
$ long \\
  command
```

A fragment is no file:

```python
x = 1
```

```sh
one
two
```
"""


def test_steps():
    steps = document.steps(TEXT)
    assert [(step.name, step.text, step.promised) for step in steps] == [
        ("hello.py", 'print("hello")\n', []),
        ("", "python3 hello.py", ["hello"]),
        ("", "long \\\n  command", []),
        ("", "one", []),
        ("", "two", []),
    ]


@pytest.mark.parametrize(
    "promised, printed",
    [
        ([], "anything"),
        (["a", "b"], "a\nb\n"),
        (["...", "b"], "x\na\nb\n"),
        (["a", "...", "b", "..."], "a\n1\n2\nb\n3\n"),
        (["[1] x", "[0] x"], "[0] x\n[1] x\n"),
        (["loss 1.5, 97.22%"], "loss 0.25, 1.00%\n"),
        (["[0] stage 0  0░··▓0"], "[0] stage 0  ▓▓▓▓▓▓\n"),
        (["[0]   |0   |2  |8 ms"], "[0] |0     |5 |10       |15 ms\n"),
        (["2026-01-02T03:04:05.678Z libdsc[a:1 rank 0] x (pid 2)"], "2030-12-31T23:59:59.001Z libdsc[b:77 rank 0] x (pid 88)\n"),
    ],
)
def test_the_same(promised, printed):
    assert document.difference(promised, printed) == ""


@pytest.mark.parametrize(
    "promised, printed",
    [
        (["a", "b"], "b\na\n"),
        (["a"], "x\na\n"),
        (["a"], "a\nx\n"),
        (["...", "b"], "x\na\n"),
        (["a", "...", "b"], "b\na\n"),
        (["[1] x", "[0] y"], "[0] x\n[1] y\n"),
        (["loss 1.5 of 3"], "loss 1.5 of 4\n"),
        (["2026-01-02T03:04:05.678Z libdsc[a:1 rank 0] x"], "2026-01-02T03:04:05.678Z libdsc[a:1 rank 1] x\n"),
    ],
)
def test_not_the_same(promised, printed):
    assert document.difference(promised, printed) != ""


def tried() -> list[str]:
    """Returns every command that runs in a bare root or in the gate."""
    commands = [step.text for path in RUN for step in document.steps(path.read_text()) if not step.name]
    return commands + re.findall(r"\./dev [^\n\"]+", "\n".join(path.read_text() for path in SCRIPTS))


def stem(command: str) -> str:
    """Returns the words of a command before the first word that the reader chooses."""
    words = command.split()
    chosen = next((i for i, word in enumerate(words) if i and re.search(r"^[-[A-Z\d]", word)), len(words))
    return " ".join(words[:chosen])


def named_commands() -> list[str]:
    """Returns the commands that ./dev help lists, and those that pages about measurements tell a reader to run."""
    usage = subprocess.run([PROJECT / "dev", "help"], check=True, capture_output=True, text=True).stdout
    named = [f"./dev {name}" for name in re.findall(r"^  ([a-z][a-z-]*) ", usage, re.MULTILINE)]
    for page in (PROJECT / "docs").glob("*.md"):
        named += [stem(command) for command in re.findall(r"`(\./dev (?:bench|fuzz|exec)[^`]*)`", page.read_text())]
    return sorted(set(named))


@pytest.mark.parametrize("command", named_commands())
def test_every_command_is_tried(command):
    assert any(f"{text} ".startswith(f"{command} ") for text in tried()), f"nothing runs {command}"
