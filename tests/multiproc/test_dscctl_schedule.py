"""dscctl schedule: prints, draws, converts and checks pipeline schedules."""

import json
import xml.etree.ElementTree as ElementTree

import launch
import pytest
from test_dscctl import dscctl


def schedule(*args):
    return dscctl("schedule", *args)


def test_a_readable_grid():
    result = schedule("--kind", "zb_v", "--stages", "4", "--micro-batches", "8")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "zb_v: 4 stages x 2 chunks, 8 micro-batches"
    assert lines[1].startswith("0 |F0 F1 F2 F3 F4 F5 F6 f0 i0 w0") and lines[4].startswith("3 |.........F0 f0 F1 f1")
    assert "makespan 51, idle 5.9 %" in lines[5] and len(lines) == 6


def test_costs():
    result = schedule("-k", "1f1b", "-s", "2", "-m", "3", "--forward", "1,3", "--comm", "0.5")
    assert "makespan 19" in result.stdout
    result = schedule("-k", "1f1b", "-s", "2", "--forward", "1,2,3")
    assert result.returncode == 1 and "--forward has 3 values, expected 1 or 2: one for each part" in result.stderr


def test_the_best_order():
    result = schedule("-k", "auto", "-s", "2", "-m", "3", "--forward", "1,2", "--activations", "2")
    assert result.returncode == 0 and ": 2 stages, 3 micro-batches\n" in result.stdout
    assert "which no order beats" in result.stderr


def test_what_is_too_large_to_draw_has_a_price():
    result = schedule("-s", "512", "-m", "4096")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("makespan 13821, idle 11.0918 %") and "too large for a picture" in result.stdout


def test_several_kinds():
    result = schedule("--kind", "gpipe", "--kind", "1f1b")
    assert result.returncode == 0 and result.stdout.count("makespan 33") == 2
    result = schedule("--kind", "gpipe", "--kind", "1f1b", "--svg", "x.svg")
    assert result.returncode == 1 and "--kind is given 2 times, expected one" in result.stderr


def test_files(tmp_path):
    svg, trace = tmp_path / "s.svg", tmp_path / "t.json"
    result = schedule("-k", "dualpipe_v", "--svg", str(svg), "--perfetto", str(trace))
    assert result.returncode == 0 and result.stdout == ""
    assert result.stderr.splitlines() == [f"wrote {svg}", f"wrote {trace}"]
    ElementTree.parse(svg)
    assert any(it["ph"] == "X" for it in json.loads(trace.read_text())["traceEvents"])
    result = schedule("--svg", str(tmp_path / "none" / "s.svg"))
    assert result.returncode == 1 and "cannot be written" in result.stderr


@pytest.mark.parametrize("format", ["pytorch", "pytorch_comms", "json"])
def test_there_and_back(tmp_path, format):
    text = schedule("-k", "zb_v", "--write", format).stdout
    file = tmp_path / "schedule"
    file.write_text(text)
    assert schedule("--from", str(file), "--format", format, "--write", format).stdout == text
    assert schedule("--from", str(file), "--format", format, "--check").stdout == "it can be run\n"


@pytest.mark.parametrize(
    "args, code, words",
    [
        (["--kind", "zbv"], 1, 'did you mean "zb_v"'),
        (["--kid", "zb_v"], 2, "did you mean '--kind'"),
        (["--stages", "0"], 1, "stages is 0, expected 1 or more"),
        (["--kind", "zb_v", "--chunks", "3"], 1, "chunks is 3, expected 2"),
        (["--kind", "interleaved_1f1b", "--micro-batches", "9"], 1, "--micro-batches is 9, expected what can be cut into equal groups of 4 (stages) or a few more"),
        (["--from", "/nowhere"], 1, "/nowhere: cannot be read"),
        (["--from", "/nowhere", "--stages", "2"], 2, "excludes"),
        (["--write", "csv"], 2, "csv"),
        (["--forward", "-1"], 2, "--forward: expected a number of 0 or more such as 12 or 0.5, got '-1'"),
    ],
)
def test_refusals(args, code, words):
    result = schedule(*args)
    assert result.returncode == code and words in result.stderr and result.stdout == ""


def test_a_wrong_file_is_told_with_its_place(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("0F0,0B0\n1F0,1X0\n")
    result = schedule("--from", str(file))
    assert result.returncode == 1
    assert f"{file}: line 2, column 6: \"X0\", expected F, B, I or W" in result.stderr


if __name__ == "__main__":
    launch.main(__file__)
