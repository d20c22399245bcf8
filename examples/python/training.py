"""The common part of train_digits.py and train_pipeline.py: options, progress, the order of the images, and the
comparison.
"""

import argparse
import os
import sys

import numpy as np

import digits
import libdsc as dsc

WANTED_ACCURACY = 0.95
ALLOWED_DIFFERENCE = 1e-9


def wrong(expected, text):
    """Returns the error of an argparse type."""
    return argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")


def whole_number(lowest):
    """Returns an argparse type: an integer that is lowest or more."""

    def parse(text):
        try:
            number = int(text)
        except ValueError:
            number = lowest - 1
        if number < lowest:
            raise wrong(f"a whole number from {lowest}", text)
        return number

    return parse


def learning_rate(text):
    """An argparse type: a finite number above 0."""
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.0 < rate < float("inf"):
        raise wrong("a number above 0", text)
    return rate


def layer_widths(text):
    """An argparse type: "64,32" becomes [64, 32]."""
    return [whole_number(1)(width.strip()) for width in text.split(",")]


class OptionParser(argparse.ArgumentParser):
    """Explains a wrong option once, instead of once per rank."""

    def error(self, message):
        if os.environ.get("RANK", "0") != "0":
            sys.exit(2)
        super().error(message)


def option_parser(description, batch, hidden):
    """Returns a parser with the options of every training example. Defaults that differ are arguments."""
    parser = OptionParser(description=description)
    widths = ",".join(map(str, hidden))
    parser.add_argument("--epochs", type=whole_number(1), default=12, help="passes over the images (%(default)s)")
    parser.add_argument("--batch", type=whole_number(1), default=batch, help=f"images per step, all ranks ({batch})")
    parser.add_argument("--lr", type=learning_rate, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=whole_number(0), default=0, help="of weights and order (%(default)s)")
    parser.add_argument("--hidden", type=layer_widths, default=hidden, help=f"widths of the hidden layers ({widths})")
    parser.add_argument("--bucket-kib", type=whole_number(1), default=16, help="size of a gradient bucket (16)")
    parser.add_argument("--compare", action="store_true", help="train in one process too and compare the losses")
    return parser


def refuse(world, program, problem):
    """Explains once which options are wrong. Returns the exit code for that."""
    if world.rank == 0:
        print(f"{program}: {problem}", file=sys.stderr)
    return 2


def epoch_order(shards, shard, count, seed):
    """Position p of the shuffled order belongs to shard p % shards. Equal parts of all shards therefore form one whole
    batch.
    """
    return np.asarray(dsc.shard_indices(count, shards, shard, shuffle=True, seed=seed, drop_last=True))


class Progress:
    """Rank 0 prints a line per epoch and, on a terminal, a moving bar."""

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


def compare(world, options, sizes, train, losses):
    """Rank 0 trains alone on the same batches. Returns, on all ranks, the largest relative difference of a loss."""
    worst = np.zeros(1)
    if world.rank == 0:
        count = len(train[1])
        steps = len(losses) // options.epochs
        orders = [epoch_order(1, 0, count, options.seed + number) for number in range(options.epochs)]
        orders = [order[: steps * options.batch] for order in orders]
        _, expected = digits.train_alone(sizes, train, orders, options.batch, options.lr, options.seed)
        worst[0] = np.max(np.abs(losses - expected) / np.abs(expected))
        verdict = "equal" if worst[0] <= ALLOWED_DIFFERENCE else "DIFFERENT"
        print(f"losses of {len(losses)} steps, {world.size} ranks and one process: largest relative difference")
        print(f"  {worst[0]:.2e}, allowed {ALLOWED_DIFFERENCE:.0e}: {verdict}")
    world.broadcast(worst, root=0)
    return worst[0]


def judge(world, options, sizes, train, losses, accuracy):
    """Prints whether the accuracy was reached and, if requested, the comparison. Returns the exit code.

    If `accuracy` is None, it is not checked.
    """
    is_reached = accuracy is None or accuracy >= WANTED_ACCURACY
    if world.rank == 0 and accuracy is not None:
        verdict = "reached" if is_reached else "MISSED"
        print(f"\ntest accuracy {accuracy:.2%}, at least {WANTED_ACCURACY:.0%} wanted: {verdict}", flush=True)
    difference = compare(world, options, sizes, train, losses) if options.compare else 0.0
    return int(not (is_reached and difference <= ALLOWED_DIFFERENCE))
