"""Tables of texts, and the words for sizes and times."""


def human(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def short(us: float) -> str:
    return f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 100 else f"{us:.0f}"


def times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{short(ratio)}x"


def plain(head: list[str], rows: list[list[str]]) -> str:
    """Returns a table for a terminal. The first column is aligned to the left."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return "\n".join(
        "  ".join(text.rjust(width) if i else text.ljust(width) for i, (text, width) in enumerate(zip(row, widths))).rstrip()
        for row in [head, *rows]
    )


def markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])
