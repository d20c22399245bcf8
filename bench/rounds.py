"""Measures engines in turn, round after round, and keeps the results of every run."""

import statistics
import sys
import time
from typing import NamedTuple

from engines import Engine, Failure, Runner
from tables import human, short


class Cell(NamedTuple):
    """What is measured with every engine."""

    op: str
    ranks: int
    size: int


class Rounds:
    """In each round, every engine takes a turn in each cell, so that a machine whose speed changes slows down all of
    them equally.
    """

    def __init__(self, runner: Runner, plan: dict[Cell, list[Engine]], rounds: int):
        self.runner, self.plan, self.rounds = runner, plan, rounds
        self.runs: list[dict] = []
        self.failed: set[tuple[str, str, int]] = set()  # engine, operation, ranks
        self.remaining = Remaining()

    def run(self) -> None:
        cells = list(self.plan)
        for number in range(self.rounds):
            for done, cell in enumerate(cells):
                later = [cells[done:], *[cells] * (self.rounds - number - 1)]
                left = self.remaining.text((each, engine.name) for part in later for each in part for engine in self._able(each))
                print(f"{left}round {number + 1} of {self.rounds}, {title(cell)}:", end="", file=sys.stderr, flush=True)
                self._take_turns(number, cell)
                print(file=sys.stderr)

    def _able(self, cell: Cell) -> list[Engine]:
        return [engine for engine in self.plan[cell] if (engine.name, cell.op, cell.ranks) not in self.failed]

    def _take_turns(self, number: int, cell: Cell) -> None:
        engines = self._able(cell)
        turn = number % max(1, len(engines))  # no engine always runs first, when the machine is cool
        for engine in engines[turn:] + engines[:turn]:
            start = time.monotonic()
            try:
                run = self.runner.run(engine, *cell)
            except Failure as failure:
                self.failed.add((engine.name, cell.op, cell.ranks))
                print(f"\nbench: {engine.name} failed and is left out at {cell.op}, {cell.ranks} ranks: {failure}", file=sys.stderr)
                continue
            seconds = time.monotonic() - start
            self.remaining.add((cell, engine.name), seconds)
            self.runs.append(run | {"round": number, "seconds": round(seconds, 2)})
            print(f" {engine.name} {short(run['median_us'])}", end="", file=sys.stderr, flush=True)

    def medians(self) -> dict[Cell, dict[str, float]]:
        """Returns cell -> engine -> microseconds, for the cells that have been measured."""
        found: dict[Cell, dict[str, list[float]]] = {}
        for run in self.runs:
            cell = Cell(run["op"], run["ranks"], run["bytes"])
            found.setdefault(cell, {}).setdefault(run["engine"], []).append(run["median_us"])
        return {
            cell: {engine.name: statistics.median(found[cell][engine.name]) for engine in engines if engine.name in found[cell]}
            for cell, engines in self.plan.items()
            if cell in found
        }


class Remaining:
    """Estimates how long the rest takes. A run takes as long as in the round before. In the first round, it takes as
    long as its engine's runs until then, on average.
    """

    def __init__(self) -> None:
        self.seconds: dict[tuple[Cell, str], float] = {}
        self.of_engine: dict[str, list[float]] = {}

    def add(self, run: tuple[Cell, str], seconds: float) -> None:
        self.seconds[run] = seconds
        self.of_engine.setdefault(run[1], []).append(seconds)

    def text(self, runs) -> str:
        if not self.seconds:
            return ""
        means = {engine: statistics.mean(seconds) for engine, seconds in self.of_engine.items()}
        left = sum(self.seconds.get(run) or means.get(run[1], 0.0) for run in runs)
        return f"[{left / 60:.0f} min left] " if left >= 90 else f"[{left:.0f} s left] "


def title(cell: Cell) -> str:
    return f"{cell.op}, {cell.ranks} ranks, {human(cell.size):>7}"
