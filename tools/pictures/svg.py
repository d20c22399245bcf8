"""An SVG page of shapes and texts, with a white background, so that it can be read on dark pages too."""

import html
import math

WIDTH = 860
MARGIN = 20
INK, SOFT, LINE, PANEL = "#1d2430", "#4a5361", "#d5dae2", "#f2f4f8"
BLUE, GREEN, ORANGE, VIOLET, AMBER = "#3b82d9", "#2e9e6b", "#d97a1e", "#8e5bb5", "#f3b73e"
FONT = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"


class Page:
    def __init__(self, title: str, subtitle: str, height: float):
        self.height = height
        self.title = title
        self.parts: list[str] = []
        self.text(MARGIN, 30, title, 16, bold=True)
        self.text(MARGIN, 50, subtitle, 12, SOFT)

    def text(
        self, x: float, y: float, content: str, size: int = 12, color: str = INK, anchor: str = "start", bold: bool = False
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        place = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}"{place}{weight}>{html.escape(content)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, color: str, about: str = "", border: str = "") -> None:
        inside = f"<title>{html.escape(about)}</title>" if about else ""
        edge = f' stroke="{border}"' if border else ""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.6):.1f}" height="{height:.1f}" rx="2" fill="{color}"{edge}>{inside}</rect>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, color: str = LINE, width: float = 1) -> None:
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="{width:g}"/>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float, color: str = SOFT) -> None:
        """Draws a line with an arrowhead at its second end."""
        self.line(x1, y1, x2, y2, color, 1.5)
        angle = math.atan2(y2 - y1, x2 - x1)
        corners = [(x2, y2)] + [(x2 - 8 * math.cos(angle + turn), y2 - 8 * math.sin(angle + turn)) for turn in (0.4, -0.4)]
        self.parts.append(f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" fill="{color}"/>')

    def legend(self, y: float, entries: list[tuple[str, str]]) -> None:
        """Draws the colors and their meanings in one line."""
        x = float(MARGIN)
        for color, meaning in entries:
            self.box(x, y - 11, 14, 14, color)
            self.text(x + 20, y, meaning, 12, SOFT)
            x += 46 + 6.3 * len(meaning)

    def cells(self, width: float, height: float, places: list[tuple[float, float, str, str, str]]) -> None:
        """Draws cells of a table as (x, y, content, color, color of the content). What all cells have in common is
        written once, because a picture must be small.
        """
        self.parts.append('<g font-size="11" text-anchor="middle">')
        for x, y, content, color, ink in places:
            self.parts.append(
                f'<rect x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}" fill="{color}"/>'
                f'<text x="{x + width / 2:.1f}" y="{y + height / 2 + 4:g}" fill="{ink}">{html.escape(content)}</text>'
            )
        self.parts.append("</g>")

    def time_axis(self, left: float, right: float, top: float, bottom: float, span_ms: float) -> None:
        """Draws vertical lines for round times behind the rows, and the times below."""
        step = round_step(span_ms / 8)
        for tick in range(int(span_ms / step) + 1):
            x = left + (right - left) * tick * step / span_ms
            self.line(x, top, x, bottom)
            self.text(x, bottom + 16, f"{tick * step:g}", 11, SOFT, "middle")
        self.text(right, bottom + 32, "milliseconds", 11, SOFT, "end")

    def render(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:g}" width="{WIDTH}" '
            f'height="{self.height:g}" role="img" aria-label="{html.escape(self.title)}" font-family="{FONT}">'
        )
        ground = f'<rect width="{WIDTH}" height="{self.height:g}" rx="6" fill="#ffffff"/>'
        return "\n".join([head, ground, *self.parts, "</svg>"]) + "\n"


def round_step(least: float) -> float:
    """Returns the smallest number of the series 1, 2, 5, 10, 20, ... that is not less than `least`."""
    power = float(10 ** math.floor(math.log10(least)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
