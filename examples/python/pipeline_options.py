"""The command line of train_pipeline.py, and the checks whether options fit together."""

import os
import re

import libdsc as dsc
import training


DEFAULT_HIDDEN = [160] * 5


class Layout:
    """The replica and the stage of each rank. The stages of a replica have consecutive ranks."""

    def __init__(self, replicas, stages):
        self.replicas, self.stages, self.ranks = replicas, stages, replicas * stages

    def __str__(self):
        return f"{self.replicas}x{self.stages}"

    def describe(self):
        """Returns text such as "2 replicas x 2 stages"."""
        count = lambda number, what: f"{number} {what}{'s' if number > 1 else ''}"
        return f"{count(self.replicas, 'replica')} x {count(self.stages, 'stage')}"

    def place(self, rank):
        """Returns (replica, stage) of a rank."""
        return divmod(rank, self.stages)

    def groups(self):
        """Returns (name, [(rank, label), ...]) for every replica."""
        ranks = lambda replica: range(replica * self.stages, (replica + 1) * self.stages)
        labels = lambda replica: [(rank, f"stage {rank % self.stages}, rank {rank}") for rank in ranks(replica)]
        return [(f"replica {replica}", labels(replica)) for replica in range(self.replicas)]


def layout(text):
    """An argparse type: "2x2" is 2 replicas of 2 stages."""
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if not match:
        raise training.wrong("REPLICASxSTAGES such as 2x2, 4x1 or 1x4", text)
    return Layout(int(match[1]), int(match[2]))


def default_layout(ranks):
    """Returns a layout with two stages if the number of ranks is even, otherwise with one stage."""
    return Layout(ranks // 2, 2) if ranks % 2 == 0 else Layout(ranks, 1)


def writable_file(text):
    """An argparse type: the name of a file that can be written."""
    folder = os.path.dirname(os.path.abspath(text))
    if not text or os.path.isdir(text) or not os.access(text if os.path.exists(text) else folder, os.W_OK):
        raise training.wrong("the name of a file that can be written", text)
    return text


def parse_options(description):
    """Reads the command line."""
    parser = training.option_parser(description, batch=96, hidden=DEFAULT_HIDDEN)
    count = training.whole_number(1)
    parser.add_argument(
        "--layout",
        type=layout,
        metavar="RxS",
        help="data-parallel replicas x pipeline stages, as 2x2, 4x1 or 1x4 (two stages if the ranks are even)",
    )
    parser.add_argument("--schedule", default="deepspeed_train", metavar="NAME", help="of the pipeline (%(default)s)")
    parser.add_argument("--chunks", type=count, help="parts of the model on every stage (as the schedule needs)")
    parser.add_argument("--micro-batches", type=count, default=4, help="of a replica's part of a batch (%(default)s)")
    parser.add_argument("--steps", type=count, help="train so many steps of one epoch only; no accuracy is wanted then")
    parser.add_argument("--timeline", type=writable_file, metavar="FILE", help="draw the last step into an SVG file")
    options = parser.parse_args()
    if options.steps:
        options.epochs = 1
    return options


# ---- schedules ---------------------------------------------------------------------------------------------------


def schedule_of(options, stage=None):
    """Returns the schedule of a stage, or of the whole pipeline."""
    return dsc.PipeSchedule(
        options.schedule, options.layout.stages, stage, micro_batches=options.micro_batches, chunks=options.chunks
    )


def part_of(schedule, stage, chunk):
    """Returns which part of the model a chunk of a stage is. With a zigzag, every other chunk goes back through the
    stages.
    """
    back = schedule.placement == "zigzag" and chunk % 2 == 1
    return chunk * schedule.stages + (schedule.stages - 1 - stage if back else stage)


def test_schedule(schedule, micro_batches):
    """Returns a schedule of forward passes only, in which the parts of the model are on the same stages."""
    if schedule.chunks == 1:
        return dsc.PipeSchedule("deepspeed_inference", schedule.stages, schedule.stage, micro_batches)
    order = [("forward", chunk, m) for chunk in range(schedule.chunks) for m in range(micro_batches)]
    return dsc.PipeSchedule.custom(
        [order] * schedule.stages,
        micro_batches,
        schedule.chunks,
        stage=schedule.stage,
        placement=schedule.placement,
        forward_only=True,
    )


def hidden_of(options):
    """Returns the widths of the hidden layers: those given, or as many default ones as there are parts of the model."""
    if options.hidden is not DEFAULT_HIDDEN:
        return options.hidden
    parts = options.layout.stages * schedule_of(options).chunks
    return DEFAULT_HIDDEN[:1] * max(len(DEFAULT_HIDDEN), parts - 1)


# ---- options that do not fit together -----------------------------------------------------------------------------


def problem_of(options, ranks, images):
    """Returns a message if options do not fit together, otherwise None."""
    layout_, micro_batches = options.layout, options.layout.replicas * options.micro_batches
    if layout_.ranks != ranks:
        fitting = ", ".join(f"{n}x{ranks // n}" for n in range(1, ranks + 1) if ranks % n == 0)
        return f"--layout {layout_} is for {layout_.ranks} ranks; this job has {ranks}, for which there are {fitting}"
    if options.batch % micro_batches:
        each = f"{layout_.replicas} replicas of {options.micro_batches}"
        return f"--batch {options.batch} cannot be divided into {micro_batches} micro-batches ({each})"
    if options.batch > images:
        return f"--batch {options.batch} is more than the {images} training images"
    return schedule_problem(options)


def schedule_problem(options):
    """Returns the same for the schedule, whose names the library knows."""
    stages = options.layout.stages
    try:
        schedule = schedule_of(options)
    except (dsc.InvalidArgError, dsc.UnsupportedError, dsc.OverflowError) as error:
        return f"--schedule {options.schedule}: {error}"
    if schedule.forward_only:
        return f"--schedule {options.schedule} has no backward pass: it does the tests here, and cannot train"
    if schedule.placement == "apart" and stages > 1:
        return f"--schedule {options.schedule} is for one stage per replica; --layout {options.layout} has {stages}"
    return network_problem(hidden_of(options), schedule)


def network_problem(hidden, schedule):
    """Returns the same for the network, whose layers are cut into parts."""
    layers, parts = len(hidden) + 1, schedule.stages * schedule.chunks
    if layers < parts:
        chunks = f" x {schedule.chunks} chunks" if schedule.chunks > 1 else ""
        return (
            f"{schedule.stages} stages{chunks} need {parts} layers or more, but the network has only {layers} layers: "
            f"--hidden takes a width for each of them but the last"
        )
    if schedule.chunks > 1 and len(set(hidden)) > 1:
        widths = ",".join(map(str, hidden))
        return f"--hidden {widths}: with several chunks all parts pass on the same shape, expected equal widths"
    return None
