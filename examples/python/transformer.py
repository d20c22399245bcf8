#!/usr/bin/env python3
"""Trains a small transformer on text, byte by byte, on data-parallel ranks, which communicate through libdsc.

    dscrun -n 4 -- python3 examples/python/transformer.py --mode plain

Every rank has the whole model and trains on its part of each batch. The bucket reducer averages the gradients of all
ranks while the backward pass continues. MODES lists the variants.
"""

import argparse
import hashlib
import os
import sys

# Four ranks that each have a thread pool would compete for the cores. The matrices are too small for threads anyway.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import libdsc as dsc
import training
import transformer_training as alone
from pipeline_options import writable_file

SHOWN_STEPS = 10  # the loss is printed after this number of steps
ALLOWED_DIFFERENCE = 1e-5  # relative difference of losses if only the order of sums in float32 differs
ALLOWED_PARAMETER_DIFFERENCE = 1e-4  # absolute; Adam amplifies the rounding of small gradients
ALLOWED_DIFFERENCE_BF16 = 0.02


def mean_over_ranks(world, values):
    """The means over all ranks, as an array."""
    means = np.array(values)
    world.all_reduce(means, op="avg")
    return means


class Trainer:
    """One rank's part of the training."""

    def __init__(self, world, text, options, hook=None):
        self.world, self.text, self.options = world, text, options
        # The reducer copies rank 0's parameters to all ranks.
        self.model = alone.model_of(options, options.seed + world.rank)
        self.optimizer = alone.Adam(self.model.params, options.lr)
        bucket_bytes = options.bucket_kib << 10
        self.reducer = dsc.BucketReducer(
            world,
            self.model.params,
            names=self.model.names,
            bucket_bytes=bucket_bytes,
            first_bucket_bytes=bucket_bytes // 4,
            hook=hook,
        )

    def gradients(self, step):
        """Returns the loss of this rank's part of a batch, and the gradients averaged over all ranks."""
        windows = alone.batch_of(self.text, step, self.options)[self.world.rank :: self.world.size]
        self.reducer.begin()
        loss = self.model.loss(windows)
        grads = {}
        for index, grads[index] in self.model.gradients():
            self.reducer.mark_ready(index, grads[index])  # the reduction of a full bucket starts automatically
        self.reducer.finish()
        return loss, [grads[index] for index in range(len(grads))]

    def show(self, step, loss):
        """Rank 0 prints the loss of every tenth step."""
        if step % SHOWN_STEPS == 0 and self.world.rank == 0:
            print(f"step {step:3d}  loss {loss:.4f}", flush=True)

    def draw(self):
        """Rank 0 draws its last iteration into a file if that was requested."""
        if self.options.svg and self.world.rank == 0:
            with open(self.options.svg, "w", encoding="utf-8") as file:
                file.write(self.reducer.draw())
            print(f"the last iteration as a picture: {self.options.svg}")


def train_together(world, text, options, hook):
    """Trains on all batches. Returns the model and the loss of every step."""
    trainer = Trainer(world, text, options, hook)
    losses, clipped = [], 0
    for step in range(options.steps):
        loss, grads = trainer.gradients(step)
        clipped += trainer.reducer.clip(options.clip) > options.clip
        trainer.optimizer.step(grads)
        losses += list(mean_over_ranks(world, [loss]))
        trainer.show(step, losses[-1])
    trainer.draw()
    if world.rank == 0:
        print(f"gradients of {clipped} of {options.steps} steps were clipped to a norm of {options.clip:g}")
    return trainer.model, np.array(losses)


def is_within(what, difference, allowed):
    """Prints how far a result is from the expected one. Returns whether the difference is small enough."""
    is_near = bool(difference <= allowed)  # false for NaN too
    print(f"{what}: {difference:.2e} apart, at most {allowed:g} wanted: {'equal' if is_near else 'DIFFERENT'}")
    return is_near


def exit_code(world, is_right=True):
    """Returns the exit code, which rank 0 sends to all ranks."""
    code = np.array([int(not is_right)])
    world.broadcast(code, root=0)
    return int(code[0])


def compare_with_one_process(world, text, options, model, losses):
    """Rank 0 trains again, alone. Returns the exit code of all ranks."""
    if world.rank != 0:
        return exit_code(world)
    expected_model, expected = alone.train_alone(text, options)
    parties = f"{options.steps} steps, {world.size} ranks and one process"
    is_near = is_within(f"losses of {parties}", np.max(np.abs(losses / expected - 1.0)), ALLOWED_DIFFERENCE)
    apart = np.max([np.abs(a - b).max() for a, b in zip(model.params, expected_model.params)])
    return exit_code(world, is_within(f"parameters after {parties}", apart, ALLOWED_PARAMETER_DIFFERENCE) and is_near)


# ---- modes -------------------------------------------------------------------------------------------------------
# Each mode takes the world, the text and the options. It returns the exit code, which is the same on all ranks. The
# first line of its docstring is its help.


def plain(world, text, options):
    """data-parallel in float32; losses and parameters are compared with those of one process"""
    model, losses = train_together(world, text, options, hook=None)
    return compare_with_one_process(world, text, options, model, losses)


def bf16(world, text, options):
    """gradients travel as bfloat16; losses are compared with those of one process in float32"""
    _, losses = train_together(world, text, options, hook="bf16")
    if world.rank != 0:
        return exit_code(world)
    _, expected = alone.train_alone(text, options)
    what = f"losses of {options.steps} steps, {world.size} ranks in bfloat16 and one process"
    return exit_code(world, is_within(what, np.max(np.abs(losses / expected - 1.0)), ALLOWED_DIFFERENCE_BF16))


def sharded(world, text, options):
    """gradients and Adam's state in shards (ZeRO-2); losses and parameters are compared with those of one process"""
    model = alone.model_of(options, options.seed + world.rank)
    shards = dsc.Sharded(world, model.params, model.names, stage=2, bucket_elements=options.bucket_kib << 8)
    for index in range(len(model.params)):
        model.params[index] = shards.param_view(index)
    optimizer = alone.Adam([shard.params for shard in shards.shards], options.lr)
    losses = []
    for step in range(options.steps):
        for unit in range(len(shards.units)):
            shards.wait(unit)  # parameters are gathered in the background until they are needed
        loss = model.loss(alone.batch_of(text, step, options)[world.rank :: world.size])
        shards.begin()
        for index, grad in model.gradients():
            shards.mark_ready(index, grad)
        shards.finish()
        shards.clip(options.clip)
        optimizer.step([shard.grads for shard in shards.shards])  # only this rank's part
        shards.step_done()
        losses.append(mean_over_ranks(world, [loss])[0])
        if step % SHOWN_STEPS == 0 and world.rank == 0:
            print(f"step {step:3d}  loss {losses[-1]:.4f}", flush=True)
    for unit in range(len(shards.units)):
        shards.wait(unit)
    code = compare_with_one_process(world, text, options, model, np.array(losses))
    shards.close()
    return code


def uneven(world, text, options):
    """rank r has r batches fewer than rank 0, under a join; all end with the same parameters"""
    trainer = Trainer(world, text, options)
    model, windows = trainer.model, alone.text_windows(text, options.context)
    before = model.loss(windows) if world.rank == 0 else 0.0
    with dsc.Join(trainer.reducer, params=model.params):
        for step in range(options.steps - world.rank):
            loss, grads = trainer.gradients(step)
            trainer.reducer.clip(options.clip)
            trainer.optimizer.step(grads)
            trainer.show(step, loss)
    trainer.draw()
    digest = hashlib.sha256(b"".join(param.tobytes() for param in model.params)).hexdigest()
    steps, digests = zip(*world.all_gather_object((trainer.optimizer.steps, digest)))
    if world.rank != 0:
        return exit_code(world)
    is_equal, after = len(set(digests)) == 1, model.loss(windows)
    print("batches of each rank:", *steps)
    print(f"parameters of {world.size} ranks after the join, the same wanted: {'equal' if is_equal else 'DIFFERENT'}")
    print(f"loss of the whole text: {before:.4f} before, {after:.4f} after, less wanted: ", end="")
    print("reached" if after < before else "MISSED")
    return exit_code(world, is_equal and after < before)


MODES = {mode.__name__: mode for mode in (plain, bf16, sharded, uneven)}


# ---- command line ------------------------------------------------------------------------------------------------


def option_parser(description):
    """Returns a parser with the options of every training of the model."""
    parser = training.OptionParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    count, above_zero = training.whole_number(1), training.learning_rate
    parser.add_argument("--steps", type=count, default=40, help="batches to train on (%(default)s)")
    parser.add_argument("--batch", type=count, default=8, help="windows of text per step, all ranks (%(default)s)")
    parser.add_argument("--context", type=count, default=32, help="bytes in a window (%(default)s)")
    parser.add_argument("--width", type=count, default=64, help="of the model (%(default)s)")
    parser.add_argument("--heads", type=count, default=4, help="of attention, which share the width (%(default)s)")
    parser.add_argument("--blocks", type=count, default=2, help="of attention and perceptron (%(default)s)")
    parser.add_argument("--lr", type=above_zero, default=0.005, help="learning rate (%(default)s)")
    parser.add_argument("--clip", type=above_zero, default=1.0, help="largest norm of gradients (%(default)s)")
    parser.add_argument("--seed", type=training.whole_number(0), default=0, help="of weights and batches (%(default)s)")
    parser.add_argument("--bucket-kib", type=count, default=64, help="size of a gradient bucket (%(default)s)")
    return parser


def parse_options():
    """Reads the command line."""
    parser = option_parser(__doc__.split("\n")[0])
    modes = "\n".join(f"{name}: {mode.__doc__}" for name, mode in MODES.items())
    parser.add_argument("--mode", choices=MODES, default="plain", help=modes)
    parser.add_argument("--svg", type=writable_file, metavar="FILE", help="draw rank 0's last iteration")
    parser.add_argument(
        "--check-gradients", action="store_true", help="compare the backward pass with finite differences, and end"
    )
    parser.set_defaults(dtype="float32")
    return parser.parse_args()


def model_problem(options, size):
    """Returns a message if the options of the model do not fit together, otherwise None. `size` is the size of the
    text.
    """
    if options.width % options.heads:
        return f"--width {options.width} cannot be divided among {options.heads} heads"
    if options.context >= size:
        return f"--context {options.context} is too long: the text has {size} bytes, and each window is followed by one"
    return None


def problem_of(options, ranks, size):
    """Returns the same for all options."""
    if options.check_gradients and ranks > 1:
        return f"--check-gradients is for one process; this job has {ranks} ranks"
    if options.batch % ranks:
        return f"--batch {options.batch} cannot be divided among {ranks} ranks"
    if options.svg and options.mode == "sharded":
        return "--svg draws the iteration of a bucket reducer, which --mode sharded does not have"
    if options.mode == "uneven" and options.steps < ranks:
        return f"--steps {options.steps} is too few for --mode uneven: rank {ranks - 1} leaves {ranks - 1} steps early"
    return model_problem(options, size)


def run(world, options):
    """Trains, or checks gradients. Returns the exit code, which is the same on all ranks."""
    text = alone.load()
    problem = problem_of(options, world.size, len(text))
    if problem:
        return training.refuse(world, "transformer", problem)
    if options.check_gradients:
        what = "gradients by the backward pass and by finite differences"
        return int(not is_within(what, alone.check_gradients(text, options.seed), alone.ALLOWED_GRADIENT_DIFFERENCE))
    if world.rank == 0:
        count = sum(param.size for param in alone.model_of(options, options.seed).params)
        print(f"{len(text)} bytes of text, {count} parameters, {world.size} ranks, mode {options.mode}", flush=True)
    return MODES[options.mode](world, text, options)


def main():
    options = parse_options()
    try:
        world = dsc.init_distributed()
        code = run(world, options)
        dsc.finalize()
        return code
    except dsc.Error as error:
        print(f"transformer: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
