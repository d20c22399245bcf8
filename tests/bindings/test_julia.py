"""Messages of the library use the names of the Julia package."""

import re
import subprocess

import pytest
from conftest import ROOT
from library_messages import messages

SOURCES = ROOT / "bindings" / "julia" / "LibDSC" / "src"
# Functions of the raw layer are called by their C names.
WORDS_OF_C = re.compile(r"->|\bNULL\b|(?<!\bRaw\.)\bdsc_\w+|\bn_[a-z_]+ is\b|_ms\b")
NOT_IN_JULIA = {"bits of dsc_source, or 0 for all"}  # `sources` is no option of init()
# Functions that cannot fail with a message, or whose errors the package handles.
NO_MESSAGE = re.compile(r"_destroy$|_init$|^dsc_work_|^dsc_last_error_|^dsc_world$|^dsc_comm_progress")


def run_julia(program, lines):
    """Runs a program that prints one line for each line of its input. `lines` must not contain line breaks."""
    command = ["julia", "--startup-file=no", "-O0", "-e", f"using LibDSC; for line in eachline() println({program}) end"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_no_message_shows_words_of_c():
    found = [text for _, text in messages()]
    assert len(found) > 1000 and any(WORDS_OF_C.search(text) for text in found)
    said = run_julia("LibDSC.in_julia(LibDSC.Raw.DSC_ERR_INVALID_ARG, line)", found)
    assert len(said) == len(found)
    assert [text for text in said if WORDS_OF_C.search(text) and text not in NOT_IN_JULIA] == []


def test_functions_that_the_package_calls_have_names_of_julia():
    texts = [path.read_text() for path in SOURCES.glob("*.jl") if path.name != "raw.jl"]
    called = sorted({name for text in texts for name in re.findall(r"\bRaw\.(dsc_\w+)", text) if not name.endswith("_t")})
    assert len(called) > 80
    said = dict(zip(called, run_julia("LibDSC.function_word(line)", called)))
    assert [name for name, word in said.items() if word.startswith("Raw.") and not NO_MESSAGE.search(name)] == []


@pytest.mark.parametrize(
    "message, said",
    [
        ("dsc_send: peer is 5, expected 0 to 0", "send: peer is 5, expected 0, the only one"),
        ("dsc_comm_create_group: ranks[0] is 4", "group: ranks[1] is 4"),
        ("dsc_x: no gradient for fc.weight (index 3)", "Raw.dsc_x: no gradient for fc.weight (index 4)"),
        (
            "dsc_bucket_reducer_create: options->average is 9, expected 1 (pre), 2 (post) or 3 (none)",
            "Reducer: average is 9, expected :pre, :post or :none",
        ),
        (
            "average is 1 on rank 0 and 2 on rank 1: call dsc_comm_split() or dsc_batch_end()",
            "average is :pre on rank 0 and :post on rank 1: call split() or Raw.dsc_batch_end()",
        ),
    ],
)
def test_wrong_arguments_are_named_as_in_julia(message, said):
    assert run_julia("LibDSC.in_julia(LibDSC.Raw.DSC_ERR_INVALID_ARG, line)", [message]) == [said]
