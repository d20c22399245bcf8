#!/usr/bin/env python3
"""Trains a digit classifier on data-parallel replicas of a pipeline, which communicate through libdsc.

    dscrun -n 4 -- python3 examples/python/train_pipeline.py --layout 2x2 --compare

The network's layers are cut into stages, with one rank per stage. There are several copies of this pipeline (replicas).
In schedules with chunks, a stage has several parts of the network. Every replica trains on its part of a batch in
micro-batches. The schedule says when a stage computes what, and Communicator.pipe_run() moves activations and gradients
between stages. Each stage has a bucket reducer, which averages its gradients over the replicas.
"""

import os
import sys
import time

# Four ranks that each have a thread pool would compete for the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import digits
import libdsc as dsc
import pipeline_idle
import pipeline_options
import timeline
import timeline_svg
import training
from pipeline_trainer import Trainer


def train_epoch(trainer, options, train, number, progress):
    """Trains on this replica's shard once. Returns the loss of every whole batch."""
    images, labels = train
    part = options.batch // trainer.layout.replicas
    shard = training.epoch_order(trainer.layout.replicas, trainer.replica, len(labels), options.seed + number)
    losses = np.empty(min(len(shard) // part, options.steps or len(shard)))
    for step in range(len(losses)):
        picked = shard[step * part : (step + 1) * part]
        losses[step] = trainer.step(images[picked], labels[picked])
        progress.step(number, step + 1, len(losses))
    trainer.replicas.all_reduce(losses, op="avg")
    return losses


def test_accuracy(trainer, test):
    """Every replica tests its part of the images. Returns the accuracy for all images."""
    own = slice(trainer.replica, None, trainer.layout.replicas)
    correct = np.array([float(trainer.correct(test[0][own], test[1][own]))])
    trainer.replicas.all_reduce(correct, op="sum")
    return correct[0] / len(test[1])


def train_together(world, options, trainer, train, test):
    """Returns the loss of every step, the final accuracy, and this rank's milliseconds in training."""
    progress = training.Progress(world.rank, options.epochs)
    losses, in_training_ms = [], 0.0
    for number in range(options.epochs):
        world.barrier()
        started = time.perf_counter()
        losses.append(train_epoch(trainer, options, train, number, progress))
        in_training_ms += (time.perf_counter() - started) * 1e3
        accuracy = test_accuracy(trainer, test)
        progress.epoch(number, losses[-1].mean(), accuracy)
    return np.concatenate(losses), accuracy, in_training_ms


def print_times(world, layout, recorder, in_training_ms):
    """Rank 0 prints how all ranks spent their time."""
    total_ms = {kind: recorder.total_ns[kind] / 1e6 for kind in timeline.KINDS}
    total_ms["backward"] += total_ms.pop("backward_input") + total_ms.pop("backward_weight")
    own = np.array([in_training_ms, *total_ms.values(), in_training_ms - sum(total_ms.values())])
    table = np.empty((world.size, len(own)))
    world.all_gather(table, own)
    if world.rank == 0:
        print("\nwhere the time of training went (ms)")
        print("rank  replica  stage      total    forward   backward     reduce     update    waiting")
        for rank, row in enumerate(table):
            replica, stage = layout.place(rank)
            print(f"{rank:4d} {replica:8d} {stage:6d} " + " ".join(f"{value:10.1f}" for value in row))


def describe(options, schedule):
    """Returns text such as "1 replica x 4 stages, zb_v, 2 chunks"."""
    chunks = f", {schedule.chunks} chunks" if schedule.chunks > 1 else ""
    return f"{options.layout.describe()}, {options.schedule}{chunks}"


def print_timeline(options, boxes):
    """Draws the last step in the terminal and, if requested, into a file. Then prints how idle the stages were."""
    layout = options.layout
    schedule = pipeline_options.schedule_of(options)
    title = f"timeline of the last step: {describe(options, schedule)}"
    print()
    print("\n".join(timeline.lines(boxes, layout.groups(), title)))
    if options.timeline:
        about = f"{options.micro_batches} micro-batches of each replica (numbers), {options.batch} images in all"
        with open(options.timeline, "w", encoding="utf-8") as file:
            file.write(timeline_svg.picture(boxes, layout.groups(), title[0].upper() + title[1:], about))
        print(f"the same as a picture: {options.timeline}")
    print()
    print("\n".join(pipeline_idle.lines(boxes, layout, schedule)))


def run(world, options):
    """Trains and reports. Returns the exit code, which is the same on all ranks."""
    train, test = digits.load()
    options.layout = options.layout or pipeline_options.default_layout(world.size)
    problem = pipeline_options.problem_of(options, world.size, len(train[1]))
    if problem:
        return training.refuse(world, "train_pipeline", problem)
    sizes = [train[0].shape[1], *pipeline_options.hidden_of(options), digits.CLASSES]
    if world.rank == 0:
        print(f"{len(train[1])} images to train on, {len(test[1])} to test with; layers {sizes}")
        print(f"{describe(options, pipeline_options.schedule_of(options))}, {options.micro_batches} micro-batches")
    trainer = Trainer(world, options, sizes)
    losses, accuracy, in_training_ms = train_together(world, options, trainer, train, test)
    print_times(world, options.layout, trainer.recorder, in_training_ms)
    boxes = timeline.gather(world, trainer.recorder.spans)
    if world.rank == 0:
        print_timeline(options, boxes)
    return training.judge(world, options, sizes, train, losses, None if options.steps else accuracy)


def main():
    options = pipeline_options.parse_options(__doc__.split("\n")[0])
    try:
        world = dsc.init_distributed()
        code = run(world, options)
        dsc.finalize()
        return code
    except dsc.Error as error:
        print(f"train_pipeline: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
