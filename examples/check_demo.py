#!/usr/bin/env python3
"""Checks train_pipeline.py without training: its messages about wrong options, and the drawing of timelines.

    check_demo.py DSCRUN
"""

import io
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

PROGRAMS = pathlib.Path(__file__).resolve().parent / "python"
sys.path.insert(0, str(PROGRAMS))

import libdsc as dsc
import pipeline_idle
import pipeline_options
import timeline
import timeline_svg
from timeline import Box

SCHEDULES = (
    "deepspeed_train gpipe 1f1b interleaved_1f1b looped_bfs zb_h1 zb_h2 zb_v v_half v_min dualpipe_v".split()
)

# Wrong options, and a text that the message must contain; 4 ranks.
REFUSED = {
    ("--layout", "3x1"): "--layout 3x1 is for 3 ranks; this job has 4, for which there are 1x4, 2x2, 4x1",
    ("--layout", "2*2"): "argument --layout: expected REPLICASxSTAGES such as 2x2, 4x1 or 1x4, got '2*2'",
    ("--layout", "1x4", "--hidden", "20,20"): "4 stages need 4 layers or more, but the network has only 3 layers",
    ("--schedule", "zb_v", "--hidden", "20,20"): "2 stages x 2 chunks need 4 layers or more, but the network has only 3",
    ("--schedule", "zb_v", "--hidden", "9,9,8"): "--hidden 9,9,8: with several chunks all parts pass on the same shape",
    ("--schedule", "zb_v", "--chunks", "3"): 'chunks is 3, expected 2 for schedule "zb_v"',
    ("--schedule", "dualpipe_v", "--micro-batches", "3"): "micro_batches is 3, expected 4 or more (2 x stages)",
    ("--batch", "90"): "--batch 90 cannot be divided into 8 micro-batches (2 replicas of 4)",
    ("--batch", "1600"): "--batch 1600 is more than the 1437 training images",
    ("--schedule", "1fb1"): 'unknown schedule "1fb1"; did you mean "1f1b"? Expected one of: ',
    ("--schedule", "deepspeed_inference"): "has no backward pass: it does the tests here, and cannot train",
    ("--schedule", "data_parallel"): "is for one stage per replica; --layout 2x2 has 2",
    ("--timeline", "/"): "argument --timeline: expected the name of a file that can be written, got '/'",
}

# Two replicas of two stages, two micro-batches: 12 boxes for passes, then reduce and update on every rank.
BOXES = [
    [
        *(Box("forward", m, m + stage, m + stage + 0.9) for m in range(2)),
        *(Box("backward", m, 3 + 2 * m + 2 * (1 - stage), 4.9 + 2 * m + 2 * (1 - stage)) for m in range(2)),
        Box("reduce", -1, 9.0, 9.5 + 0.1 * replica),
        Box("update", -1, 9.8, 10.0),
    ]
    for replica in range(2)
    for stage in range(2)
]
GROUPS = [(f"replica {r}", [(2 * r + s, f"stage {s}, rank {2 * r + s}") for s in range(2)]) for r in range(2)]


class Terminal(io.TextIOWrapper):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


def stream(kind=io.TextIOWrapper, encoding="utf-8"):
    return kind(io.BytesIO(), encoding=encoding)


def check_halves_in_text():
    """Halves of a backward pass look different from each other and from a whole pass. The legend shows them only if
    they occur.
    """
    boxes = [[Box("forward", 0, 0.0, 3.0), Box("backward_input", 0, 3.0, 6.0), Box("backward_weight", 0, 6.0, 9.0)]]
    lines = timeline.lines(boxes, [("replica 0", [(0, "stage 0")])], "title", stream=stream(), environment={})
    assert re.fullmatch(r"replica 0  stage 0  0░+▒0▒+█0█+", lines[1]), lines[1]
    assert "backward input" in lines[-1] and "backward weight" in lines[-1] and "reduce" not in lines[-1]


def check_places():
    """Every part of the model is in exactly one place, also in schedules with a zigzag."""
    for name in SCHEDULES:
        schedule = dsc.PipeSchedule(name, 3, None, 6)
        places = [pipeline_options.part_of(schedule, s, c) for s in range(3) for c in range(schedule.chunks)]
        assert sorted(places) == list(range(3 * schedule.chunks)), (name, places)


def one_by_one(boxes, schedule, stage, forward):
    """Returns a row in which two overlapped passes follow each other, as in a real run. `forward` has a time per part.
    """
    row = list(boxes)
    for k, (first, second) in enumerate(zip(boxes, boxes[1:])):
        if first.start_ms == second.start_ms:
            work = forward[pipeline_options.part_of(schedule, stage, first.chunk)] if first.kind == "forward" else 5.5
            middle = first.start_ms + work
            row[k], row[k + 1] = first._replace(end_ms=middle), second._replace(start_ms=middle)
    return row


def check_idle():
    """For boxes with the simulator's times, the measured idle time is the same as the simulator's."""
    for name in SCHEDULES:
        schedule = dsc.PipeSchedule(name, 4, None, 8)
        parts = range(4 * schedule.chunks)
        times = {"forward": [2.0 + p % 3 for p in parts], "backward_input": [3.0] * len(parts)}
        report = dsc.simulate_pipeline(schedule, **times, backward_weight=[2.5] * len(parts), timeline=True)
        rows = [
            [Box(it.op, it.micro_batch, it.start, it.end, it.chunk) for it in report.timeline if it.stage == stage]
            for stage in range(4)
        ]
        rows = [one_by_one(row, schedule, stage, times["forward"]) for stage, row in enumerate(rows)]
        for shares, expected in zip(pipeline_idle.measured(rows), report.idle):
            assert abs(shares.step - expected / report.makespan) < 1e-9, (name, shares, expected)
        for shares, again in zip(pipeline_idle.measured(rows), pipeline_idle.simulated(rows, schedule)):
            assert max(abs(a - b) for a, b in zip(shares, again)) < 1e-9, (name, shares, again)
        lines = pipeline_idle.lines(rows, pipeline_options.Layout(1, 4), schedule)
        assert len(lines) in (7, 8) and max(map(len, lines)) <= 96, lines
        assert all(re.fullmatch(r"      0 +\d( +\d+\.\d%){4}", line) for line in lines[3:7]), lines


def check_refusals():
    """Every wrong option is explained once, all ranks end with code 2, and nothing is trained."""
    for options, answer in REFUSED.items():
        command = [sys.argv[1], "-n", "4", "--timeout", "30", "--", sys.executable, str(PROGRAMS / "train_pipeline.py")]
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)
        told = [line for line in done.stderr.splitlines() if answer in line]
        assert done.returncode == 2, (options, done.returncode, done.stderr)
        assert len(told) == 1 and "train_pipeline" in told[0], (options, done.stderr)
        assert "epoch" not in done.stdout, (options, done.stdout)


def check_text():
    """There is a row per rank, in 96 columns, without escape codes. The order of its boxes is that of their times."""
    lines = timeline.lines(BOXES, GROUPS, "title", stream=stream(), environment={})
    assert lines[0] == "title" and len(lines) == 1 + 4 + 2
    assert max(map(len, lines)) <= 96 and not any("\x1b" in line for line in lines)
    labels = ["replica 0  stage 0, rank 0  ", "           stage 1, rank 1  "]
    assert [line[:28] for line in lines[1:3]] == labels and lines[3].startswith("replica 1  stage 0, rank 2")
    assert re.fullmatch(r"0░+·*1░+·+▓0▓+·?▓1▓+·*R=+·*U=*", lines[1][28:]), lines[1]
    assert re.fullmatch(r"·+0░+·*1░+▓0▓+·?▓1▓+·+R=+·*U=*", lines[2][28:]), lines[2]
    assert all(word in lines[-1] for word in ("forward", "backward", "reduce", "update", "waiting"))
    assert lines[-2].rstrip().endswith("ms") and "|0 " in lines[-2]


def check_text_in_other_terminals():
    """Other terminals get ASCII. Colors appear only on a terminal, and not if NO_COLOR is set."""
    ascii_lines = timeline.lines(BOXES, GROUPS, "title", stream=stream(encoding="ascii"), environment={})
    assert "".join(ascii_lines).isascii() and "#0##" in ascii_lines[1]
    plain = timeline.lines(BOXES, GROUPS, "title", stream=stream(), environment={})
    colored = timeline.lines(BOXES, GROUPS, "title", stream=stream(Terminal), environment={})
    assert "\x1b[" in colored[1]
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in colored] == plain
    assert timeline.lines(BOXES, GROUPS, "title", stream=stream(Terminal), environment={"NO_COLOR": "1"}) == plain
    assert timeline.lines(BOXES, GROUPS, "title", stream=stream(), environment={"FORCE_COLOR": "1"}) == colored


def check_many_short_boxes():
    """A row with more boxes than columns still has exactly the given width."""
    boxes = [[Box("forward", m, float(m), m + 0.5) for m in range(200)]]
    lines = timeline.lines(boxes, [("replica 0", [(0, "stage 0")])], "title", stream=stream(), environment={})
    assert re.fullmatch(r"replica 0  stage 0  [0-9]{76}", lines[1]), lines[1]


def check_picture():
    """The picture is well-formed. It has a box for each pass, with its time as a tooltip, and the labels."""
    text = timeline_svg.picture(BOXES, GROUPS, "Two & two", "<4 micro-batches>")
    root = xml.etree.ElementTree.fromstring(text)
    name = "{http://www.w3.org/2000/svg}"
    titles = [found.text for found in root.iter(name + "title")]
    assert len(titles) == 24 and "backward 1: 7.000 to 8.900 ms" in titles
    texts = [found.text for found in root.iter(name + "text")]
    for wanted in ("Two & two", "<4 micro-batches>", "replica 1", "stage 1, rank 3", "milliseconds", "waiting"):
        assert wanted in texts, wanted
    assert texts.count("1") >= 8  # the micro-batch inside its boxes
    left, right = 0.0, float(root.get("width"))
    for box in root.iter(name + "rect"):
        assert left <= float(box.get("x", 0)) <= float(box.get("x", 0)) + float(box.get("width")) <= right + 0.01


def check_picture_is_written():
    """One rank really writes the file: it is where --timeline says, and the program prints its name."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "a timeline.svg"
        options = ["--hidden", "20", "--epochs", "1", "--schedule", "gpipe", "--timeline", str(file)]
        command = [sys.executable, str(PROGRAMS / "train_pipeline.py"), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert f"the same as a picture: {file}" in done.stdout, done.stdout + done.stderr
        xml.etree.ElementTree.parse(file)


def main():
    for check in (
        check_text,
        check_text_in_other_terminals,
        check_many_short_boxes,
        check_halves_in_text,
        check_picture,
        check_places,
        check_idle,
        check_picture_is_written,
        check_refusals,
    ):
        check()
        print(f"{check.__name__}: passed")


if __name__ == "__main__":
    sys.exit(main())
