"""Draws the timeline of timeline.py as a self-contained SVG file."""

import html

from timeline import tick_ms

WIDTH, LABEL, MARGIN, TOP = 1000, 200, 20, 92
ROW, GAP, GROUP_GAP = 34, 8, 20
COLORS = {
    "forward": "#3b7dd8",
    "backward": "#2e9e6b",
    "backward_input": "#2e9e6b",
    "backward_weight": "#8cc5a9",
    "reduce": "#e08a1e",
    "update": "#8e5bb5",
    "waiting": "#e9ecf1",
}
MEANING = {
    "forward": "forward pass of a micro-batch",
    "backward": "backward pass",
    "backward_input": "its half for inputs",
    "backward_weight": "its half for weights",
    "reduce": "gradients averaged over replicas",
    "update": "weights updated",
    "waiting": "waiting",
}


def text(x, y, content, size=12, color="#3a4250", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" {extra}>{html.escape(content)}</text>'


def rectangle(x, y, width, height, color, inside=""):
    size = f'width="{max(width, 0.8):.2f}" height="{height}"'
    return f'<rect x="{x:.2f}" y="{y}" {size} rx="2.5" fill="{color}">{inside}</rect>'


def legend(y, kinds):
    """Returns the colors of these kinds and their meanings, in one line, or in two if there are many."""
    parts, x = [], MARGIN
    meanings = [(kind, meaning) for kind, meaning in MEANING.items() if kind in kinds]
    for number, (kind, meaning) in enumerate(meanings):
        if len(meanings) > 5 and number in (0, 4):
            x, y = MARGIN, y + (16 if number else -10)
        parts += [rectangle(x, y - 11, 14, 14, COLORS[kind]), text(x + 20, y, meaning)]
        x += 46 + 6.4 * len(meaning)
    return parts


def axis(y, scale, span_ms):
    """Returns vertical lines for round times behind the rows, and the times below."""
    parts, step = [], tick_ms(span_ms, 10)
    for tick in range(int(span_ms / step) + 1):
        x = LABEL + tick * step * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{y}" stroke="#d5dae2" stroke-width="1"/>')
        parts.append(text(x, y + 16, f"{tick * step:g}", 11, "#5a6473", 'text-anchor="middle"'))
    parts.append(text(WIDTH - MARGIN, y + 34, "milliseconds", 11, "#5a6473", 'text-anchor="end"'))
    return parts


def box_parts(box, y, scale):
    """Returns one box, with its micro-batch inside if there is room, and its times as a tooltip."""
    x, width = LABEL + box.start_ms * scale, (box.end_ms - box.start_ms) * scale
    number = "" if box.micro_batch < 0 else str(box.micro_batch)
    name = f"{box.kind.replace('_', ' ')} {number}".strip() + (f" in chunk {box.chunk}" if box.chunk else "")
    about = f"{name}: {box.start_ms:.3f} to {box.end_ms:.3f} ms"
    parts = [rectangle(x, y, width, ROW, COLORS[box.kind], f"<title>{about}</title>")]
    if number and width >= 7 * len(number) + 2:
        centre = 'text-anchor="middle" pointer-events="none"'
        parts.append(text(x + width / 2, y + ROW / 2 + 4, number, 12, "#ffffff", centre))
    return parts


def picture(boxes, groups, title, subtitle):
    """Returns the SVG. boxes has a list per rank; groups is a list of (name, [(rank, label), ...])."""
    span_ms = max(box.end_ms for row in boxes for box in row)
    scale = (WIDTH - LABEL - MARGIN) / span_ms
    rows, y = [], TOP
    for name, members in groups:
        rows.append(text(MARGIN, y + ROW / 2 + 4, name, 12, "#1d2430", 'font-weight="600"'))
        for rank, label in members:
            rows.append(text(LABEL - 10, y + ROW / 2 + 4, label, 12, "#3a4250", 'text-anchor="end"'))
            rows.append(rectangle(LABEL, y, span_ms * scale, ROW, COLORS["waiting"]))
            rows += [part for box in boxes[rank] for part in box_parts(box, y, scale)]
            y += ROW + GAP
        y += GROUP_GAP
    y -= GAP + GROUP_GAP
    height = y + 50
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
    )
    kinds = {"waiting", *(box.kind for row in boxes for box in row)}
    background = f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    titles = [text(MARGIN, 30, title, 17, "#1d2430", 'font-weight="600"'), text(MARGIN, 50, subtitle, 12, "#5a6473")]
    parts = [*titles, *legend(76, kinds), *axis(y + 6, scale, span_ms), *rows]
    return "\n".join([head, background, *parts, "</svg>"]) + "\n"
