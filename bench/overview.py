"""Compares many operations: one line for each operation, size and number of ranks, and what follows from all lines."""

import statistics

from engines import PEERS
from rounds import Cell
from tables import human, markdown, plain, short, times

Times = dict[Cell, dict[str, float]]

OURS = {"libdsc": "libdsc", "libdsc_zero_copy": "zero copy"}  # names of engines -> words in tables
MPI = ("openmpi", "mpich")
OTHERS = tuple(name for name in PEERS if name != "wire")  # wire is a path of this library
MEAN_FROM = 1 << 10  # geometric means are over sizes of at least this many bytes


def best(engines: dict[str, float], names: tuple[str, ...]) -> tuple[str, float] | None:
    """Returns the fastest of the named engines and its time."""
    found = [(engines[name], name) for name in names if name in engines]
    return (min(found)[1], min(found)[0]) if found else None


def ahead(engines: dict[str, float], ours: str, names: tuple[str, ...]) -> float | None:
    """Returns the time of the fastest of the named engines, divided by ours."""
    other = best(engines, names)
    return other[1] / engines[ours] if other and ours in engines else None


def behind(engines: dict[str, float], ours: str) -> float | None:
    """Returns our time, divided by the floor's."""
    return engines[ours] / engines["floor"] if ours in engines and "floor" in engines else None


def rivals(measured: Times) -> dict[str, tuple[str, ...]]:
    """Returns the groups of engines to compare with. Without further peers, the second group would repeat the first."""
    known = {name for engines in measured.values() for name in engines}
    return {"MPI": MPI} | ({"peer": OTHERS} if known & set(OTHERS) - set(MPI) else {})


def head(groups: dict[str, tuple[str, ...]]) -> list[str]:
    ratios = [f"{word} / {ours}" for word in groups for ours in OURS.values()]
    return ["operation", "bytes", *OURS.values(), "floor", "best peer", "its time", *ratios, *(f"{ours} / floor" for ours in OURS.values())]


def line(cell: Cell, engines: dict[str, float], groups: dict[str, tuple[str, ...]]) -> list[str]:
    peer = best(engines, OTHERS)
    return [
        cell.op,
        human(cell.size),
        *(short(engines[name]) if name in engines else "-" for name in (*OURS, "floor")),
        *((peer[0], short(peer[1])) if peer else ("-", "-")),
        *(times(ahead(engines, ours, names)) for names in groups.values() for ours in OURS),
        *(times(behind(engines, ours)) for ours in OURS),
    ]


def table(measured: Times, ranks: int, render=plain) -> str:
    groups = rivals(measured)
    return render(head(groups), [line(cell, engines, groups) for cell, engines in measured.items() if cell.ranks == ranks])


def mean(ratios: list[float | None]) -> float | None:
    known = [ratio for ratio in ratios if ratio is not None]
    return statistics.geometric_mean(known) if known else None


def means(measured: Times, render=plain) -> str:
    """Returns a table with the geometric means over all operations, for each number of ranks and for all."""
    ranks, groups = sorted({cell.ranks for cell in measured}), rivals(measured)
    rows = []
    for group in [*([one] for one in ranks), *([ranks] if len(ranks) > 1 else [])]:
        some = [engines for cell, engines in measured.items() if cell.ranks in group and cell.size >= MEAN_FROM]
        for ours, word in OURS.items():
            ratios = [[ahead(engines, ours, names) for engines in some] for names in groups.values()]
            ratios.append([behind(engines, ours) for engines in some])
            rows.append([" and ".join(map(str, group)), word, *(times(mean(each)) for each in ratios)])
    return render(["ranks", "buffers", *(f"best {word} / ours" for word in groups), "ours / floor"], rows)


def slower(measured: Times, ours: str) -> list[tuple[Cell, float]]:
    """Returns the cells in which the better MPI library is faster, and its time divided by ours."""
    ratios = [(cell, ahead(engines, ours, MPI)) for cell, engines in measured.items()]
    return [(cell, ratio) for cell, ratio in ratios if ratio is not None and ratio < 1]


def verdict(measured: Times, ours: str) -> str:
    """Says in how many cells the better MPI library is faster, and names these cells."""
    compared = [cell for cell, engines in measured.items() if ahead(engines, ours, MPI) is not None]
    found = slower(measured, ours)
    large = sum(cell.size >= MEAN_FROM for cell, _ in found), sum(cell.size >= MEAN_FROM for cell in compared)
    first = (
        f"{OURS[ours]}: slower than the better of Open MPI and MPICH in {len(found)} of {len(compared)} cells, "
        f"and from {human(MEAN_FROM)} in {large[0]} of {large[1]}"
    )
    return "\n".join([first, *(f"- {cell.op}, {cell.ranks} ranks, {human(cell.size)}: {times(ratio)}" for cell, ratio in found)])


def verdicts(measured: Times) -> list[str]:
    if not any(best(engines, MPI) for engines in measured.values()):
        return ["neither Open MPI nor MPICH was measured, so nothing is said about cells that are slower"]
    return [verdict(measured, ours) for ours in OURS]


def text(measured: Times, rounds: int) -> str:
    """Returns the overview for a terminal."""
    parts = []
    for ranks in sorted({cell.ranks for cell in measured}):
        parts.append(f"{ranks} ranks, f32: microseconds, slowest rank, median of {rounds} round{'s' * (rounds > 1)}; ratios of times")
        parts[-1] += "\n" + table(measured, ranks)
    return "\n\n".join([*parts, f"geometric means from {human(MEAN_FROM)}\n{means(measured)}", *verdicts(measured)])


def page(measured: Times, rounds: int, machine: dict) -> str:
    """Returns the overview as a section of a Markdown page."""
    parts = [
        f"Command: `{machine['command']}`, on {machine['cpu']}, {machine['cores']} cores, {machine['caches']}, "
        f"{machine['kernel']}; {machine['build']}. Median of {rounds} round{'s' * (rounds > 1)}, in microseconds."
    ]
    for ranks in sorted({cell.ranks for cell in measured}):
        parts.append(f"### All operations, {ranks} ranks\n\n{table(measured, ranks, markdown)}")
    parts.append(f"### Geometric means from {human(MEAN_FROM)}\n\n{means(measured, markdown)}")
    return "\n\n".join([*parts, *(one.replace("\n", "\n\n", 1) for one in verdicts(measured))]) + "\n"
