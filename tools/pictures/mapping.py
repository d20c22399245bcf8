"""Draws what tensor-parallel ranks exchange for two divided layers, with the shapes on the ranks."""

from typing import Any

import svg

WAYS = {
    "copy": ("copy", "reduce", "every rank has all tokens"),
    "gather": ("gather_reduce", "reduce_scatter", "every rank has a part of the tokens (sequence parallelism)"),
}
LEFT, TOP, COLUMN, ROW = 84, 112, 154, 78
TOKEN, CHANNEL = 7.5, 11  # pixels of a token in height, and of a channel in width
TOKENS, PART, SUM = svg.BLUE, svg.GREEN, svg.ORANGE


def draw(ranks: list[dict[str, Any]]) -> str:
    shown = ranks[:2]  # two ranks are enough to show the pattern
    block = 46 + ROW * len(shown) + 24
    page = svg.Page(
        "Tensor parallelism: two layers, y = relu(x W1) W2, divided among ranks",
        f"Each of {len(ranks)} ranks has some columns of W1 and the same rows of W2. Shown are ranks 0 and 1, with [tokens, width].",
        TOP + len(WAYS) * block - 14,
    )
    page.legend(76, [(TOKENS, "activations"), (PART, "this rank's columns of the hidden layer"), (SUM, "this rank's part of each sum")])
    for number, (name, (enter, leave, meaning)) in enumerate(WAYS.items()):
        y = TOP + number * block
        page.text(svg.MARGIN, y + 6, f"{enter} and {leave}: {meaning}", 13, bold=True)
        labels = ["x", enter, "h = relu(x W1)", "h W2", leave]
        for rank, found in enumerate(shown):
            draw_rank(page, y + 40 + rank * ROW, f"rank {rank}", found[name], labels if rank == 0 else [])
    return page.render()


def draw_rank(page: svg.Page, y: float, name: str, shapes: list[list[int]], labels: list[str]) -> None:
    page.text(svg.MARGIN, y + 34, name, 12, svg.SOFT)
    for column, (tokens, width) in enumerate(shapes):
        x = LEFT + column * COLUMN
        color = {2: PART, 3: SUM}.get(column, TOKENS)
        if labels:
            page.text(x, y - 8, labels[column], 12, svg.SOFT)
        page.box(x, y + 2, width * CHANNEL, tokens * TOKEN, color)
        page.text(x + width * CHANNEL + 8, y + 16, f"[{tokens}, {width}]", 11, svg.SOFT)
        if column + 1 < len(shapes):
            page.arrow(x + width * CHANNEL + 8, y + 32, x + COLUMN - 8, y + 32)
