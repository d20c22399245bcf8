"""Simulates a pipeline schedule to find its time and memory."""

from __future__ import annotations

from ctypes import byref, c_double, c_void_p
from typing import Any, NamedTuple, Optional, Union

from libdsc import _raw
from libdsc._library import check, lib, list_of
from libdsc._pipe import PipeSchedule, _OPS
from libdsc._pipe_costs import Values, costs_of


_CHOICES = ("micro_batch_group", "forward_only", "merge_backward", "messages")


class PipeSpan(NamedTuple):
    """An operation in a simulation, with its start and end."""

    stage: int
    op: str
    chunk: int
    micro_batch: int
    start: float
    end: float


class PipeSimulation(NamedTuple):
    """The result of a simulation: times and memory of a pipeline. Lists have an entry per stage."""

    makespan: float
    busy: list[float]
    idle: list[float]  # idle time in the whole makespan
    own_window_idle: list[float]  # idle time between a stage's own first and last operation
    # The largest number of micro-batches times chunks held at the same time.
    peak_activations: list[int]
    peak_bytes: list[float]
    # The time at which the last all-reduce of gradients ends; 0 without one.
    reduced: list[float]
    timeline: list[PipeSpan]  # ordered by stage, then by time
    # The operations that cannot be delayed without a longer makespan.
    critical_path: list[PipeSpan]


def simulate_pipeline(
    schedule: Union[str, PipeSchedule],
    stages: Optional[int] = None,
    micro_batches: Optional[int] = None,
    chunks: Optional[int] = None,
    *,
    forward: Values = 1,
    backward_input: Values = 1,
    backward_weight: Values = 1,
    overlap: float = 1,
    comm: float = 0,
    message_bytes: Values = 0,
    bytes_per_time: float = 0,
    activation_bytes: Values = 0,
    static_bytes: Values = 0,
    gradient_bytes: Values = 0,
    bucket_bytes: float = 0,
    reduce_latency: float = 0,
    reduce_bytes_per_time: float = 0,
    timeline: bool = False,
    critical_path: bool = False,
    **more: Any,
) -> PipeSimulation:
    """Computes when every operation of a pipeline would run. Nothing is executed.

    Args:
        schedule: a schedule; or the name of one, with stages, micro_batches, chunks and other arguments of
            PipeSchedule.
        forward, backward_input, backward_weight: time of an operation of one chunk, in a unit of your choice: one
            number, or a number for each part of the model in the order of the data flow. A whole backward pass takes
            the sum of its two halves.
        overlap: the time of a forward and a backward pass that overlap, as a fraction of the sum of their times.
        comm: latency of a message between stages.
        message_bytes, bytes_per_time: size of a message, and speed of a link; 0: unlimited.
        activation_bytes: bytes held for a micro-batch from its forward pass to the end of its backward pass.
        static_bytes: bytes of weights, gradients and optimizer state.
        gradient_bytes, bucket_bytes, reduce_latency, reduce_bytes_per_time: an all-reduce of gradients over
            data-parallel ranks, which overlaps with the remaining computation.
        timeline, critical_path: whether to list operations.
    """
    if not isinstance(schedule, PipeSchedule):
        if stages is None or micro_batches is None:
            raise TypeError("stages or micro_batches is missing; expected both when the schedule is given by name")
        if unknown := [name for name in more if name not in _CHOICES]:
            raise TypeError(f"unknown argument {unknown[0]!r}; expected a cost such as forward or comm, or {_CHOICES}")
        schedule = PipeSchedule(schedule, stages, None, micro_batches, chunks, **more)
    elif more or (stages, micro_batches, chunks) != (None, None, None):
        raise TypeError("a PipeSchedule is given, which has its own stages, micro_batches and chunks; expected only costs with it")
    costs, keep = costs_of(
        comm,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        overlap=overlap,
        message_bytes=message_bytes,
        bytes_per_time=bytes_per_time,
        activation_bytes=activation_bytes,
        static_bytes=static_bytes,
        gradient_bytes=gradient_bytes,
        bucket_bytes=bucket_bytes,
        reduce_latency=reduce_latency,
        reduce_bytes_per_time=reduce_bytes_per_time,
    )
    report = c_void_p()
    check(lib.dsc_pipe_simulate(schedule._handle, byref(costs), byref(report)))
    del keep
    try:
        return _simulated(report, timeline, critical_path)
    finally:
        lib.dsc_pipe_report_destroy(report)


def _simulated(report: c_void_p, timeline: bool, critical_path: bool) -> PipeSimulation:
    makespan = c_double()
    check(lib.dsc_pipe_report_makespan(report, byref(makespan)))
    stages = list_of(_raw.PipeStageStats, lib.dsc_pipe_report_stages, report)
    return PipeSimulation(
        makespan.value,
        [it.busy for it in stages],
        [it.idle for it in stages],
        [it.own_window_idle for it in stages],
        [it.peak_activations for it in stages],
        [it.peak_bytes for it in stages],
        [it.reduced for it in stages],
        _spans(lib.dsc_pipe_report_timeline, report) if timeline else [],
        _spans(lib.dsc_pipe_report_critical_path, report) if critical_path else [],
    )


def _spans(function: Any, report: c_void_p) -> list[PipeSpan]:
    return [
        PipeSpan(raw.stage, _OPS[raw.op], raw.chunk, raw.micro_batch, raw.start, raw.finish)
        for raw in list_of(_raw.PipeSpan, function, report)
    ]
