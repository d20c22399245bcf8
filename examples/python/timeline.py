"""The timeline of a pipeline's ranks: recorded in callbacks, gathered, and drawn in the terminal.

The clock is CLOCK_MONOTONIC, which all processes of a host share.
"""

import os
import sys
import time
from collections import namedtuple

import numpy as np

KINDS = ("forward", "backward", "backward_input", "backward_weight", "reduce", "update")

# One pass or other work of a rank. Times are in milliseconds since the first one on any rank.
Box = namedtuple("Box", "kind micro_batch start_ms end_ms chunk", defaults=[0])


class Recorder:
    """Records when callbacks begin and end."""

    def __init__(self):
        self.spans = []
        self.total_ns = dict.fromkeys(KINDS, 0)

    def timed(self, kind, function):
        """Returns a callback that does the same and is recorded."""

        def call(instruction, *arrays):
            start = time.monotonic_ns()
            result = function(instruction, *arrays)
            end = time.monotonic_ns()
            number = -1 if instruction.micro_batch is None else instruction.micro_batch
            self.spans.append((KINDS.index(kind), number, start, end, instruction.chunk or 0))
            self.total_ns[kind] += end - start
            return result

        return call


def gather(world, spans):
    """Returns the boxes of every rank, a list per rank."""
    count = np.array([len(spans)])
    world.all_reduce(count, op="max")
    own = np.full((count[0], 5), -1, np.int64)
    if spans:
        own[: len(spans)] = spans
    table = np.empty((world.size, *own.shape), np.int64)
    world.all_gather(table, own)
    origin = table[..., 2][table[..., 0] >= 0].min()
    ms = lambda time_ns: (time_ns - origin) / 1e6
    return [
        [Box(KINDS[k], int(m), ms(start), ms(end), int(c)) for k, m, start, end, c in rows if k >= 0] for rows in table
    ]


class Glyphs:
    """The look of boxes in the terminal. It works as plain text, so that nothing depends on color."""

    COLORS = {
        "forward": "30;46",
        "backward": "30;42",
        "backward_input": "30;42",
        "backward_weight": "30;44",
        "reduce": "30;43",
        "update": "30;45",
        "waiting": "2",
    }
    FILLED = ("forward", "backward", "backward_input", "backward_weight", "waiting")

    def __init__(self, stream, environment):
        unicode = (stream.encoding or "").lower().replace("-", "") == "utf8"
        self.fill = dict(zip(self.FILLED, "░▓▒█·" if unicode else "-#+%."))
        forced = environment.get("FORCE_COLOR", "") not in ("", "0")
        self.colored = (stream.isatty() or forced) and not environment.get("NO_COLOR")

    def text(self, kind, micro_batch, width):
        """Returns a box with this number of columns. A forward pass begins with its number, and a backward pass never
        does.
        """
        if kind in ("reduce", "update"):
            return (kind[0].upper() + "=" * width)[:width]
        fill, number = self.fill[kind], str(micro_batch)
        if kind == "forward":
            return (number if len(number) <= width else number[-1]).ljust(width, fill)
        return (fill + number if len(number) < width else "").ljust(width, fill)

    def paint(self, kind, text):
        return f"\x1b[{self.COLORS[kind]}m{text}\x1b[0m" if self.colored and text else text


def row(boxes, columns, column_ms, glyphs):
    """Returns one rank's line. Every box has at least one column, so short boxes may shift later ones to the right."""
    cells, column = [], 0
    for box in sorted(boxes, key=lambda box: box.start_ms):
        start = max(column, min(columns - 1, round(box.start_ms / column_ms)))
        end = min(columns, max(start + 1, round(box.end_ms / column_ms)))
        cells.append(glyphs.paint("waiting", glyphs.fill["waiting"] * (start - column)))
        cells.append(glyphs.paint(box.kind, glyphs.text(box.kind, box.micro_batch, end - start)[: end - start]))
        column = end
    return "".join(cells) + glyphs.paint("waiting", glyphs.fill["waiting"] * (columns - column))


def tick_ms(span_ms, wanted):
    """Returns a round distance for about this number of ticks: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(span_ms / wanted))
    return next(power * step for step in (1, 2, 5, 10) if power * step * wanted >= span_ms)


def axis(columns, column_ms):
    """Returns the line of times below the rows. Only the last time has a unit."""
    step, line, tick = tick_ms(columns * column_ms, 5), "", 0
    while (at := round(tick * step / column_ms)) + len(f"|{tick * step:g} ms") <= columns:
        line = line.ljust(at) + f"|{tick * step:g}"
        tick += 1
    return line + " ms"


def labels(groups):
    """Returns the text before each rank's row. Only the first row of a group has the group's name."""
    return [
        f"{name if not index else ' ' * len(name)}  {label}"
        for name, members in groups
        for index, (_, label) in enumerate(members)
    ]


def lines(boxes, groups, title, width=96, stream=sys.stdout, environment=os.environ):
    """Returns the timeline as lines of text.

    `boxes` has a list per rank. `groups` is a list of (name, [(rank, label), ...]) with all ranks in order.
    """
    glyphs, names = Glyphs(stream, environment), labels(groups)
    label = max(map(len, names)) + 2
    columns = width - label
    column_ms = max(box.end_ms for boxes_ in boxes for box in boxes_) / columns
    kinds = {box.kind for boxes_ in boxes for box in boxes_}
    shown = {"forward": 3, "backward": 4, "backward_input": 4, "backward_weight": 4, "reduce": 3, "update": 2}
    shown = {kind: size for kind, size in shown.items() if kind in kinds}
    legend = [f"{glyphs.paint(it, glyphs.text(it, 0, size))} {it}".replace("_", " ") for it, size in shown.items()]
    legend.append(glyphs.paint("waiting", glyphs.fill["waiting"] * 2) + " waiting")
    rows = [name.ljust(label) + row(boxes[rank], columns, column_ms, glyphs) for rank, name in enumerate(names)]
    per_line = 5 if len(legend) <= 5 else 3
    legend = ["   ".join(legend[first : first + per_line]) for first in range(0, len(legend), per_line)]
    return [title, *rows, *(" " * label + line for line in (axis(columns, column_ms), *legend))]
