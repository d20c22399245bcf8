"""Draws how many times as fast as the better of Open MPI and MPICH every operation is: a panel for each number of ranks
and kind of memory, a row for each operation, a column for each size.
"""

import sys
from pathlib import Path

from overview import MPI, Times, ahead
from tables import short

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools" / "pictures"))
import svg

TITLE = "The better of Open MPI and MPICH, divided by libdsc"
MEMORY = {"libdsc": "ordinary memory", "libdsc_zero_copy": "shared memory"}
# The limits have equal distances on a logarithmic scale. Blue and orange can be told apart by everyone; each half has
# the order of its brightness.
COLORS = [
    (1 / 4, "#b3500c"), (1 / 2, "#e08214"), (0.5**0.5, "#fdb863"), (1, "#fee0b6"),
    (2**0.5, "#d1e5f0"), (2, "#92c5de"), (4, "#4393c3"), (float("inf"), "#2166ac"),
]  # fmt: skip
DARK = (COLORS[0][1], COLORS[-1][1])  # colors with white numbers
NAMES, GAP, ROW, TOP = 110, 12, 22, 100  # pixels


def color_of(ratio: float | None) -> str:
    return svg.PANEL if ratio is None else next(color for limit, color in COLORS if ratio < limit)


def column_name(size: int) -> str:
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K" if size >= 1 << 10 else str(size)


def draw(measured: Times, about: str) -> str:
    """Returns the picture. The text `about` is the line below its title."""
    ranks = sorted({cell.ranks for cell in measured})
    ops, columns = list(dict.fromkeys(cell.op for cell in measured)), sorted({cell.size for cell in measured})
    ratios = {(cell, ours): ahead(engines, ours, MPI) for cell, engines in measured.items() for ours in MEMORY}
    height = len(ops) * ROW + 56
    page = svg.Page(TITLE, about, TOP + len(ranks) * height)
    draw_legend(page)
    wide = (svg.WIDTH - 2 * svg.MARGIN - NAMES - GAP) / 2
    step = wide / len(columns)
    cells = []
    for panel, count in enumerate(ranks):
        top = TOP + panel * height + 44
        for row, op in enumerate(ops):
            page.text(svg.MARGIN, top + row * ROW + 15, op)
        for side, (ours, memory) in enumerate(MEMORY.items()):
            left = svg.MARGIN + NAMES + side * (wide + GAP)
            page.text(left, top - 22, f"{count} ranks, {memory}", 13, bold=True)
            for column, size in enumerate(columns):
                page.text(left + (column + 0.5) * step, top - 5, column_name(size), 11, svg.SOFT, "middle")
                for row, op in enumerate(ops):
                    ratio = ratios.get(((op, count, size), ours))
                    place = left + column * step, top + row * ROW
                    cells.append((*place, "-" if ratio is None else short(ratio), color_of(ratio)))
    page.cells(step - 1, ROW - 1, [(*cell, "#ffffff" if cell[3] in DARK else svg.INK) for cell in cells])
    return page.render()


def draw_legend(page: svg.Page) -> None:
    limits = [f"{limit:.2g}" for limit, _ in COLORS[:-1]]
    words = [f"below {limits[0]}", *(f"{low} to {high}" for low, high in zip(limits, limits[1:])), f"from {limits[-1]}"]
    page.legend(76, [(color, word) for (_, color), word in zip(COLORS, words)])
    page.text(svg.MARGIN, 98, "above 1: libdsc is faster; columns: bytes", 12, svg.SOFT)
