"""The pictures of the guides can be drawn again, and show what the ranks of real jobs did."""

import pathlib
import re
import subprocess
import sys

import pytest
import tool

PROJECT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 150
sys.path.insert(0, str(PROJECT / "tools" / "lint"))
import pictures  # noqa: E402

NAMES = {"overlap", "zero", "ring", "mapping", "trace_timeline"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Returns name -> text of each picture."""
    folder = tmp_path_factory.mktemp("pictures")
    subprocess.run([sys.executable, str(PROJECT / "tools/pictures/draw.py"), str(folder)], check=True, timeout=LIMIT_S)
    return {file.stem: file.read_text() for file in folder.glob("*.svg")}


def test_all_are_drawn_and_kept(drawn):
    assert set(drawn) == NAMES
    assert NAMES <= {file.stem for file in (PROJECT / "docs").glob("*.svg")}


def test_they_can_be_read(drawn):
    assert {name: pictures.problems(text) for name, text in drawn.items()} == {name: [] for name in NAMES}


def test_a_bad_one_is_found():
    small = '<svg><rect width="9" height="9" fill="#ffffff"/><text font-size="9">a</text></svg>'
    assert pictures.problems(small) == ["has text with letters of 9 px, expected at least 11 px"]
    # two problems: the SVG is not closed, and it has no background
    assert len(pictures.problems('<svg><text font-size="12">a</text>')) == 2
    assert "bytes" in pictures.problems(small.replace(">a<", f">{'a' * (60 << 10)}<"))[0]


def test_ring_passes_every_block(drawn):
    """Each row has the blocks of all ranks at all steps. A block is never at two places at the same time."""
    blocks = re.findall(r">block (\d)<", drawn["ring"])
    rows = [blocks[i : i + 4] for i in range(0, 16, 4)]
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert all(sorted(line) == ["0", "1", "2", "3"] for line in [*rows, *zip(*rows)])


def test_each_stage_of_zero_takes_less(drawn):
    shares = [int(share) for share in re.findall(r">(\d+)% of a replica<", drawn["zero"])]
    assert shares[0] == 100 and shares == sorted(set(shares), reverse=True) and len(shares) == 4
    kept = re.findall(r"rank 0, ZeRO 3: (\d+) bytes of parameters", drawn["zero"])
    assert [4 * int(bytes_) for bytes_ in kept] == [int(re.findall(r"rank 0, replicas: (\d+) bytes of parameters", drawn["zero"])[0])]


def test_timeline_has_all_ranks(drawn):
    assert re.findall(r">rank (\d)<", drawn["trace_timeline"]) == ["0", "1", "2", "3"]
    assert "wait: " in drawn["trace_timeline"] and "move: " in drawn["trace_timeline"]


if __name__ == "__main__":
    tool.main(__file__, "numpy")
