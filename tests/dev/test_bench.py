"""./dev bench measures many operations in one interleaved run, compares them and draws the ratios."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "bench"), str(PROJECT / "tools/lint")]
import heat_map  # noqa: E402
import overview  # noqa: E402
import pictures  # noqa: E402
import report  # noqa: E402
from engines import ENGINES, Failure  # noqa: E402
from rounds import Cell, Remaining, Rounds  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
MEASURED = {
    Cell("broadcast", 2, 4): {"floor": 0.1, "libdsc": 0.5, "libdsc_zero_copy": 0.4, "openmpi": 0.3, "mpich": 0.2},
    Cell("broadcast", 2, KIB): {"floor": 1.0, "libdsc": 2.0, "libdsc_zero_copy": 1.0, "openmpi": 4.0, "mpich": 8.0, "torch": 3.0},
    Cell("gather", 2, KIB): {"floor": 1.0, "libdsc": 2.0, "libdsc_zero_copy": 2.0, "openmpi": 9.0, "mpich": 1.0, "wire": 0.1},
    Cell("gather", 4, MIB): {"floor": 4.0, "libdsc": 8.0, "openmpi": 128.0},
}


def refusal(capsys, *words):
    with pytest.raises(SystemExit) as ending:
        report.parse(list(words))
    assert ending.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_best_peer_and_ratios():
    groups = overview.rivals(MEASURED)
    assert overview.line(Cell("broadcast", 2, KIB), MEASURED[Cell("broadcast", 2, KIB)], groups) == [
        *("broadcast", "1 KiB", "2.00", "1.00", "1.00", "torch", "3.00"),
        *("2.00x", "4.00x", "1.50x", "3.00x", "2.00x", "1.00x"),
    ]  # fmt: skip
    # The path between hosts is no peer, and what was not measured is no number.
    assert overview.line(Cell("gather", 4, MIB), MEASURED[Cell("gather", 4, MIB)], groups)[3:] == [
        *("-", "4.00", "openmpi", "128", "16.0x", "-", "16.0x", "-", "2.00x", "-")
    ]  # fmt: skip
    assert overview.best(MEASURED[Cell("gather", 2, KIB)], overview.OTHERS) == ("mpich", 1.0)


def test_means_begin_at_1_kib():
    lines = [line.split() for line in overview.means(MEASURED).splitlines()]
    # 2 ranks: sqrt(4/2 * 1/2) to the better MPI; 4 ranks: 128/8; together the cube root of 16
    assert ["2", "libdsc", "1.00x", "0.87x", "2.00x"] in lines
    assert ["4", "libdsc", "16.0x", "16.0x", "2.00x"] in lines
    assert ["2", "and", "4", "libdsc", "2.52x", "2.29x", "2.00x"] in lines


def test_ratios_to_mpi_are_not_repeated():
    only_mpi = {cell: {name: us for name, us in engines.items() if name != "torch"} for cell, engines in MEASURED.items()}
    assert [len(overview.head(overview.rivals(measured))) for measured in (MEASURED, only_mpi)] == [13, 11]
    assert ["2", "libdsc", "1.00x", "2.00x"] in [line.split() for line in overview.means(only_mpi).splitlines()]


def test_slower_cells_are_named():
    said = overview.verdict(MEASURED, "libdsc")
    assert said.splitlines() == [
        "libdsc: slower than the better of Open MPI and MPICH in 2 of 4 cells, and from 1 KiB in 1 of 3",
        "- broadcast, 2 ranks, 4 B: 0.40x",
        "- gather, 2 ranks, 1 KiB: 0.50x",
    ]


def test_overview_is_a_section_of_a_page():
    machine = {"command": "./dev bench all", "cpu": "C", "cores": 2, "caches": "L1", "kernel": "Linux", "build": "GCC"}
    page = overview.page(MEASURED, 5, machine)
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert {line.count("|") for line in rows if line.startswith(("| gather", "| broadcast"))} == {14}
    assert [line for line in page.splitlines() if line.startswith("#")] == [
        "### All operations, 2 ranks",
        "### All operations, 4 ranks",
        "### Geometric means from 1 KiB",
    ]


def test_heat_map_has_every_cell():
    picture = heat_map.draw(MEASURED, "about")
    assert pictures.problems(picture) == []
    cells = re.findall(r'fill="(#\w+)"/><text [^>]*>([^<]+)<', picture)
    # 2 panels for each number of ranks, with 2 operations and 3 sizes
    assert len(cells) == 2 * 2 * 2 * 3
    assert ("#fdb863", "0.50") in cells  # gather of 1 KiB, which is at the limit of two colors
    assert ("#2166ac", "16.0") in cells and ("#4393c3", "2.00") in cells
    assert cells.count((heat_map.svg.PANEL, "-")) == 24 - 7


def test_largest_heat_map_is_small_enough():
    full = {
        Cell(op, ranks, size): dict.fromkeys(ENGINES, 1234.5)
        for op in report.LISTS["all"]
        for ranks in (2, 4)
        for size in report.OVERVIEW_SIZES
    }
    picture = heat_map.draw(full, "about")
    assert pictures.problems(picture) == []
    assert picture.count(">1.00<") == 9 * 10 * 2 * 2


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_numbers_are_readable_on_every_color():
    for _, color in [*heat_map.COLORS, (None, heat_map.svg.PANEL)]:
        ink = "#ffffff" if color in heat_map.DARK else heat_map.svg.INK
        light, dark = sorted([luminance(color), luminance(ink)], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, color


def test_colors_darken_from_equality():
    slower, faster = ([luminance(color) for _, color in half] for half in (heat_map.COLORS[:4], heat_map.COLORS[4:]))
    assert slower == sorted(slower) and faster == sorted(faster, reverse=True)
    assert heat_map.color_of(0.99) == "#fee0b6" and heat_map.color_of(1.0) == "#d1e5f0"


def test_lists_of_operations():
    assert len(report.parse(["all"]).ops) == 9 and "barrier" not in report.parse(["all"]).ops
    assert report.parse(["gather,tensor_map,gather"]).ops == ("gather", *report.MAPPINGS)
    everything, one = report.parse(["all"]), report.parse(["barrier"])
    assert (everything.rounds, everything.bind, "wire" in everything.peers) == (5, True, False)
    assert (one.rounds, one.bind, one.sizes_of("barrier")) == (3, False, [0])
    assert report.parse(["all", "--no-bind", "--quick"]).bind is False


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["al"], "unknown operation 'al'; did you mean 'all'?"),
        (["all", "--peers", "lam"], "unknown peer 'lam' (known: openmpi"),
        (["all", "--sizes", "6"], "expected multiples of 4 bytes"),
        (["all", "--sizes", "1GB"], "expected a size such as 4, 16KiB or 25MiB, got '1GB'"),
        (["all", "--rounds", "0"], "expected a number from 1, got '0'"),
        (["all", "--ranks", "3"], "send_recv runs between pairs of ranks"),
        (["all", "--hosts", "4"], "expected at most 2, the number of ranks, got 4"),
        (["all", "--peers", "none", "--svg", "x.svg"], "expected at least one of them in --peers"),
        (["all", "--json", "/missing/x.json"], "the folder does not exist: /missing"),
        (["all", "--markdown", "."], "expected a file, got the folder ."),
    ],
)
def test_wrong_arguments(capsys, words, expected):
    assert expected in refusal(capsys, *words)


class Clockwork:
    """Runs nothing. An engine's time is the number of runs until then."""

    def __init__(self, broken=""):
        self.order, self.broken = [], broken

    def run(self, engine, op, ranks, size):
        if engine.name == self.broken:
            raise Failure("broken")
        self.order.append((op, size, engine.name))
        return {"op": op, "ranks": ranks, "bytes": size, "engine": engine.name, "median_us": len(self.order)}


def run_rounds(broken="", number=3):
    engines = [ENGINES[name] for name in ("floor", "libdsc", "openmpi")]
    plan = {Cell(op, 2, size): engines for op in ("broadcast", "gather") for size in (4, KIB)}
    bench = Rounds(Clockwork(broken), plan, number)
    bench.run()
    return bench


def test_engines_take_turns_in_every_cell(capsys):
    bench = run_rounds()
    order = bench.runner.order
    assert [name for _, _, name in order[:3]] == ["floor", "libdsc", "openmpi"]
    assert [name for _, _, name in order[12:15]] == ["libdsc", "openmpi", "floor"]  # the second round
    assert [(op, size) for op, size, _ in order[0:12:3]] == [(cell.op, cell.size) for cell in bench.plan]
    assert bench.medians()[Cell("broadcast", 2, 4)] == {"floor": 15, "libdsc": 13, "openmpi": 14}
    assert "round 3 of 3, gather, 2 ranks,   1 KiB: openmpi 34.0" in capsys.readouterr().err


def test_a_failed_engine_is_left_out(capsys):
    bench = run_rounds(broken="libdsc")
    assert bench.failed == {("libdsc", "broadcast", 2), ("libdsc", "gather", 2)}
    assert all(set(engines) == {"floor", "openmpi"} for engines in bench.medians().values())
    assert capsys.readouterr().err.count("libdsc failed and is left out") == 2


def test_remaining_time():
    remaining, cells = Remaining(), [Cell("gather", 2, size) for size in (4, KIB)]
    assert remaining.text([(cells[0], "floor")]) == ""
    remaining.add((cells[0], "floor"), 20)
    # one known run, and one that takes as long as the mean
    assert remaining.text((cell, "floor") for cell in cells) == "[40 s left] "
    remaining.add((cells[1], "floor"), 100)
    assert remaining.text((cell, "floor") for cell in cells) == "[2 min left] "


DRIVER = """#!/bin/sh
[ "$2" != "$SLOW_OP" ] || exec sleep 60
[ "$RANK" != 0 ] ||
  echo "{\\"op\\": \\"$2\\", \\"engine\\": \\"$1\\", \\"ranks\\": $4, \\"bytes\\": $3, \\"median_us\\": 2.5}"
"""


@pytest.fixture
def build(tmp_path):
    """A build folder with drivers that measure nothing, and print a constant."""
    (tmp_path / "bench").mkdir()
    for name in ("bench_floor", "bench_libdsc"):
        driver = tmp_path / "bench" / name
        driver.write_text(DRIVER)
        driver.chmod(0o755)
    return tmp_path


def start(build, *words, **environment):
    command = [sys.executable, str(PROJECT / "bench/report.py"), *words, "--peers", "none", "--build", str(build)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=os.environ | environment, start_new_session=True)


def test_quick_run_of_all(build):
    process = start(build, "all", "--quick", "--ranks", "2", "--json", str(build / "all.json"), "--markdown", str(build / "all.md"))
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert len(json.loads((build / "all.json").read_text())["rows"]) == 9 * 2 * 3
    assert len(re.findall(r"^(?:send_recv|all_reduce) +1 [KM]iB +2.50 +2.50 +2.50", output, re.MULTILINE)) == 4
    assert "neither Open MPI nor MPICH was measured" in output
    assert (build / "all.md").read_text().count("| send_recv | 1 MiB | 2.50 | 2.50 | 2.50 |") == 1


def test_results_survive_an_interrupt(build):
    process = start(build, "broadcast,gather", "--quick", "--ranks", "2", "--json", str(build / "some.json"), SLOW_OP="gather")
    seen = ""
    while "gather, 2 ranks" not in seen:
        part = process.stderr.read(1)
        assert part, seen
        seen += part
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=100)
    assert "stopped; what was measured until now" in errors
    assert {row["op"] for row in json.loads((build / "some.json").read_text())["rows"]} == {"broadcast"}
    assert "broadcast, f32, 2 ranks" in output and "gather, f32" not in output
