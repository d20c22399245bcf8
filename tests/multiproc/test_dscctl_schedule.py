"""dscctl schedule: prints, draws, converts and checks pipeline schedules."""

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import time
import xml.etree.ElementTree as ElementTree

import launch
import pytest
from test_dscctl import dscctl, own_environment


def schedule(*args):
    return dscctl("schedule", *args)


def test_a_readable_grid():
    result = schedule("--kind", "zb_v", "--stages", "4", "--micro-batches", "8")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "zb_v: 4 stages x 2 chunks, 8 micro-batches"
    assert lines[1].startswith("0 |F0 F1 F2 F3 F4 F5 F6 f0 i0 w0") and lines[4].startswith("3 |.........F0 f0 F1 f1")
    assert "makespan 25.5, idle 5.9 %" in lines[5] and len(lines) == 6


def test_costs():
    result = schedule("-k", "1f1b", "-s", "2", "-m", "3", "--forward", "1,3", "--comm", "0.5")
    assert "makespan 19" in result.stdout
    result = schedule("-k", "1f1b", "-s", "2", "--forward", "1,2,3")
    assert result.returncode == 2 and "--forward has 3 values, expected 1 or 2: one for each part" in result.stderr


def test_the_best_order():
    result = schedule("-k", "auto", "-s", "2", "-m", "3", "--forward", "1,2", "--activations", "2")
    assert result.returncode == 0 and ": 2 stages, 3 micro-batches\n" in result.stdout
    assert "and no order is faster" in result.stderr


def test_what_is_too_large_to_draw_has_a_price():
    result = schedule("-s", "512", "-m", "4096")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("makespan 13821, idle 11.0918 %") and "too large for a picture" in result.stdout


def test_several_kinds():
    result = schedule("--kind", "gpipe", "--kind", "1f1b")
    assert result.returncode == 0 and result.stdout.count("makespan 33") == 2
    result = schedule("--kind", "gpipe", "--kind", "1f1b", "--svg", "x.svg")
    assert result.returncode == 2 and "--kind is given 2 times, expected one" in result.stderr


def test_a_table_compares_several():
    costs = ["--activation-bytes", "1MB", "--static-bytes", "10MB,20MB", "--message-bytes", "1KB", "--bandwidth", "1000", "--latency", "0.5"]
    result = schedule("-s", "2", "-m", "4", "--kind", "1f1b", "--kind", "zb_h1", *costs)
    *_, head, plain, zero_bubble = result.stdout.splitlines()
    assert head.split() == "schedule makespan idle idle in its own window activations bytes".split()
    assert plain.split() == ["1f1b", "21", "42.9", "%", "9", "2", "21", "MB"]
    assert zero_bubble.split() == ["zb_h1", "19", "36.8", "%", "7", "2", "22", "MB"]


def test_different_chunks_are_compared_by_whole_stages():
    """The schedules must do the same work, as documented. With chunks of cost 1 zb_v would take 51."""
    result = schedule("--kind", "1f1b", "--kind", "zb_v", "--activation-bytes", "1MB")
    *_, title, _, plain, v_shaped = result.stdout.splitlines()
    assert title == "costs and activations are for a whole stage, and its chunks share them evenly"
    assert plain.split() == ["1f1b", "33", "27.3", "%", "9", "4", "4", "MB"]
    assert v_shaped.split() == ["zb_v", "x", "2", "chunks", "25.5", "5.9", "%", "0", "4", "4", "MB"]


def makespans(kinds, *costs):
    """Returns the makespan of each schedule alone. The table that compares the schedules must show the same."""
    alone = [float(re.search(r"makespan ([\d.]+)", schedule("--kind", kind, *costs).stdout)[1]) for kind in kinds]
    together = schedule(*(word for kind in kinds for word in ("--kind", kind)), *costs)
    assert together.returncode == 0, together.stderr
    assert [float(line.split()[-7 if line.split()[-1].endswith("B") else -6]) for line in together.stdout.splitlines()[-len(kinds) :]] == alone
    return alone


def test_costs_are_those_of_a_stage_for_one_schedule_and_for_several():
    kinds = ("1f1b", "zb_v", "interleaved_1f1b")
    assert makespans(kinds) == [33, 25.5, 28.5]
    assert makespans(kinds, "--forward", "2", "--backward-input", "2", "--backward-weight", "2") == [66, 51, 57]
    each = [word for name in ("--forward", "--backward-input", "--backward-weight") for word in (name, "4x1")]
    assert makespans(kinds, *each) == [33, 25.5, 28.5]


def test_a_value_for_each_stage_goes_to_the_parts_of_the_stage():
    """With the V placement stage 0 has the first and the last part, with a loop the first and the fifth."""
    for kind, parts in (("zb_v", "1,2,3,4,4,3,2,1"), ("interleaved_1f1b", "1,2,3,4,1,2,3,4")):
        of_stages, of_parts = (schedule("--kind", kind, "--forward", values).stdout for values in ("2,4,6,8", parts))
        assert of_stages == of_parts and "makespan" in of_stages
    result = schedule("--kind", "zb_v", "--forward", "1,2,3")
    assert (result.returncode, result.stdout) == (2, "")
    assert "--forward has 3 values, expected 1, 4 (one for each stage) or 8: one for each part of the model" in result.stderr
    result = schedule("--kind", "auto", "--chunks", "2", "--forward", "1,2,3,4")
    assert result.returncode == 2 and "expected 1 value or 8, because auto chooses which parts of the model a stage has" in result.stderr
    result = schedule("--kind", "auto", "-s", "2", "--chunks", "2", "-m", "2")
    assert result.returncode == 0 and "makespan 6" in result.stdout  # 2 x 3, as with two parts of half the cost


def test_a_file_without_end_is_refused(tmp_path):
    for command in (["schedule", "--from"], ["plan", "--devices", "1", "--batch", "1", "--layers"], ["schedule", "--network"]):
        result = dscctl(*command, "/dev/zero")
        assert (result.returncode, result.stdout) == (1 if "--from" in command else 2, "")
        assert "/dev/zero: has more than 256 MiB, expected less for input that is not a regular file" in result.stderr


def test_units_of_rates():
    """A message has 8 KB, times are in microseconds."""
    asked = ("-s", "2", "-m", "3", "--message-bytes", "8KB", "--bandwidth")
    assert schedule(*asked, "8Gb/s").stdout == schedule(*asked, "1GB/s").stdout == schedule(*asked, "1000").stdout
    assert schedule(*asked, "8Gbit/s").stdout != schedule(*asked, "8GB/s").stdout


def test_times_with_all_digits():
    result = schedule("-s", "2", "-m", "1", "--forward", "2000001", "--critical-path")
    assert result.stdout.splitlines()[5].split() == ["forward", "0", "2000001", "0", "0", "0"]


def test_weights_that_leave_no_room():
    result = schedule("-k", "auto", "-s", "2", "-m", "3", "--static-bytes", "3GB,2GB", "--memory", "1GB")
    assert result.returncode == 1 and "a stage has 3e+09 bytes of --static-bytes, expected at most 1e+09" in result.stderr


@pytest.mark.parametrize("format", ["pytorch", "json"])
def test_a_byte_order_mark_is_skipped(tmp_path, format):
    file = tmp_path / "schedule"
    text = schedule("--write", format).stdout
    file.write_text("\ufeff" + text, encoding="utf-8")
    assert schedule("--from", str(file), "--write", format).stdout == text


def test_reductions():
    """The last backward pass of stage 0 runs from 7 to 9.

    Buckets are complete at 7 2/3, 8 1/3 and 9, and take 3, 3 and 2.
    """
    costs = ["--gradient-bytes", "10", "--bucket", "4", "--reduce-latency", "1", "--reduce-bandwidth", "2"]
    result = schedule("-s", "2", "-m", "2", *costs)
    assert "makespan 15.6667" in result.stdout


def test_the_critical_path():
    lines = schedule("-s", "2", "-m", "1", "--critical-path").stdout.splitlines()
    assert lines[4].split() == "critical path start end stage chunk micro-batch".split()
    path = [line.split() for line in lines[5:]]
    assert path == [["forward", "0", "1", "0", "0", "0"], ["forward", "1", "2", "1", "0", "0"], ["backward", "2", "4", "1", "0", "0"], ["backward", "4", "6", "0", "0", "0"]]


@pytest.mark.parametrize("width", [1, 7, 40, 500])
def test_a_picture_of_some_width(width):
    whole, cut = (schedule("-k", "zb_v", *args).stdout.splitlines() for args in ([], ["--width", str(width)]))
    rows = ["".join(line.split("|")[1] for line in cut if line.startswith(f"{stage} |")) for stage in range(4)]
    assert rows == [line.split("|")[1] for line in whole[1:5]]
    assert max(len(line.split("|")[1]) for line in cut if "|" in line) <= width
    assert (cut[0], cut[-1]) == (whole[0], whole[-1])


@pytest.mark.parametrize("terminal", ["dumb", "xterm"])
def test_on_a_terminal_no_line_is_wider(terminal):
    """With 16 stages and 64 micro-batches a line had 965 characters."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    environment = {**own_environment(), "TERM": terminal}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen([launch.DSCCTL, "schedule", "-s", "16", "-m", "64"], stdout=theirs, stderr=subprocess.PIPE, env=environment)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # reading a terminal whose programs have ended raises this error
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert process.communicate(timeout=launch.LIMIT_S)[1] == b"" and process.returncode == 0
    assert (b"\033[" in shown) == (terminal == "xterm")
    lines = re.sub(r"\033\[[\d;]*m", "", shown.decode()).splitlines()
    assert 85 <= max(len(line) for line in lines if "|" in line) <= 100  # the last piece ends with "holds 8"
    whole = schedule("-s", "16", "-m", "64").stdout.splitlines()[1].split("|")[1]
    shown = "".join(line.split("|")[1] for line in lines if line.startswith(" 0 |"))
    # on a terminal with colors, colored boxes replace '-' and '.'
    assert shown == (whole if terminal == "dumb" else re.sub("[-.]", " ", whole))


def test_lists_of_costs():
    expected = schedule("--forward", "2,2,2,1").stdout
    assert schedule("--forward", "3x2,1").stdout == expected and "makespan" in expected


def test_an_order_is_looked_for_no_longer_than_until_it_is_the_best():
    began = time.monotonic()
    result = schedule("-k", "auto", "-s", "64", "-m", "500", "--memory", "1GB", "--activation-bytes", "1MB")
    assert "makespan 1563, and no order is faster" in result.stderr
    assert time.monotonic() - began < (30 if "SANITIZED" in os.environ else 4)


def test_files(tmp_path):
    svg, trace = tmp_path / "s.svg", tmp_path / "t.json"
    result = schedule("-k", "dualpipe_v", "--svg", str(svg), "--perfetto", str(trace))
    assert result.returncode == 0 and result.stdout == ""
    assert result.stderr.splitlines() == [f"wrote {svg}", f"wrote {trace}"]
    texts = [it.text for it in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert {"forward", "backward", "backward, inputs", "backward, weights", "lighter: second chunk", "time", "25"} <= set(texts)
    assert any(it["ph"] == "X" for it in json.loads(trace.read_text())["traceEvents"])
    result = schedule("--svg", str(tmp_path / "none" / "s.svg"))
    assert result.returncode == 1 and "cannot be written" in result.stderr


SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("args", [[], ["-s", "16", "-m", "64"], ["-s", "8", "-m", "32", "-k", "interleaved_1f1b", "-c", "4"]])
def test_a_drawing_fits_its_page(tmp_path, args):
    """The drawing is as wide as the page and not wider. It once was 5,556 pixels wide."""
    file = tmp_path / "s.svg"
    assert schedule(*args, "--svg", str(file)).returncode == 0
    root = ElementTree.parse(file).getroot()
    *_, width, height = map(float, root.get("viewBox").split())
    assert root.get("width") == "100%" and root.get("height") is None and 600 < width <= 1800
    assert root.get("style") == f"max-width:{width:.2f}px"
    right = [float(it.get("x")) + float(it.get("width")) for it in root.iter(f"{SVG}rect")]
    assert max(right) <= width


def test_labels_of_a_large_drawing_can_be_read(tmp_path):
    """All 2,048 operations have a label inside their box. The label of a narrow box is rotated."""
    file = tmp_path / "s.svg"
    schedule("-s", "16", "-m", "64", "--svg", str(file))
    groups = [it for it in ElementTree.parse(file).iter(f"{SVG}g") if it.find(f"{SVG}rect") is not None]
    assert len(groups) == 2 * 16 * 64
    for group in groups:
        box, label = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
        font = float(label.get("font-size"))
        assert 5.5 <= font <= float(box.get("width")) and "rotate(-90)" in label.get("transform")
        assert 0.55 * font * len(label.text) <= float(box.get("height"))


@pytest.mark.parametrize("format", ["pytorch", "pytorch_comms", "json"])
def test_there_and_back(tmp_path, format):
    text = schedule("-k", "zb_v", "--write", format).stdout
    file = tmp_path / "schedule"
    file.write_text(text)
    assert schedule("--from", str(file), "--format", format, "--write", format).stdout == text
    assert schedule("--from", str(file), "--format", format, "--check").stdout == "the schedule can be run\n"


@pytest.mark.parametrize("format", ["pytorch", "pytorch_comms", "deepspeed", "megatron", "json"])
def test_the_format_is_guessed_and_stdin_is_read(format):
    kind = "deepspeed_train" if format == "deepspeed" else "1f1b"
    text = schedule("-k", kind, "--write", format).stdout
    command = [launch.DSCCTL, "schedule", "--from", "-", "--write", format]
    result = subprocess.run(command, input=text, env=own_environment(), capture_output=True, text=True, timeout=30)
    assert (result.returncode, result.stderr) == (0, "") and result.stdout == text


@pytest.mark.parametrize(
    "args, code, words",
    [
        (["--kind", "zbv"], 1, 'did you mean "zb_v"'),
        (["--kind", "autoo"], 1, 'did you mean "auto"? Known schedules: auto, '),
        (["--kid", "zb_v"], 2, "did you mean '--kind'"),
        (["--stages", "0"], 1, "stages is 0, expected 1 or more"),
        (["--kind", "zb_v", "--chunks", "3"], 1, "chunks is 3, expected 2"),
        (["--kind", "interleaved_1f1b", "--micro-batches", "9"], 1, "--micro-batches is 9, expected a number that splits into equal groups of 4 (the number of stages) or slightly more"),
        (["--from", "/nowhere"], 1, "/nowhere: cannot be opened"),
        (["--from", "/nowhere", "--stages", "2"], 2, "excludes"),
        (["--write", "csv"], 2, "csv"),
        (["--stages", "1.5"], 2, "--stages: expected a whole number, got '1.5'"),
        (["--forward", "1,a"], 2, "--forward: expected a number of 0 or more such as 12 or 0.5, got 'a'"),
        (["--comm", "fast"], 2, "--comm: expected a number"),
        (["--bandwidth", "fast"], 2, "--bandwidth: expected bytes per unit of time such as 25000, or 25GB/s"),
        (["--static-bytes", "1XB"], 2, "--static-bytes: expected bytes such as 80GB"),
        (["--forward", "999999999x1"], 2, "--forward: expected at most 262144 values"),
        (["--activations", "2"], 2, "--activations is a limit for --kind auto, but --kind auto is not given"),
        (["--memory", "2GB"], 2, "--memory is a limit for --kind auto, but --kind auto is not given"),
        (["--write", "json", "--check"], 2, "expected only one of them"),
        (["--activations", "0"], 2, "--activations: expected 1 or more, got 0"),
        (["--memory", "0", "--kind", "auto"], 2, "--memory: expected more than 0 bytes, got '0'"),
        (["--memory", "80G", "--kind", "auto"], 2, "--memory: expected bytes such as 80GB (1000 MB)"),
        (["--bandwidth", "80G/s"], 2, "--bandwidth: expected bytes per unit of time such as 25000, or 25GB/s or 100Gb/s"),
        (["--overlap", "5"], 2, "--overlap: expected a number above 0 and at most 1, such as 0.8, got '5'"),
        (["--overlap", "0"], 2, "--overlap: expected a number above 0"),
        (["--svg", ""], 2, "--svg"),
        (["--html", "-"], 2, "--html: expected a file to write, got '-'"),
        (["--width", "80", "--check"], 2, "--width applies to the picture"),
        (["--width", "0"], 2, "--width"),
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
