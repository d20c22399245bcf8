"""The command line of train_pipeline.py, and which options fit together."""

import os
import re

import libdsc as dsc
import training


class Layout:
    """Which replica and stage each rank is: the stages of a replica are neighbours."""

    def __init__(self, replicas, stages):
        self.replicas, self.stages, self.ranks = replicas, stages, replicas * stages

    def __str__(self):
        return f"{self.replicas}x{self.stages}"

    def describe(self):
        """Words such as "2 replicas x 2 stages"."""
        count = lambda number, what: f"{number} {what}{'s' if number > 1 else ''}"
        return f"{count(self.replicas, 'replica')} x {count(self.stages, 'stage')}"

    def place(self, rank):
        """Returns (replica, stage)."""
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
    """Two stages where that comes out even, or one."""
    return Layout(ranks // 2, 2) if ranks % 2 == 0 else Layout(ranks, 1)


def writable_file(text):
    """An argparse type: the name of a file that can be written."""
    folder = os.path.dirname(os.path.abspath(text))
    if not text or os.path.isdir(text) or not os.access(text if os.path.exists(text) else folder, os.W_OK):
        raise training.wrong("the name of a file that can be written", text)
    return text


def parse_options(description):
    """Reads the command line."""
    parser = training.option_parser(description, batch=96, hidden=[160] * 5)
    count = training.whole_number(1)
    parser.add_argument(
        "--layout",
        type=layout,
        metavar="RxS",
        help="data-parallel replicas x pipeline stages, as 2x2, 4x1 or 1x4 (two stages if the ranks are even)",
    )
    parser.add_argument("--schedule", default="deepspeed_train", metavar="NAME", help="of the pipeline (%(default)s)")
    parser.add_argument("--micro-batches", type=count, default=4, help="of a replica's part of a batch (%(default)s)")
    parser.add_argument("--timeline", type=writable_file, metavar="FILE", help="draw the last step into an SVG file")
    return parser.parse_args()


def problem_of(options, ranks, layers, images):
    """Says what does not fit together, or returns None."""
    layout_, micro_batches = options.layout, options.layout.replicas * options.micro_batches
    if layout_.ranks != ranks:
        fitting = ", ".join(f"{n}x{ranks // n}" for n in range(1, ranks + 1) if ranks % n == 0)
        return f"--layout {layout_} is for {layout_.ranks} ranks; this job has {ranks}, for which there are {fitting}"
    if layout_.stages > layers:
        return f"--layout {layout_} has {layout_.stages} stages, but the network only {layers} layers"
    if options.batch % micro_batches:
        each = f"{layout_.replicas} replicas of {options.micro_batches}"
        return f"--batch {options.batch} cannot be divided into {micro_batches} micro-batches ({each})"
    if options.batch > images:
        return f"--batch {options.batch} is more than the {images} training images"
    return schedule_problem(options)


def schedule_problem(options):
    """The same for the schedule, whose names the library knows."""
    stages = options.layout.stages
    if options.schedule == "deepspeed_inference":
        return "--schedule deepspeed_inference has no backward pass: it does the tests here, and cannot train"
    if options.schedule == "data_parallel" and stages > 1:
        return f"--schedule data_parallel is for one stage per replica; --layout {options.layout} has {stages}"
    try:
        dsc.PipeSchedule(options.schedule, stages=stages, stage=0, micro_batches=options.micro_batches)
    except (dsc.InvalidArgError, dsc.UnsupportedError) as error:
        return f"--schedule {options.schedule}: {error}"
    return None
