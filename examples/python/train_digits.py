#!/usr/bin/env python3
"""Trains a digit classifier on several data-parallel ranks, which communicate through libdsc.

    dscrun -n 4 -- python3 examples/python/train_digits.py --compare

Every rank has the whole network and a shard of the images. In each step it computes the gradient of its part of the
batch. The bucket reducer averages the gradients of all ranks while the remaining gradients are computed.
"""

import os
import sys
import time

# Four ranks that each have a thread pool would compete for the cores. The matrices are too small for threads anyway.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import digits
import libdsc as dsc
import training


def parse_options():
    """Reads the command line."""
    return training.option_parser(__doc__.split("\n")[0], batch=48, hidden=[64, 32]).parse_args()


class Trainer:
    """One rank's part of the training."""

    def __init__(self, world, options, sizes, train, test):
        self.world, self.options, self.train = world, options, train
        self.test = tuple(part[world.rank :: world.size] for part in test)
        self.test_count = len(test[1])
        self.batch = options.batch // world.size
        self.steps = len(train[1]) // world.size // self.batch
        self.network = digits.Network(sizes, options.seed + world.rank)
        self.optimizer = digits.Momentum(self.network.params, options.lr)
        bucket_bytes = options.bucket_kib << 10
        # Checks that the parameters of all ranks agree in number, type and shape, and copies rank 0's values to all.
        self.reducer = dsc.BucketReducer(
            world, self.network.params, bucket_bytes=bucket_bytes, first_bucket_bytes=bucket_bytes // 4
        )
        self.in_libdsc = 0.0

    def call(self, function, *arguments, **keywords):
        """Calls into libdsc and adds up the time that this thread spends there."""
        started = time.perf_counter()
        result = function(*arguments, **keywords)
        self.in_libdsc += time.perf_counter() - started
        return result

    def step(self, images, labels):
        """Trains on this rank's part of one batch. Returns the loss of that part."""
        self.call(self.reducer.begin)
        loss = self.network.loss(self.network.forward(images), labels)
        grads = {}
        for index, grads[index] in self.network.backward():
            # The reduction of a full bucket starts automatically.
            self.call(self.reducer.mark_ready, index, grads[index])
        self.call(self.reducer.finish)  # now `grads` hold the mean over all ranks
        self.optimizer.step([grads[index] for index in range(len(grads))])
        return loss

    def epoch(self, number, progress):
        """Trains on this rank's shard once. Returns the loss of every whole batch, and the test accuracy."""
        images, labels = self.train
        shard = training.epoch_order(self.world.size, self.world.rank, len(labels), self.options.seed + number)
        losses = np.empty(self.steps)
        for step in range(self.steps):
            picked = shard[step * self.batch : (step + 1) * self.batch]
            losses[step] = self.step(images[picked], labels[picked])
            progress.step(number, step + 1, self.steps)
        correct = np.array([float(self.network.correct(*self.test))])
        self.call(self.world.all_reduce, losses, op="avg")
        self.call(self.world.all_reduce, correct, op="sum")
        return losses, correct[0] / self.test_count


def waited_and_moved(world, reducer):
    """Returns the library's own totals: nanoseconds waiting for other ranks, and nanoseconds moving data."""
    records = [*world.stats(), *reducer.op_stats()]
    return np.array([sum(r.waiting_ns for r in records), sum(r.moving_ns for r in records)], dtype=np.float64)


def train_together(world, options, sizes, train, test):
    """Returns the loss of every step, the final accuracy, and this rank's times in milliseconds."""
    trainer = Trainer(world, options, sizes, train, test)
    progress = training.Progress(world.rank, options.epochs)
    losses = []
    world.barrier()
    before, started = waited_and_moved(world, trainer.reducer), time.perf_counter()
    for number in range(options.epochs):
        epoch_losses, accuracy = trainer.epoch(number, progress)
        losses.append(epoch_losses)
        progress.epoch(number, epoch_losses.mean(), accuracy)
    total = time.perf_counter() - started
    waiting, moving = (waited_and_moved(world, trainer.reducer) - before) / 1e6
    times = np.array([total * 1e3, (total - trainer.in_libdsc) * 1e3, trainer.in_libdsc * 1e3, waiting, moving])
    return np.concatenate(losses), accuracy, times


def print_times(world, times):
    """Rank 0 prints the times of all ranks."""
    table = np.empty((world.size, len(times)))
    world.all_gather(table, times)
    if world.rank == 0:
        print("\nwhere the time went (ms)   by the rank's own clock      by libdsc's records*")
        print("rank      total   computing   in libdsc     waiting      moving")
        for rank, row in enumerate(table):
            print(f"{rank:4d} {row[0]:10.1f} " + " ".join(f"{value:11.1f}" for value in row[1:]))
        print("* of every operation, also while the rank was computing: until all ranks had arrived, then to the end")


def run(world, options):
    """Trains and reports. Returns the exit code, which is the same on all ranks."""
    train, test = digits.load()
    problem = None
    if options.batch % world.size:
        problem = f"--batch {options.batch} cannot be divided among {world.size} ranks"
    elif options.batch > len(train[1]):
        problem = f"--batch {options.batch} is more than the {len(train[1])} training images"
    if problem:
        return training.refuse(world, "train_digits", problem)
    sizes = [train[0].shape[1], *options.hidden, digits.CLASSES]
    if world.rank == 0:
        print(f"{len(train[1])} images to train on, {len(test[1])} to test with; layers {sizes}; {world.size} ranks")
    losses, accuracy, times = train_together(world, options, sizes, train, test)
    print_times(world, times)
    return training.judge(world, options, sizes, train, losses, accuracy)


def main():
    options = parse_options()
    try:
        world = dsc.init_distributed()
        code = run(world, options)
        dsc.finalize()
        return code
    except dsc.Error as error:
        print(f"train_digits: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
