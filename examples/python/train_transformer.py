#!/usr/bin/env python3
"""Trains a small transformer on text with tensor, pipeline and data parallelism; the ranks communicate through libdsc.

    dscrun -n 8 -- python3 examples/python/train_transformer.py --tp 2 --pp 2 --sequence-parallel --compare

The weights of every layer are divided among --tp ranks, the blocks among --pp stages, and the batches among --dp
replicas of all this. transformer_parallel.py contains the work of a rank, and transformer_model.py contains the layers.
"""

import hashlib
import sys

import transformer  # before numpy, because it limits numpy's threads

import numpy as np

import libdsc as dsc
import training
import transformer_training as alone
from transformer_model import BYTES
from transformer_parallel import SCHEDULES, Trainer, schedule_of

ALLOWED_DIFFERENCE = {"float64": 1e-9, "float32": 1e-4}  # largest absolute difference of losses, by dtype


def train_together(world, trainer, text, options):
    """Trains on all batches. Returns the loss of every step."""
    losses = []
    for step in range(options.steps):
        loss = trainer.step(alone.batch_of(text, step, options))
        losses.append(transformer.mean_over_ranks(trainer.groups.data, [loss])[0])
        if step % transformer.SHOWN_STEPS == 0 and world.rank == 0:
            print(f"step {step:3d}  loss {losses[-1]:.4f}", flush=True)
    return np.array(losses)


def print_digest(world, params):
    """Rank 0 prints a hash of the parameters of all ranks. Two runs of the same layout give the same hash."""
    own = hashlib.sha256(b"".join(param.tobytes() for param in params)).hexdigest()
    digests = world.all_gather_object(own)
    if world.rank == 0:
        print(f"final parameters: {hashlib.sha256(''.join(digests).encode()).hexdigest()}", flush=True)


def compare(world, text, options, losses):
    """Rank 0 trains again, alone. Returns the exit code of all ranks."""
    if world.rank != 0:
        return transformer.exit_code(world)
    _, expected = alone.train_alone(text, options)
    what = f"losses of {options.steps} steps, {world.size} ranks and one process"
    is_near = transformer.is_within(what, np.max(np.abs(losses - expected)), ALLOWED_DIFFERENCE[options.dtype])
    return transformer.exit_code(world, is_near)


# ---- command line ------------------------------------------------------------------------------------------------


def parse_options():
    """Reads the command line."""
    parser = transformer.option_parser(__doc__.split("\n")[0])
    count = training.whole_number(1)
    parser.add_argument("--tp", type=count, help="ranks that divide each layer (with --dp: all that remain; else 1)")
    parser.add_argument("--pp", type=count, help="stages of the pipeline (with --dp and --tp: all that remain; else 1)")
    parser.add_argument("--dp", type=count, help="replicas that divide each batch (all ranks that remain)")
    parser.add_argument("--sequence-parallel", action="store_true", help="divide norms and sums along the context, too")
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b", help="of the pipeline (%(default)s)")
    parser.add_argument("--micro-batches", type=count, default=4, help="of a replica's part of a batch (%(default)s)")
    parser.add_argument("--dtype", choices=ALLOWED_DIFFERENCE, default="float64", help="of everything (%(default)s)")
    parser.add_argument("--compare", action="store_true", help="train in one process too and compare the losses")
    parser.set_defaults(steps=30, batch=32, context=16, width=32, heads=8, blocks=8)
    return parser.parse_args()


def derive_sizes(options, ranks):
    """Computes the sizes that were not given. The first missing one of dp, tp and pp takes all remaining ranks."""
    rest = ranks // ((options.tp or 1) * (options.pp or 1) * (options.dp or 1))
    for name in ("dp", "tp", "pp"):
        if getattr(options, name) is None:
            setattr(options, name, max(1, rest))
            rest = 1


def layout_problem(options, ranks):
    """Returns a message if the sizes of the layout do not fit, otherwise None."""
    sizes = f"--tp {options.tp} x --pp {options.pp} x --dp {options.dp}"
    if options.tp * options.pp * options.dp != ranks:
        return f"{sizes} is for {options.tp * options.pp * options.dp} ranks; this job has {ranks}"
    if options.heads % options.tp:
        return f"--heads {options.heads} cannot be divided among {options.tp} ranks (--tp)"
    if options.tp > BYTES:
        return f"--tp {options.tp} is more than the {BYTES} symbols"
    if options.sequence_parallel and options.context % options.tp:
        return f"--context {options.context} cannot be divided among {options.tp} ranks (--tp) with --sequence-parallel"
    if options.batch % (options.dp * options.micro_batches):
        each = f"{options.dp * options.micro_batches} micro-batches ({options.dp} replicas of {options.micro_batches})"
        return f"--batch {options.batch} cannot be divided into {each}"
    return schedule_problem(options)


def schedule_problem(options):
    """Returns the same for the schedule, whose rules the library knows."""
    try:
        chunks = schedule_of(options).chunks
    except (dsc.InvalidArgError, dsc.UnsupportedError) as error:
        return f"--schedule {options.schedule}: {error}"
    if options.blocks % (options.pp * chunks):
        times = f" x {chunks} chunks" if chunks > 1 else ""
        return f"--blocks {options.blocks} cannot be divided among {options.pp} stages{times}"
    return None


def run(world, options):
    """Trains and reports. Returns the exit code, which is the same on all ranks."""
    text = alone.load()
    derive_sizes(options, world.size)
    problem = transformer.model_problem(options, len(text)) or layout_problem(options, world.size)
    if problem:
        return training.refuse(world, "train_transformer", problem)
    trainer = Trainer(world, options)
    if world.rank == 0:
        layout = f"tp {options.tp}, pp {options.pp}, dp {options.dp}"
        along = ", sequence-parallel" if options.sequence_parallel else ""
        print(f"{layout}{along}: {options.blocks} blocks, {options.schedule}, {options.micro_batches} micro-batches")
    losses = train_together(world, trainer, text, options)
    print_digest(world, trainer.params.arrays)
    return compare(world, text, options, losses) if options.compare else 0


def main():
    options = parse_options()
    try:
        world = dsc.init_distributed()
        code = run(world, options)
        dsc.finalize()
        return code
    except dsc.Error as error:
        print(f"train_transformer: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
