"""Draws which rank's block each rank holds at each step of a ring, from the order in which the ranks received them."""

from typing import Any

import svg

COLORS = [svg.BLUE, svg.GREEN, svg.ORANGE, svg.VIOLET]
LEFT, TOP, COLUMN, ROW, BOX = 110, 108, 175, 62, 120


def draw(ranks: list[dict[str, Any]]) -> str:
    steps = len(ranks[0]["ring"])
    page = svg.Page(
        "A ring: blocks of keys and values go around",
        "In each step a rank computes with the block that it has, while that block travels on to the next rank.",
        TOP + ROW * len(ranks) + 20,
    )
    for step in range(steps):
        page.text(LEFT + step * COLUMN + BOX / 2, TOP - 14, f"step {step}", 12, svg.SOFT, "middle")
    for rank, found in enumerate(ranks):
        y = TOP + rank * ROW
        page.text(svg.MARGIN, y + 26, f"rank {rank}", 12, bold=True)
        for step, source in enumerate(found["ring"]):
            x = LEFT + step * COLUMN
            page.box(x, y, BOX, 42, COLORS[source % len(COLORS)])
            page.text(x + BOX / 2, y + 26, f"block {source}", 13, "#ffffff", "middle", bold=True)
            if step + 1 < steps:
                to = next(other for other, ring in enumerate(ranks) if ring["ring"][step + 1] == source)
                page.arrow(x + BOX + 4, y + 21, x + COLUMN - 5, TOP + to * ROW + 21)
    return page.render()
