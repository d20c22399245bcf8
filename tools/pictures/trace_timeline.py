"""Draws the timeline of a merged trace: when each rank waited for others, and when it moved data."""

import json
import os
import pathlib
import textwrap
from typing import Any, Iterator

import svg

LEFT, RIGHT, TOP = 150, svg.WIDTH - svg.MARGIN, 126
LANE, GAP, RANK_GAP = 18, 3, 12
COLORS = {"wait": svg.AMBER, "move": svg.BLUE}
LAST_BARRIERS = 4  # the picture begins this number of barriers before the end of the run


def lanes(events: list[dict[str, Any]]) -> Iterator[tuple[int, str, list[dict[str, Any]]]]:
    """Yields (rank, group, its slices) for each group that a rank has used."""
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    for (rank, track), group in sorted(names.items(), key=lambda one: (one[0][0], one[1] == "reducer", one[1])):
        slices = [one for one in events if one["ph"] == "X" and one.get("cat") in COLORS]
        slices = [one for one in slices if (one["pid"], one["tid"]) == (rank, track)]
        if slices:
            yield rank, group, slices


def window_us(events: list[dict[str, Any]]) -> tuple[float, float]:
    """Returns the time from the end of an earlier barrier to the end of the last one."""
    barriers = [one for one in events if one["name"] == "barrier" and one["pid"] == 0]
    ends = sorted(one["ts"] + one["dur"] for one in barriers)
    return ends[-LAST_BARRIERS], ends[-1]


def draw(folder: pathlib.Path, report: dict[str, Any]) -> str:
    events = json.loads((folder / "trace.perfetto.json").read_text())["traceEvents"]
    start, end = window_us(events)
    shown = [(rank, group, within(slices, start, end)) for rank, group, slices in lanes(events)]
    shown = [(rank, group, slices) for rank, group, slices in shown if slices]
    ranks = len({rank for rank, _, _ in shown})
    height = TOP + len(shown) * (LANE + GAP) + (ranks - 1) * RANK_GAP + 44
    page = svg.Page("dscctl trace merge: what the ranks of a job waited for", f"Three training steps of {ranks} ranks on {len(os.sched_getaffinity(0))} cores; rows are groups of ranks", height)
    finding = next((f"{one['kind']}: {one['text']}" for one in report["findings"]), "nobody holds the others up")
    for number, line in enumerate(textwrap.wrap(finding, 130)[:2]):
        page.text(svg.MARGIN, 70 + 15 * number, line, 12, "#a33a1a")
    page.legend(108, [(COLORS["wait"], "waits for other ranks"), (COLORS["move"], "data moves")])
    page.time_axis(LEFT, RIGHT, TOP - 6, height - 40, (end - start) / 1000)
    y, before = float(TOP), -1
    for rank, group, slices in shown:
        if rank != before:
            y += RANK_GAP if before >= 0 else 0
            page.text(svg.MARGIN, y + 13, f"rank {rank}", 12, bold=True)
        before = rank
        draw_lane(page, y, group, slices, start, end)
        y += LANE + GAP
    return page.render()


def draw_lane(page: svg.Page, y: float, group: str, slices: list[dict[str, Any]], start: float, end: float) -> None:
    page.text(LEFT - 8, y + 13, group, 11, svg.SOFT, "end")
    page.box(LEFT, y, RIGHT - LEFT, LANE, svg.PANEL)
    for one in slices:
        first, last = max(one["ts"], start), min(one["ts"] + one["dur"], end)
        x, width = LEFT + (RIGHT - LEFT) * (first - start) / (end - start), (RIGHT - LEFT) * (last - first) / (end - start)
        page.box(x, y, width, LANE, COLORS[one["cat"]], f"{one['cat']}: {one['dur'] / 1000:.2f} ms")


def within(slices: list[dict[str, Any]], start: float, end: float) -> list[dict[str, Any]]:
    return [one for one in slices if one["ts"] + one["dur"] > start and one["ts"] < end]
