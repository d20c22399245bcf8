"""Compares how idle the stages of a pipeline were with a simulation that uses the measured times of their passes."""

import os
from collections import namedtuple

import numpy as np

import libdsc as dsc
import pipeline_options

PASSES = ("forward", "backward", "backward_input", "backward_weight")

# Shares of time in which a stage computes no pass. The stage's own window is from its first pass to its last one. The
# step is from the pipeline's first pass to its last one.
Idle = namedtuple("Idle", "own_window step")


def measured(rows):
    """Returns an Idle for each stage. `rows` has a list of boxes per stage."""
    rows = [[box for box in row if box.kind in PASSES] for row in rows]
    starts, ends = [min(box.start_ms for box in row) for row in rows], [max(box.end_ms for box in row) for row in rows]
    busy = [sum(box.end_ms - box.start_ms for box in row) for row in rows]
    step = max(ends) - min(starts)
    return [Idle(1 - work / (end - start), 1 - work / step) for work, start, end in zip(busy, starts, ends)]


def mean_ms(boxes, kinds, chunk):
    """Returns the mean time of passes of these kinds; None if there were none."""
    times = [box.end_ms - box.start_ms for box in boxes if box.kind in kinds and box.chunk == chunk]
    return float(np.mean(times)) if times else None


def costs_of(rows, schedule):
    """Returns the mean times of the passes of every part of the model, in the form that the simulator takes."""
    parts = schedule.stages * schedule.chunks
    costs = {kind: [0.0] * parts for kind in ("forward", "backward_input", "backward_weight")}
    for stage, row in enumerate(rows):
        for chunk in range(schedule.chunks):
            part = pipeline_options.part_of(schedule, stage, chunk)
            costs["forward"][part] = mean_ms(row, ["forward"], chunk)
            halves = [mean_ms(row, [kind], chunk) for kind in ("backward_input", "backward_weight")]
            # This schedule has only whole backward passes, so it does not matter how they are split.
            if None in halves:
                halves = [mean_ms(row, ["backward"], chunk) / 2] * 2
            costs["backward_input"][part], costs["backward_weight"][part] = halves
    return costs


def simulated(rows, schedule):
    """Returns the same as measured(), for a simulation with the mean times of these passes and messages that take no
    time.
    """
    report = dsc.simulate_pipeline(schedule, **costs_of(rows, schedule))
    windows = [busy + idle for busy, idle in zip(report.busy, report.own_window_idle)]
    own = [idle / window for idle, window in zip(report.own_window_idle, windows)]
    return [Idle(*shares) for shares in zip(own, (idle / report.makespan for idle in report.idle))]


def lines(boxes, layout, schedule):
    """Returns a line per stage of every replica. `boxes` has a list per rank."""
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
