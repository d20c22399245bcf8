"""Finds the best pipeline schedule for given costs."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any, NamedTuple, Optional

from libdsc import _raw
from libdsc._arguments import INT64_MOST, integer, real
from libdsc._library import check, lib
from libdsc._pipe import PipeSchedule, _Handle, schedule_options
from libdsc._pipe_costs import costs_of


class FoundSchedule(NamedTuple):
    """A schedule found by a search, and its quality."""

    schedule: PipeSchedule
    makespan: float
    bound: float  # a lower bound: no order has a smaller makespan
    is_optimal: bool  # True: no better order exists; False: not known
    origin: str  # a schedule's name, "greedy", "repaired" or "exact"
    # The best schedule with a name; None if no such schedule fits into the limits.
    best_named: Optional[str]
    best_named_makespan: Optional[float]


def find_schedule(
    stages: int,
    micro_batches: int,
    chunks: int = 1,
    *,
    stage: Optional[int] = None,
    activations: Optional[int] = None,
    bytes: Optional[float] = None,
    forward_only: bool = False,
    messages: str = "when_needed",
    **costs: Any,
) -> FoundSchedule:
    """Finds the best schedule for given costs and memory limits.

    It tries all named schedules, orders found by greedy rules, small changes of the best one and, for small pipelines,
    every possible order. The same arguments give the same schedule on every rank.

    Args:
        stages, micro_batches, chunks, stage, forward_only, messages: as in PipeSchedule.
        activations: the most micro-batches times chunks that a stage may hold; None: any number.
        bytes: the most bytes that a stage may hold, including static_bytes; None: any number.
        costs: forward, backward_input, comm and so on, as in simulate_pipeline().
    """
    options = schedule_options(stage, False, messages)
    options.stages = integer("stages", stages)
    options.micro_batches = integer("micro_batches", micro_batches)
    options.chunks = integer("chunks", chunks, 1)
    options.forward_only = int(forward_only)
    search = _raw.PipeSearchOptions()
    check(lib.dsc_pipe_search_options_init(byref(search), ctypes.sizeof(search)))
    search.activations = 0 if activations is None else integer("activations", activations, 1, INT64_MOST)
    search.bytes = 0 if bytes is None else real("bytes", bytes)
    if bytes is not None and not search.bytes > 0:
        raise ValueError(f"bytes is {bytes}; expected a number above 0, or None for no limit")
    raw, keep = costs_of(**costs)
    result = _raw.PipeSearchResult(struct_size=ctypes.sizeof(_raw.PipeSearchResult))
    given = (byref(options), byref(raw), byref(search), byref(result))
    owner = _Handle(lambda made: lib.dsc_pipe_search(*given, made))
    del keep
    named = result.best_named.decode() or None
    schedule = PipeSchedule._of(owner)
    schedule._costs = costs
    return FoundSchedule(
        schedule,
        result.makespan,
        result.bound,
        bool(result.is_optimal),
        result.origin.decode(),
        named,
        result.best_named_makespan if named else None,
    )
