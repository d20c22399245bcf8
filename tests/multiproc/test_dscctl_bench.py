"""dscctl bench: every operation runs, the data path is shown with its reason, and errors of usage say what is
expected."""

import fcntl
import functools
import json
import os
import pty
import re
import resource
import struct
import subprocess
import termios
from xml.etree import ElementTree

import launch
import pytest

OPERATIONS = "all_reduce broadcast all_gather reduce_scatter all_to_all reduce gather scatter send_recv barrier".split()
QUICK = ("--budget-ms", "1")
STEP = r"dscctl: 2 ranks, (about \d+ (s|min) left|almost done): "


def bench(*args, limit=None, **environment):
    return subprocess.run(
        [launch.DSCCTL, "bench", *args],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        preexec_fn=limit,
    )


def measured(*args, **environment):
    result = bench(*args, *QUICK, "--json", **environment)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def algorithms(report):
    return {(row["ranks"], row["bytes"], row["engine"]): row["algorithm"] for row in report["rows"]}


@pytest.mark.parametrize("op", OPERATIONS)
def test_every_operation_says_how_it_moved_data(op):
    report = measured(op, "--ranks", "4", "--sizes", "4,64KiB")
    assert len(report["rows"]) == (1 if op == "barrier" else 4)
    assert report["processors"] == len(os.sched_getaffinity(0))
    for row in report["rows"]:
        assert row["op"] == op and row["median_us"] > 0
        assert row["algorithm"] in (report["algorithms"] if op != "barrier" else [None])


def test_all_operations_are_one_table():
    result = bench("all", "--ranks", "2,3", "--sizes", "4,64KiB", *QUICK)
    assert (result.returncode, result.stderr) == (0, "")
    pair, odd = (part.splitlines() for part in result.stdout.split("\n\n"))
    assert pair[0].startswith("f32, 2 ranks on ") and odd[0].startswith("f32, 3 ranks on ")
    assert pair[1].split() == ["operation", "buffers", "4", "B", "64", "KiB"] and odd[1] == pair[1]
    moving = [[op, buffers] for op in OPERATIONS if op != "barrier" for buffers in ("plain", "shared")]
    of_pair, of_odd = (lines[2 : 2 + n] for lines, n in ((pair, 19), (odd, 18)))
    assert [line.split()[:2] for line in of_pair] == [*moving, ["barrier", "-"]]
    others = [row for row in moving if row[0] != "send_recv"]
    assert [line.split()[:2] for line in of_odd] == [*others, ["send_recv", "runs"], ["barrier", "-"]]
    for line in of_pair + of_odd:
        if not line.startswith("send_recv runs"):
            times = [float(word) for word in line.split()[2:]]
            assert len(times) == (1 if line.startswith("barrier") else 2) and min(times) > 0
    wide = bench("all", "--ranks", "1", "--sizes", "4,1234568,4", *QUICK).stdout
    assert "4 B 1234568 B      4 B\n" in wide and "all_reduce" in wide
    report = measured("all", "--sizes", "4")
    assert [row["op"] for row in report["rows"]] == [op for op, _ in moving] + ["barrier"]


def test_times_are_drawn(tmp_path):
    picture = tmp_path / "times.svg"
    result = bench("all", "--ranks", "2,3", "--sizes", "64KiB,4", "--svg", str(picture), *QUICK)
    assert (result.returncode, result.stderr) == (0, f"wrote {picture}\n")
    texts = [text.text for text in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    panels = [f"{ranks} ranks, {buffers} buffers" for ranks in (2, 3) for buffers in ("plain", "shared")]
    assert [text for text in texts if text.endswith(" buffers")] == panels
    assert [text for text in texts if text in OPERATIONS] == 2 * OPERATIONS[:-1]  # a barrier moves no data
    assert [text for text in texts if text in ("4 B", "64 KiB")] == 4 * ["4 B", "64 KiB"]
    times = {}
    for line in result.stdout.splitlines():
        if found := re.match(r"f32, (\d) ranks", line):
            ranks = found[1]
        elif found := re.match(r"(\w+) +(plain|shared) +(\S+) +(\S+)$", line):
            times[ranks, found[2], "64 KiB", found[1]], times[ranks, found[2], "4 B", found[1]] = found[3], found[4]
    cells = [(ranks, buffers, size, op) for ranks in "23" for buffers in ("plain", "shared") for size in ("4 B", "64 KiB") for op in OPERATIONS[:-1]]
    drawn = [text for text in texts if re.fullmatch(r"[\d.]+|-", text)]
    assert drawn == [times.get(cell, "-") for cell in cells] and len(times) == 2 * 2 * 9 + 2 * 2 * 8
    assert texts.count("-") == 2 * 2  # 3 ranks do not form pairs
    one = bench("broadcast", "--ranks", "1", "--sizes", "4", "--json", "--svg", str(picture), *QUICK)
    assert one.returncode == 0 and len(json.loads(one.stdout)["rows"]) == 2 and "1 rank, plain" in picture.read_text()


def test_reasons_name_settings_that_exist():
    report = measured("all_reduce", "--sizes", "4")
    known = set(report["tuning"]["2"])
    assert len(report["algorithms"]) >= 5
    for rule in report["algorithms"].values():
        assert set(re.findall(r"\w+_bytes\b", rule)) <= known


def test_the_choice_follows_the_settings():
    sizes = ("all_reduce", "--ranks", "4", "--sizes", "4KiB,1MiB")
    small, large, shared = (4, 4096, "libdsc"), (4, 1 << 20, "libdsc"), (4, 1 << 20, "libdsc_zero_copy")
    chosen = algorithms(measured(*sizes, DSC_TUNING="direct_bytes=4611686018427387904"))
    assert (chosen[small], chosen[large], chosen[shared]) == ("direct", "direct", "zero_copy")
    chosen = algorithms(measured(*sizes, DSC_TUNING="direct_bytes=0,zero_copy_min_bytes=4611686018427387904"))
    assert chosen[small] == chosen[large] == chosen[shared] != "direct"


def test_the_kernel_copies_what_the_settings_say():
    info = json.loads(subprocess.run([launch.DSCCTL, "info", "--json"], capture_output=True, text=True, timeout=60).stdout)
    if not info["host"]["single_copy"]["available"]:
        pytest.skip("the kernel does not permit process_vm_readv")
    sizes = ("broadcast", "--ranks", "2", "--sizes", "4KiB,1MiB")
    small, large, shared = (2, 4096, "libdsc"), (2, 1 << 20, "libdsc"), (2, 1 << 20, "libdsc_zero_copy")
    chosen = algorithms(measured(*sizes, DSC_TUNING="single_copy_min_bytes=64KiB"))
    assert (chosen[large], chosen[shared]) == ("single_copy", "zero_copy") and chosen[small] != "single_copy"
    chosen = algorithms(measured(*sizes, DSC_TUNING="single_copy_min_bytes=4611686018427387904"))
    assert chosen[large] != "single_copy"


def test_text_tells_the_rule_with_its_size():
    result = bench("all_reduce", "-v", "--ranks", "4", "--sizes", "4KiB", *QUICK, DSC_TUNING="direct_bytes=65536")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("all_reduce, f32, 4 ranks on ") and lines[1].split()[-2:] == ["switches", "algorithm"]
    assert all(float(line.split()[-2]) >= 0 for line in lines[2:4])
    assert [line.split()[:3] + line.split()[-1:] for line in lines[2:4]] == [
        ["4", "KiB", "plain", "direct"],
        ["4", "KiB", "shared", "direct"],
    ]
    assert "all ranks together have at most direct_bytes (64 KiB)" in " ".join(result.stdout.split())
    assert re.fullmatch(r"DSC_TUNING=direct_bytes=65536,(\w+=\d+,)+\w+=\d+", lines[-1])


def test_ranks_that_take_turns_are_told_of():
    one_processor = functools.partial(os.sched_setaffinity, 0, {min(os.sched_getaffinity(0))})
    result = bench("all_reduce", "--ranks", "3", "--sizes", "4", *QUICK, limit=one_processor)
    assert "3 ranks share 1 processor and take turns by sleeping and yielding" in " ".join(result.stdout.split())
    assert "-v (for all operations: --json) counts context switches" in " ".join(result.stdout.split())
    result = bench("all_reduce", "-v", "--ranks", "3", "--sizes", "4", *QUICK, limit=one_processor)
    (row,) = [line.split() for line in result.stdout.splitlines() if " plain " in line]
    assert float(row[-2]) > 0.3  # on one processor some rank gives it up in every operation
    assert "switches: context switches of a rank in one operation" in " ".join(result.stdout.split())
    report = json.loads(bench("barrier", "--ranks", "3", "--json", *QUICK, limit=one_processor).stdout)
    assert report["rows"][0]["context_switches"] > 0.3
    alone = bench("all_reduce", "--ranks", "1", "--sizes", "4", *QUICK)
    assert "take turns" not in alone.stdout


def test_wrong_usage():
    for args, words in (
        ((), "expected --tune, --network or an operation: all_reduce, "),
        (("all_redce",), "unknown operation 'all_redce'; did you mean 'all_reduce'?"),
        (("all", "-v"), "-v explains one operation: expected an operation instead of all, or --json"),
        (("all_reduce", "--ranks", "65"), "--ranks: expected numbers from 1 to 64 such as 2,4, got '65'"),
        (("all_reduce", "--ranks", "2,x"), "got 'x'"),
        (("all_reduce", "--sizes", "3"), "--sizes: expected multiples of 4 bytes such as 4, 16KiB or 25MiB, got '3'"),
        (("all_reduce", "--size", "4"), "unknown command or option '--size'; did you mean '--sizes'?"),
        (("--tune", "all_reduce"), "OP excludes --tune"),
        (("barrier", "--svg", "x.svg"), "barrier moves no data: expected another operation with --svg"),
        (("all", "--svg", "--json"), "expected a file to write, got '--json'"),
        (("all", "--svg", "/nowhere/x.svg"), "/nowhere/x.svg: cannot be written"),
        (("--tune", "--svg", "x.svg"), "--svg excludes --tune"),
        (("--tune", "--settings", "stage_byte"), "unknown setting 'stage_byte'; did you mean 'stage_bytes'?"),
        (("all_reduce", "--settings", "stage_bytes"), "--settings requires --tune"),
        (("send_recv", "--ranks", "2,3"), "send_recv runs between pairs of ranks: expected even numbers in --ranks, got 3"),
    ):
        result = bench(*args)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith("dscctl: ") and words in result.stderr


def test_tuning_gives_what_the_library_takes():
    key, not_the_default = "zero_copy_chunk_bytes", "8192"
    result = bench("--tune", "--settings", key, *QUICK, "--json", DSC_TUNING=f"{key}={not_the_default}")
    assert result.returncode == 0
    steps = result.stderr.splitlines()  # without a terminal each step is a line
    assert len(steps) > 5 and all(re.match(STEP, step) for step in steps) and "\x1b" not in result.stderr
    (tuned,) = json.loads(result.stdout)["tuned"]
    (setting,) = tuned["settings"]
    assert (tuned["ranks"], setting["key"], setting["present"]) == (2, key, 512 << 10)
    values = setting["values"]
    assert 4096 in values and 0 not in values and max(values) < 1 << 30  # the values of the library's table
    assert setting["fastest"] in values and 0 <= setting["gain"] < 1
    for case in setting["cases"]:
        assert [int(value) for value in case["best_us"]] == values and min(case["best_us"].values()) > 0
    report = measured("all_reduce", "--ranks", "2,4", "--sizes", "4", DSC_TUNING=tuned["DSC_TUNING"])
    for ranks in "24":
        text = ",".join(f"{key}={value}" for key, value in report["tuning"][ranks].items())
        assert text == tuned["DSC_TUNING"]


def bench_on_a_terminal(columns, *args):
    """Runs dscctl on a terminal with `columns` columns.

    Returns its stdout and what it writes to stderr, the terminal.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen([launch.DSCCTL, "bench", *args], stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # reading a terminal fails so when its programs have ended
            pass
        written = process.stdout.read()
        assert process.wait(60) == 0
    os.close(ours)
    return written, shown.decode()


def test_tuning_in_words_and_its_progress_on_one_line():
    written, shown = bench_on_a_terminal(60, "--tune", "--settings", "stage_chunk_bytes", "-v", *QUICK)
    lines = written.splitlines()
    assert lines[0].startswith("2 ranks on ") and lines[2].split()[0] == "stage_chunk_bytes"
    assert re.fullmatch(r"for 2 ranks: DSC_TUNING=(\w+=\d+,)+\w+=\d+", lines[-1])
    steps = shown.split("\r\x1b[K")
    assert "\n" not in shown and steps[0] == steps[-1] == "" and len(steps) > 5
    assert all(re.match(STEP, step) for step in steps[1:-1])
    assert max(map(len, steps)) < 60  # must fit into one line of this terminal


def test_settings_that_the_library_refuses():
    result = bench("all_reduce", DSC_TUNING="speed=1")
    assert (result.returncode, result.stdout) == (2, "")
    assert "DSC_TUNING: 'speed=1' has no known key" in result.stderr and result.stderr.count("DSC_ERR_CONFIG") == 1


def test_a_rank_without_memory():
    room = 4 << 30
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_AS, (room, room))
    result = bench("all_reduce", "--sizes", "8GiB", limit=limit)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "dscctl: no memory for a buffer of 8 GiB\n"


if __name__ == "__main__":
    launch.main(__file__)
