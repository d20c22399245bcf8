"""How idle the stages of a pipeline were, beside what the simulator makes of the times of their passes."""

import os
from collections import namedtuple

import numpy as np

import libdsc as dsc
import pipeline_options

PASSES = ("forward", "backward", "backward_input", "backward_weight")

# Shares of time in which a stage computes no pass: of its own window, which is from its first pass to its last, and
# of the step, which is from the pipeline's first pass to its last.
Idle = namedtuple("Idle", "own_window step")


def measured(rows):
    """rows has a list of boxes per stage; returns an Idle for each."""
    rows = [[box for box in row if box.kind in PASSES] for row in rows]
    starts, ends = [min(box.start_ms for box in row) for row in rows], [max(box.end_ms for box in row) for row in rows]
    busy = [sum(box.end_ms - box.start_ms for box in row) for row in rows]
    step = max(ends) - min(starts)
    return [Idle(1 - work / (end - start), 1 - work / step) for work, start, end in zip(busy, starts, ends)]


def mean_ms(boxes, kinds, chunk):
    """The mean time of some kinds of passes; None if there was none of them."""
    times = [box.end_ms - box.start_ms for box in boxes if box.kind in kinds and box.chunk == chunk]
    return float(np.mean(times)) if times else None


def costs_of(rows, schedule):
    """The mean times of the passes of every part of the model, as the simulator takes them."""
    parts = schedule.stages * schedule.chunks
    costs = {kind: [0.0] * parts for kind in ("forward", "backward_input", "backward_weight")}
    for stage, row in enumerate(rows):
        for chunk in range(schedule.chunks):
            part = pipeline_options.part_of(schedule, stage, chunk)
            costs["forward"][part] = mean_ms(row, ["forward"], chunk)
            halves = [mean_ms(row, [kind], chunk) for kind in ("backward_input", "backward_weight")]
            if None in halves:  # a schedule of whole passes only, for which it does not matter where they are cut
                halves = [mean_ms(row, ["backward"], chunk) / 2] * 2
            costs["backward_input"][part], costs["backward_weight"][part] = halves
    return costs


def simulated(rows, schedule):
    """The same as measured() for a simulation with the mean times of these passes, and messages that take none."""
    report = dsc.simulate_pipeline(schedule, **costs_of(rows, schedule))
    windows = [busy + idle for busy, idle in zip(report.busy, report.own_window_idle)]
    own = [idle / window for idle, window in zip(report.own_window_idle, windows)]
    return [Idle(*shares) for shares in zip(own, (idle / report.makespan for idle in report.idle))]


def lines(boxes, layout, schedule):
    """A line per stage of every replica; boxes has a list per rank."""
    text = ["idle in the last step, and in a simulation with its mean time of every pass and without messages"]
    text.append(f"{'replica  stage':14}   of its own window       of the step")
    text.append(f"{'':14}   measured  simulated  measured  simulated")
    for replica in range(layout.replicas):
        rows = boxes[replica * layout.stages : (replica + 1) * layout.stages]
        for stage, (was, would_be) in enumerate(zip(measured(rows), simulated(rows, schedule))):
            shares = was.own_window, would_be.own_window, was.step, would_be.step
            text.append(f"{replica:7d}  {stage:5d} " + "".join(f"{share:11.1%}" for share in shares))
    cores = len(os.sched_getaffinity(0))
    if cores < layout.ranks:
        text.append(f"({layout.ranks} ranks on {cores} cores also wait for a core, inside passes and between them)")
    return text
