"""The man pages and completions of dscrun and dscctl contain everything in --help, and they work."""

import os
import re
import shutil
import subprocess

import launch
import pytest

PROGRAMS = {"dscrun": launch.DSCRUN, "dscctl": launch.DSCCTL}
NAMES = re.compile(r"^  (-[\w,-]+)", re.MULTILINE)


def ask(program, *words):
    """Returns what the program prints."""
    done = subprocess.run([PROGRAMS[program], *words], capture_output=True, text=True, timeout=launch.LIMIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands_of(program, *path):
    """Returns each subcommand of the program as words. () is the program itself."""
    yield path
    _, _, listed = ask(program, *path, "--help").partition("\nSubcommands:\n")
    for name in re.findall(r"^  (\w+)", listed.split("\n\n")[0], re.MULTILINE):
        yield from commands_of(program, *path, name)


def options_of(program, path):
    return {name for names in NAMES.findall(ask(program, *path, "--help")) for name in names.split(",")}


COMMANDS = [(program, path) for program in PROGRAMS for path in commands_of(program)]
each_program = pytest.mark.parametrize("program", PROGRAMS)
each_command = pytest.mark.parametrize("program, path", COMMANDS, ids=lambda word: str(word))


def test_all_commands_are_known():
    assert ("dscctl", ("trace", "merge")) in COMMANDS and len(COMMANDS) >= 8
    assert {"-n", "-i", "--include", "--grace-seconds"} <= options_of("dscrun", ())


# ---- man pages ---------------------------------------------------------------------------------------------------------


def section_of(program, path):
    """Returns the section about a command in a man page, as plain text."""
    text = ask(program, "--help-as", "man").replace("\\-", "-").replace("\\(aq", "'")
    title = " ".join([program, *path]).upper() if path else "OPTIONS"
    found = re.search(rf"^\.SH {title}\n(.*?)(?=^\.SH |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, title
    return re.sub(r"\\f[BIR]", "", found[1])


@each_command
def test_man_page_has_every_option(program, path):
    listed = re.findall(r"^\.TP\n(-.*)", section_of(program, path), re.MULTILINE)
    assert {name for line in listed for name in re.findall(r"(?:^|, )(-[\w-]+)", line)} == options_of(program, path)


@each_program
def test_man_page_says_what_the_help_says(program):
    page = re.sub(r"\s+", " ", ask(program, "--help-as", "man").replace("\\-", "-"))
    words = "124: --timeout has passed" if program == "dscrun" else "1 no candidate fits in the memory"
    assert words in ask(program, *(["plan"] if program == "dscctl" else []), "--help")
    assert words in page and "Exit code" not in page


@each_program
def test_man_page_has_the_environment(program):
    page = ask(program, "--help-as", "man").replace("\\-", "-")
    text = re.search(r"^\.SH ENVIRONMENT\n(.*?)(?=^\.S|\Z)", page, re.MULTILINE | re.DOTALL)[1]
    assert {"dscrun": "DSC_TOKEN_FILE", "dscctl": "DSC_NCCL_LIBRARY"}[program] in text and "NO_COLOR" in text


@each_program
def test_man_page_is_dated_by_the_build(program):
    day = {**os.environ, "SOURCE_DATE_EPOCH": "86400"}
    page = subprocess.run([PROGRAMS[program], "--help-as", "man"], capture_output=True, text=True, env=day, check=True).stdout
    assert page.startswith(f'.TH {program.upper()} 1 1970-01-02 "libdsc ')


@each_program
@pytest.mark.parametrize("check", [["groff", "-man", "-ww", "-z", "-Tutf8"], ["mandoc", "-Tlint", "-Wwarning"]], ids=lambda c: c[0])
def test_man_page_is_well_formed(program, check, tmp_path):
    if not shutil.which(check[0]):
        pytest.skip(f"{check[0]} is not installed")
    (tmp_path / "page.1").write_text(ask(program, "--help-as", "man"))
    done = subprocess.run([*check, str(tmp_path / "page.1")], capture_output=True, text=True, timeout=launch.LIMIT_S)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# ---- bash --------------------------------------------------------------------------------------------------------------


def complete(program, *words, folder=None):
    """Returns what bash offers for the last word: the contents of COMPREPLY."""
    script = 'source /dev/stdin; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "_$1" "$1" 2>&1; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-uc", script, "bash", "-", program, *words],
        input=ask(program, "--help-as", "bash"),
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=launch.LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split("\n")) - {""}


@each_command
def test_bash_completes_every_option(program, path):
    assert complete(program, *path, "-") == options_of(program, path)


def test_bash_completes_commands():
    assert complete("dscctl", "") == {"info", "bench", "plan", "schedule", "trace"}
    assert complete("dscctl", "tr") == {"trace"}
    assert complete("dscctl", "trace", "") == {"merge", "summary", "iteration"}
    assert complete("dscctl", "trace", "merge", "--l") == {"--late-after"}


OPERATIONS = set(re.search(r"^ +(all_reduce, .*)", ask("dscctl", "bench", "--help"), re.MULTILINE)[1].split(", "))


@pytest.mark.parametrize(
    "line, offered",
    [
        (["dscrun", "--start-with", ""], {"ssh", "mpirun", "srun"}),
        (["dscrun", "-n", "2", "--start-with", "=", "s"], {"ssh", "srun"}),
        (["dscrun", "--start-with", "="], {"ssh", "mpirun", "srun"}),
        (["dscctl", "bench", ""], OPERATIONS),
        (["dscctl", "bench", "--ranks", "4", "all_r"], {"all_reduce"}),
        (["dscctl", "bench", "--ranks", ""], set()),
        (["dscctl", "schedule", "--format", ""], {"pytorch", "pytorch_comms", "deepspeed", "megatron", "json"}),
        (["dscctl", "schedule", "--stages", "4", "-k", "zb"], {"zb_h1", "zb_h2", "zb_v"}),
        (["dscctl", "plan", "--kind", "1f1b,zb"], {"1f1b,zb_h1", "1f1b,zb_h2", "1f1b,zb_v"}),
    ],
)
def test_bash_completes_values(line, offered):
    assert complete(*line) == offered


def test_bash_completes_files_and_folders(tmp_path):
    (tmp_path / "a hosts file").touch()
    (tmp_path / "a folder").mkdir()
    assert complete("dscrun", "--hostfile", "a", folder=tmp_path) == {"a hosts file", "a folder"}
    assert complete("dscctl", "trace", "merge", "a", folder=tmp_path) == {"a hosts file", "a folder"}
    assert complete("dscctl", "trace", "merge", ".", "--out", "a", folder=tmp_path) == {"a folder"}
    assert complete("dscctl", "schedule", "--svg", "=", "a h", folder=tmp_path) == {"a hosts file"}


def test_bash_completes_the_program_to_run(tmp_path):
    (tmp_path / "train.py").touch()
    assert "true" in complete("dscrun", "-n", "2", "tru")
    assert "true" in complete("dscrun", "-n", "2", "--", "tru")
    assert complete("dscrun", "-n", "2", "--", "python3", "tra", folder=tmp_path) == {"train.py"}
    assert complete("dscrun", "--explain", "python3", "tra", folder=tmp_path) == {"train.py"}


def test_offered_schedules_exist():
    for kind in complete("dscctl", "schedule", "--kind", ""):
        words = ["--stages", "2", "--micro-batches", "4"] + (["--chunks", "2"] if kind == "looped_bfs" else [])
        assert ask("dscctl", "schedule", "--kind", kind, *words, "--check") == "the schedule can be run\n"


# ---- zsh ---------------------------------------------------------------------------------------------------------------


@each_command
def test_zsh_knows_every_option(program, path):
    text = ask(program, "--help-as", "zsh")
    body = re.search(rf"^_{'_'.join([program, *path])}\(\) {{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL)[1]
    names = re.findall(r"^    '(?:\*|\([^)]*\))(-[\w-]+?)[+=]?\[", body, re.MULTILINE)
    assert set(names) == options_of(program, path)
    assert text.startswith(f"#compdef {program}\n")


def test_zsh_completes_arguments():
    text = ask("dscctl", "--help-as", "zsh")
    assert "    '::OP:(all_reduce broadcast " in text  # '::': OP is optional
    assert "    '*:PATH:_files'" in text and ":DIR:_files -/'" in text
    assert "    '(-)1:command:_command_names -e'" in ask("dscrun", "--help-as", "zsh")


@each_program
def test_zsh_takes_the_completion(program, tmp_path):
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    (tmp_path / "file").write_text(ask(program, "--help-as", "zsh"))
    done = subprocess.run(["zsh", "-nf", str(tmp_path / "file")], capture_output=True, text=True, timeout=launch.LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")


if __name__ == "__main__":
    launch.main(__file__)
