"""One rank's part of a transformer that is divided among tensor-parallel, pipeline and data-parallel ranks."""

import numpy as np

import libdsc as dsc
import transformer_training as alone
from transformer_model import BYTES, TABLE, Alone, Parameters, Part, Sizes

SCHEDULES = {"1f1b": "1f1b", "interleaved": "interleaved_1f1b"}


class Mapping:
    """A layer that exchanges parts of activations and, in the backward pass, of their gradients."""

    def __init__(self, comm, mapping, dim):
        self.comm, self.mapping, self.dim = comm, mapping, dim

    def forward(self, x):
        return self.comm.tensor_map(np.ascontiguousarray(x), self.mapping, self.dim)

    def backward(self, delta):
        yield from ()
        return self.comm.tensor_map(np.ascontiguousarray(delta), self.mapping, self.dim, direction="backward")


class TensorGroup(Alone):
    """The ranks that divide each layer. Activations are (batch, context, width).

    With sequence parallelism, each rank has a part of the context between leave() and enter(). Otherwise every rank
    would do the same work there.
    """

    def __init__(self, comm, sequence_parallel):
        self.comm, self.rank, self.size, self.sequence_parallel = comm, comm.rank, comm.size, sequence_parallel

    def enter(self):
        return [Mapping(self.comm, "gather_reduce" if self.sequence_parallel else "copy", 1)]

    def leave(self):
        return [Mapping(self.comm, "reduce_scatter" if self.sequence_parallel else "reduce", 1)]

    def positions(self, context):
        if not self.sequence_parallel:
            return slice(0, context)
        here = dsc.split_range(context, self.size, self.rank)
        return slice(here.start, here.stop)

    def cross_entropy(self, scores, symbols):
        """Each rank has the scores of some symbols, and gets the gradient of these scores."""
        targets = np.ascontiguousarray(symbols, np.int64)
        losses, entropy = self.comm.vocab_cross_entropy(np.ascontiguousarray(scores), targets, vocab_size=BYTES)
        return losses.mean(), entropy.backward(1 / losses.size)


class Groups:
    """The communicators of a rank. Consecutive ranks divide layers, then come replicas, then stages."""

    def __init__(self, world, options):
        self.mesh = mesh = dsc.Mesh({"tp": options.tp, "dp": options.dp, "pp": options.pp}, "tp-dp-pp", world.size)
        self.tensor, self.data, self.pipeline = mesh.comm("tp"), mesh.comm("dp"), mesh.comm("pp")
        self.model = mesh.comm("tp-pp")  # all ranks that together hold one copy of the model
        ends = [index for index, ranks in enumerate(mesh.embedding_groups()) if world.rank in ranks]
        self.embedding = world.split(ends[0] if ends else None, name="embedding")  # the first and the last stage


def schedule_of(options, stage=None):
    """Returns the schedule of a stage, or of the whole pipeline."""
    return dsc.PipeSchedule(SCHEDULES[options.schedule], options.pp, stage, options.micro_batches)


class Trainer:
    """A stage, which has some blocks of the model for every chunk of the schedule.

    Communicator.pipe_run() calls each callback with one instruction. Layers keep values for the backward pass.
    Therefore every micro-batch in progress has its own layer objects, which share the parameters.
    """

    def __init__(self, world, options):
        self.options, self.groups = options, Groups(world, options)
        self.schedule = schedule_of(options, self.groups.pipeline.rank)
        tensor = TensorGroup(self.groups.tensor, options.sequence_parallel)
        self.params = Parameters(options.seed, np.dtype(options.dtype), tensor)
        self.parts = {}  # the key is (chunk, buffer)
        for chunk in range(self.schedule.chunks):
            self.part(chunk, 0)
        self.optimizer = alone.Adam(self.params.arrays, options.lr)
        bucket_bytes = options.bucket_kib << 10
        self.reducer = dsc.BucketReducer(
            self.groups.data, self.params.arrays, self.params.names, bucket_bytes, first_bucket_bytes=bucket_bytes // 4
        )
        self.size = options.batch // options.dp // options.micro_batches  # number of windows in a micro-batch
        here = tensor.positions(options.context)
        between = ((self.size, here.stop - here.start, options.width), options.dtype)  # what the parts exchange
        self.inputs = [between] if any(not part.is_first for part in self.parts.values()) else []
        self.outputs = [between] if any(not part.is_last for part in self.parts.values()) else []

    def part(self, chunk, buffer):
        """Returns the layers for the micro-batch in a buffer of the schedule."""
        if (chunk, buffer) not in self.parts:
            options, schedule = self.options, self.schedule
            sizes = Sizes(options.context, options.width, options.heads, options.blocks, BYTES)
            number = chunk * schedule.stages + schedule.stage
            blocks = dsc.split_range(options.blocks, schedule.stages * schedule.chunks, number)
            self.parts[chunk, buffer] = Part(self.params, sizes, blocks)
        return self.parts[chunk, buffer]

    def table(self):
        """Returns the index of the tied table; None on a stage between the first and the last."""
        return self.params.names.index(TABLE) if TABLE in self.params.names else None

    # ---- a training step ---------------------------------------------------------------------------------------

    def step(self, windows):
        """Trains on a batch of all replicas. Returns the loss of this rank's replica."""
        own, micro_batches = windows[self.groups.data.rank :: self.groups.data.size], self.options.micro_batches
        self.windows, self.deltas = own.reshape(micro_batches, self.size, -1), {}
        self.grads = [None] * len(self.params.arrays)
        self.grads_left = [micro_batches] * len(self.params.arrays)
        if self.schedule.stages == 1:
            self.grads_left[self.table()] *= 2  # used both as embedding and as output
        self.reducer.begin()
        return self.groups.pipeline.pipe_run(
            self.schedule,
            forward=self.forward,
            backward=self.backward,
            load_micro_batch=lambda instruction: None,  # every stage already has all windows
            reduce_tied_grads=lambda instruction: None,  # finalize_grads() does that after the reducer
            reduce_grads=self.reduce,
            optimizer_step=lambda instruction: self.optimizer.step(self.grads),
            inputs=self.inputs,
            outputs=self.outputs,
        )

    def forward(self, instruction, inputs, outputs):
        part, windows = self.part(instruction.chunk, instruction.buffer), self.windows[instruction.micro_batch]
        y = part.forward(windows[:, :-1] if part.is_first else inputs[0])
        if not part.is_last:
            outputs[0][...] = y
            return None
        loss, delta = part.group.cross_entropy(y, windows[:, 1:])
        # The loss of a batch is the mean of the micro-batches' losses.
        self.deltas[instruction.micro_batch] = delta / self.options.micro_batches
        return loss

    def backward(self, instruction, inputs, outputs, output_grads, input_grads):
        part = self.part(instruction.chunk, instruction.buffer)

        def gradients():
            delta = self.deltas.pop(instruction.micro_batch) if part.is_last else output_grads[0]
            delta = yield from part.backward(delta)
            if not part.is_first:
                input_grads[0][...] = delta

        for index, grad in gradients():
            self.take(index, grad)

    def take(self, index, grad):
        """Adds a gradient to those of other micro-batches. With a parameter's last gradient, the reducer can start with
        it.
        """
        self.grads_left[index] -= 1
        if self.grads_left[index]:
            self.reducer.accumulate(index, grad)
        else:
            self.grads[index] = grad
            self.reducer.mark_ready(index, grad)

    def reduce(self, instruction):
        """Completes the gradients: over the replicas, and then those that tensor-parallel ranks and stages share."""
        is_end = self.groups.embedding is not None
        of_whole = [grad for grad, is_divided in zip(self.grads, self.params.is_divided) if not is_divided]
        dsc.finalize_grads(
            reducers=[self.reducer],
            tensor=self.groups.tensor,
            # Each rank processed only a part of the context.
            sequence_parallel=of_whole if self.options.sequence_parallel else [],
            embedding=self.groups.embedding,
            word_embeddings=[self.grads[self.table()]] if is_end else [],
        )
        squares = np.array([alone.squares_of([self.grads[index] for index in self.counted()])])
        self.groups.model.all_reduce(squares)
        alone.clip(self.grads, self.options.clip, squares[0])

    def counted(self):
        """Returns the parameters that this rank counts in the norm of the whole model, so that each is counted once."""
        is_first = self.groups.tensor.rank == 0
        indices = [index for index, is_divided in enumerate(self.params.is_divided) if is_divided or is_first]
        is_copy = self.groups.pipeline.rank > 0  # a copy of the first stage's table
        return [index for index in indices if not (is_copy and index == self.table())]
