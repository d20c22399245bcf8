"""Arguments of ./dev test select suites, tests and patterns.

Results are read from Meson's output. clang rereads what has changed.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "tools/testing"), str(PROJECT / "tools/lint")]
import catalog  # noqa: E402
import changed  # noqa: E402
import run  # noqa: E402

TESTS = [("reducer", "ranks"), ("reducer_create", "unit"), ("utf8", "unit"), ("fault_kill", "fault"), ("gpu_late", "gpu")]
TESTS_LONG = [("train_4", "long")]


@pytest.fixture
def folder(tmp_path):
    """A build folder with six tests. Each of them needs a different program."""
    info = tmp_path / "meson-info"
    info.mkdir()
    program = {name: str(tmp_path / f"tests/test_{name}") for name, _ in TESTS + TESTS_LONG}
    targets = [{"id": name, "filename": [program[name]]} for name in program]
    targets.append({"id": "library", "filename": [str(tmp_path / "libdsc.so")]})
    tests = [{"name": name, "suite": [f"libdsc:{suite}"], "cmd": [program[name], "word"], "depends": []} for name, suite in TESTS + TESTS_LONG]
    tests[3]["depends"] = ["library"]
    (info / "intro-targets.json").write_text(json.dumps(targets))
    (info / "intro-tests.json").write_text(json.dumps(tests))
    return tmp_path


def names(folder, *words):
    return [test.name for test in catalog.chosen(catalog.tests(folder), list(words))]


def test_words_name_suites_tests_and_patterns(folder):
    assert names(folder) == [name for name, _ in TESTS]
    assert names(folder, "unit") == ["reducer_create", "utf8"]
    assert names(folder, "reducer") == ["reducer"]
    assert names(folder, "long") == names(folder, "train_*") == ["train_4"]
    assert names(folder, "utf8", "reducer*") == ["reducer", "reducer_create", "utf8"]


def test_only_what_a_test_needs_is_made(folder):
    [utf8] = catalog.chosen(catalog.tests(folder), ["utf8"])
    [kill] = catalog.chosen(catalog.tests(folder), ["fault"])
    assert utf8.needs == ("tests/test_utf8",)
    assert kill.needs == ("tests/test_fault_kill", "libdsc.so")


HINTS = {"reducr": "reducer", "uni": "unit", "kill": "fault_kill", "gpu_lat": "gpu_late", "impl/base/utf8.cpp": "utf8"}


@pytest.mark.parametrize("word, near", HINTS.items())
def test_a_wrong_name_gets_a_hint(folder, word, near):
    with pytest.raises(catalog.Unknown, match=f"called '{word}'; did you mean .*{near}"):
        names(folder, "unit", word)


def test_a_suite_that_is_left_out_is_said_so(folder):
    known = catalog.tests(folder)
    assert [test.name for test in catalog.chosen(known, [], "fault")] == ["reducer", "reducer_create", "utf8", "gpu_late"]
    with pytest.raises(catalog.Unknown, match="'fault_kill' cannot run here, because the suite 'fault' is left out"):
        catalog.chosen(known, ["fault_kill"], "fault")


def test_no_test_has_two_meanings():
    """A name that is also a suite selects more than the test. Only a few known names may do so."""
    build = pathlib.Path(os.environ["DSC_BUILD_FOLDER"])
    known = catalog.tests(build)
    listed = [test.name for test in known]
    assert sorted(set(listed)) == sorted(listed)
    assert {test.name for test in known} & {suite for test in known for suite in test.suites} <= {"trace"}


def test_progress_reads_what_meson_prints():
    said = []
    progress = run.Progress(said.append, 441)
    progress.read("  1/441 libdsc:unit+sequential / utf8            OK              0.02s\n")
    progress.read(" 12/441 libdsc:fault / fault_kill                FAIL           61.38s   exit status 1\n")
    progress.read("Summary of Failures:\n")
    progress.read(" 12/441 libdsc:fault / fault_kill                FAIL           61.38s   exit status 1\n")
    progress.read("Ok:                 440 \n")
    progress.stop()
    assert progress.failed == ["fault_kill"]
    assert said == ["FAIL fault_kill (61 s)"]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A project whose base is its first commit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LINT_ALL", raising=False)
    files = {
        "impl/a/low.hpp": "",
        "impl/a/high.hpp": '#include "a/low.hpp"\n',
        "impl/a/high.cpp": '#include "a/high.hpp"\n',
        "impl/b/user.cpp": '#include "a/high.hpp"\nint more = 1;\n',
        ".clang-tidy": "",
        "tools/lint/clang_base": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], check=True)
    changed._included.cache_clear()
    changed.write_base()
    return tmp_path


SOURCES = ["impl/a/high.cpp", "impl/b/user.cpp"]


@pytest.mark.parametrize(
    "edited, read",
    [
        ([], []),
        (["impl/b/user.cpp"], ["impl/b/user.cpp"]),
        (["impl/a/high.hpp"], ["impl/a/high.cpp", "impl/b/user.cpp"]),
        (["impl/a/low.hpp"], ["impl/a/high.cpp", "impl/b/user.cpp"]),
        ([".clang-tidy"], ["impl/a/high.cpp", "impl/b/user.cpp"]),
    ],
)
def test_clang_reads_what_changed(tree, edited, read):
    for name in edited:
        (tree / name).write_text((tree / name).read_text() + "// more\n")
    assert changed.to_read(SOURCES) == read


def test_clang_reads_everything_when_asked_or_without_the_base(tree, monkeypatch):
    monkeypatch.setenv("LINT_ALL", "yes")
    assert changed.to_read(SOURCES) == SOURCES
    monkeypatch.delenv("LINT_ALL")
    (tree / "tools/lint/clang_base").write_text("0" * 40 + "\n")
    assert changed.to_read(SOURCES) == SOURCES
