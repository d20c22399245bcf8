#!/usr/bin/env python3
"""Trains a digit classifier on several data-parallel ranks; all they share goes through libdsc.

    dscrun -n 4 -- python3 examples/python/train_digits.py --compare

Every rank holds the whole network and a shard of the images. Each step it computes the gradient of its part of the
batch; the bucket reducer averages the gradients of all ranks while the rest is still being computed.
"""

import argparse
import os
import sys
import time

# Four ranks with a thread pool each would fight for the cores; the matrices are far too small for threads anyway.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import digits
import libdsc as dsc

WANTED_ACCURACY = 0.95
ALLOWED_DIFFERENCE = 1e-9


def whole_number(lowest):
    """Returns an argparse type: an integer that is lowest or more."""

    def parse(text):
        try:
            number = int(text)
        except ValueError:
            number = lowest - 1
        if number < lowest:
            raise argparse.ArgumentTypeError(f"expected a whole number from {lowest}, got {text!r}")
        return number

    return parse


def learning_rate(text):
    """An argparse type: a finite number above 0."""
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.0 < rate < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return rate


def layer_widths(text):
    """An argparse type: "64,32" becomes [64, 32]."""
    return [whole_number(1)(width.strip()) for width in text.split(",")]


class OptionParser(argparse.ArgumentParser):
    """Explains a wrong option once, not once per rank."""

    def error(self, message):
        if os.environ.get("RANK", "0") != "0":
            sys.exit(2)
        super().error(message)


def parse_options():
    """Reads the command line."""
    parser = OptionParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=whole_number(1), default=12, help="passes over the images (%(default)s)")
    parser.add_argument("--batch", type=whole_number(1), default=48, help="images per step, all ranks together (48)")
    parser.add_argument("--lr", type=learning_rate, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=whole_number(0), default=0, help="of weights and order (%(default)s)")
    parser.add_argument("--hidden", type=layer_widths, default=[64, 32], help="widths of the hidden layers (64,32)")
    parser.add_argument("--bucket-kib", type=whole_number(1), default=16, help="size of a gradient bucket (16)")
    parser.add_argument("--compare", action="store_true", help="train in one process too and compare the losses")
    return parser.parse_args()


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
        """Calls into libdsc and adds up how long this thread was away."""
        started = time.perf_counter()
        result = function(*arguments, **keywords)
        self.in_libdsc += time.perf_counter() - started
        return result

    def step(self, images, labels):
        """Trains on this rank's part of one batch and returns the loss of that part."""
        self.call(self.reducer.begin)
        loss = self.network.loss(self.network.forward(images), labels)
        grads = {}
        for index, grads[index] in self.network.backward():
            self.call(self.reducer.mark_ready, index, grads[index])  # a full bucket starts by itself
        self.call(self.reducer.finish)  # now grads hold the mean over all ranks
        self.optimizer.step([grads[index] for index in range(len(grads))])
        return loss

    def epoch(self, number, progress):
        """Trains on this rank's shard once; returns the loss of every whole batch and the test accuracy."""
        images, labels = self.train
        shard = np.asarray(epoch_order(self.world.size, self.world.rank, len(labels), self.options.seed + number))
        losses = np.empty(self.steps)
        for step in range(self.steps):
            picked = shard[step * self.batch : (step + 1) * self.batch]
            losses[step] = self.step(images[picked], labels[picked])
            progress.step(number, step + 1, self.steps)
        correct = np.array([float(self.network.correct(*self.test))])
        self.call(self.world.all_reduce, losses, op="avg")
        self.call(self.world.all_reduce, correct, op="sum")
        return losses, correct[0] / self.test_count


def epoch_order(shards, shard, count, seed):
    """Position p of the shuffled order belongs to shard p % shards, so equal parts make up one whole batch."""
    return dsc.shard_indices(count, shards, shard, shuffle=True, seed=seed, drop_last=True)


class Progress:
    """Rank 0 prints a line per epoch, and a moving bar if there is a terminal to show it on."""

    def __init__(self, rank, epochs):
        self.shown, self.moving, self.epochs = rank == 0, sys.stdout.isatty(), epochs

    def bar(self, number, part):
        done = round(20 * (number + part) / self.epochs)
        return f"epoch {number + 1:2d}/{self.epochs}  [{'#' * done}{'.' * (20 - done)}]"

    def step(self, number, step, steps):
        if self.shown and self.moving:
            print(f"\r{self.bar(number, step / steps)}", end="", flush=True)

    def epoch(self, number, loss, accuracy):
        if self.shown:
            start = "\r" if self.moving else ""
            print(f"{start}{self.bar(number, 1)}  loss {loss:.6f}  test accuracy {accuracy:6.2%}", flush=True)


def waited_and_moved(world, reducer):
    """Returns the library's own totals: nanoseconds waiting for other ranks, and nanoseconds moving data."""
    records = [*world.stats(), *reducer.stats()]
    return np.array([sum(r.waiting_ns for r in records), sum(r.moving_ns for r in records)], dtype=np.float64)


def train_together(world, options, sizes, train, test):
    """Returns the loss of every step, the final accuracy, and this rank's times in milliseconds."""
    trainer = Trainer(world, options, sizes, train, test)
    progress = Progress(world.rank, options.epochs)
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


def compare(world, options, sizes, train, losses):
    """Rank 0 trains alone on the same batches; returns on all ranks the largest relative difference of a loss."""
    worst = np.zeros(1)
    if world.rank == 0:
        count = len(train[1])
        orders = [epoch_order(1, 0, count, options.seed + number) for number in range(options.epochs)]
        steps = len(losses) // options.epochs
        orders = [np.asarray(order)[: steps * options.batch] for order in orders]
        _, expected = digits.train_alone(sizes, train, orders, options.batch, options.lr, options.seed)
        worst[0] = np.max(np.abs(losses - expected) / np.abs(expected))
        verdict = "equal" if worst[0] <= ALLOWED_DIFFERENCE else "DIFFERENT"
        print(f"losses of {len(losses)} steps, {world.size} ranks and one process: largest relative difference")
        print(f"  {worst[0]:.2e}, allowed {ALLOWED_DIFFERENCE:.0e}: {verdict}")
    world.broadcast(worst, root=0)
    return worst[0]


def run(world, options):
    """Trains, reports, and returns the exit code: the same on all ranks."""
    train, test = digits.load()
    problem = None
    if options.batch % world.size:
        problem = f"--batch {options.batch} cannot be divided among {world.size} ranks"
    elif options.batch > len(train[1]):
        problem = f"--batch {options.batch} is more than the {len(train[1])} training images"
    if problem:
        if world.rank == 0:
            print(f"train_digits: {problem}", file=sys.stderr)
        return 2
    sizes = [train[0].shape[1], *options.hidden, digits.CLASSES]
    if world.rank == 0:
        print(f"{len(train[1])} images to train on, {len(test[1])} to test with; layers {sizes}; {world.size} ranks")
    losses, accuracy, times = train_together(world, options, sizes, train, test)
    print_times(world, times)
    if world.rank == 0:
        verdict = "reached" if accuracy >= WANTED_ACCURACY else "MISSED"
        print(f"\ntest accuracy {accuracy:.2%}, at least {WANTED_ACCURACY:.0%} wanted: {verdict}", flush=True)
    difference = compare(world, options, sizes, train, losses) if options.compare else 0.0
    return int(not (accuracy >= WANTED_ACCURACY and difference <= ALLOWED_DIFFERENCE))


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
