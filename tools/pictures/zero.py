"""Draws what each rank holds in ZeRO 1, 2 and 3, from the numbers of bytes that the library reports."""

from typing import Any

import svg

STAGES = ["replicas", "ZeRO 1", "ZeRO 2", "ZeRO 3"]
KINDS = [
    ("params", svg.BLUE, "parameters"),
    ("grads", svg.GREEN, "gradients"),
    ("state", svg.VIOLET, "optimizer state (Adam)"),
    ("work", svg.AMBER, "whole units, while they are in use"),
]
TOP, HEIGHT, BAR = 104, 220, 34


def draw(ranks: list[dict[str, Any]]) -> str:
    replica = sum(ranks[0]["memory"][0].values())
    most = max(sum(one.values()) for rank in ranks for one in rank["memory"])
    page = svg.Page(
        "What each rank holds",
        f"Bytes on each of {len(ranks)} ranks after a step, for a model of {ranks[0]['memory'][0]['params'] // 1024} KiB in 8 units",
        TOP + HEIGHT + 70,
    )
    page.legend(76, [(color, meaning) for _, color, meaning in KINDS])
    base, step = TOP + HEIGHT, (svg.WIDTH - 2 * svg.MARGIN) / len(STAGES)
    page.line(svg.MARGIN, base, svg.WIDTH - svg.MARGIN, base, svg.SOFT)
    for stage, name in enumerate(STAGES):
        left = svg.MARGIN + stage * step + (step - len(ranks) * (BAR + 6)) / 2
        for number, rank in enumerate(ranks):
            x, y = left + number * (BAR + 6), float(base)
            for kind, color, meaning in KINDS:
                part = rank["memory"][stage][kind]
                height = HEIGHT * part / most
                y -= height
                if part:
                    page.box(x, y, BAR, height - 1, color, f"rank {number}, {name}: {part} bytes of {meaning}")
            page.text(x + BAR / 2, base + 16, str(number), 11, svg.SOFT, "middle")
        share = sum(ranks[0]["memory"][stage].values()) / replica
        middle = svg.MARGIN + (stage + 0.5) * step
        page.text(middle, base + 38, name, 13, anchor="middle", bold=True)
        page.text(middle, base + 56, f"{share:.0%} of a replica", 12, svg.SOFT, "middle")
    page.text(svg.MARGIN, base + 16, "rank", 11, svg.SOFT)
    return page.render()
