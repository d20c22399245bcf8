"""Draws how a reducer overlaps the reduction of buckets with the backward pass, from traces of its iterations."""

import json
import pathlib
from typing import Any

import svg

LEFT, RIGHT, TOP = 170, svg.WIDTH - svg.MARGIN, 100
ROW, GAP = 26, 6
COLORS = [svg.BLUE, svg.GREEN, svg.ORANGE, svg.VIOLET, "#b5475d"]
EXPOSED = "#fbe3e0"


def quickest(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the fastest iteration of each rank."""
    found = []
    for dumps in sorted(folder.iterdir()):
        ranks = [json.loads(file.read_text())["iterations"][0] for file in sorted(dumps.glob("*.json"))]
        found.append((end_ns(ranks) - begin_ns(ranks), ranks))
    return min(found, key=lambda one: one[0])[1]


def begin_ns(ranks: list[dict[str, Any]]) -> int:
    return min(int(rank["time_begun_ns"]) for rank in ranks)


def end_ns(ranks: list[dict[str, Any]]) -> int:
    return max(int(rank["time_finished_ns"]) for rank in ranks)


def draw(folder: pathlib.Path) -> str:
    ranks = quickest(folder)
    start, span_ms = begin_ns(ranks), (end_ns(ranks) - begin_ns(ranks)) / 1e6
    height = TOP + len(ranks) * (2 * ROW + GAP + 24) + 30
    page = svg.Page(
        "A bucket is reduced while the backward pass goes on",
        f"One iteration of a bucket reducer: {len(ranks)} ranks, {len(ranks[0]['gradients'])} gradients, "
        f"{len(ranks[0]['buckets'])} buckets. A color is a bucket.",
        height,
    )
    page.legend(76, [(EXPOSED, "exposed: after the last gradient, until finish() returns")])

    def place(time_ns: int) -> float:
        return LEFT + (RIGHT - LEFT) * (time_ns - start) / 1e6 / span_ms

    page.time_axis(LEFT, RIGHT, TOP - 8, height - 40, span_ms)
    y = float(TOP)
    for number, rank in enumerate(ranks):
        draw_rank(page, y, f"rank {number}", rank, place)
        y += 2 * ROW + GAP + 24
    return page.render()


def draw_rank(page: svg.Page, y: float, name: str, rank: dict[str, Any], place: Any) -> None:
    """Draws two rows: the backward pass up to each gradient, and the buckets."""
    gradients = sorted(rank["gradients"], key=lambda gradient: int(gradient["time_ready_ns"]))
    last = place(gradients[-1]["time_ready_ns"])
    page.box(last, y - 4, place(rank["time_finished_ns"]) - last, 2 * ROW + GAP + 8, EXPOSED)
    page.text(svg.MARGIN, y + ROW + 6, name, 12, bold=True)
    page.text(LEFT - 10, y + 17, "backward pass", 12, svg.SOFT, "end")
    page.text(LEFT - 10, y + ROW + GAP + 17, "reduction", 12, svg.SOFT, "end")
    before = place(rank["time_begun_ns"])
    for gradient in gradients:
        ready = place(gradient["time_ready_ns"])
        page.box(before, y, ready - before - 1, ROW, COLORS[gradient["bucket"] % len(COLORS)], f"{gradient['name']} ready")
        before = ready
    for number, bucket in enumerate(rank["buckets"]):
        x, end = place(bucket["time_launched_ns"]), place(bucket["time_reduced_ns"])
        about = f"bucket {number}: {bucket['bytes']} bytes, {(bucket['time_reduced_ns'] - bucket['time_launched_ns']) / 1e6:.2f} ms"
        page.box(x, y + ROW + GAP, end - x, ROW, COLORS[number % len(COLORS)], about)
