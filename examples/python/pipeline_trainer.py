"""One rank's part of the training on replicas of a pipeline: the work for each instruction of the schedule."""

import numpy as np

import digits
import libdsc as dsc
import pipeline_model
import pipeline_options
import timeline


class Trainer:
    """A stage of a replica. Communicator.pipe_run() calls each callback with one instruction.

    The stage has a part of the model for every chunk of the schedule.
    """

    def __init__(self, world, options, sizes):
        self.layout, self.micro_batches = options.layout, options.micro_batches
        self.replica, self.number = self.layout.place(world.rank)
        # A row of the layout is a pipeline. A column contains the same stage of all replicas.
        self.pipeline = world.split(self.replica, key=self.number, name=f"pipeline {self.replica}")
        self.replicas = world.split(self.number, key=self.replica, name=f"stage {self.number}")

        self.schedule = pipeline_options.schedule_of(options, self.number)
        bounds = pipeline_model.cut(sizes, self.layout.stages * self.schedule.chunks)
        bounds = [bounds[pipeline_options.part_of(self.schedule, self.number, c)] for c in range(self.schedule.chunks)]
        self.parts = [pipeline_model.Part(sizes, options.seed + self.replica, *bound) for bound in bounds]
        self.params = [param for part in self.parts for param in part.params]
        self.first_param = np.cumsum([0, *(len(part.params) for part in self.parts)])  # of every chunk
        self.optimizer = digits.Momentum(self.params, options.lr)
        self.grads = [None] * len(self.params)
        bucket_bytes = options.bucket_kib << 10
        # Copies the parameters of replica 0 to the others.
        self.reducer = dsc.BucketReducer(
            self.replicas, self.params, bucket_bytes=bucket_bytes, first_bucket_bytes=bucket_bytes // 4
        )

        self.size = options.batch // self.layout.replicas // self.micro_batches  # number of images in a micro-batch
        shape = lambda layer: ((self.size, sizes[layer]), "float64")
        # If all chunks exchange arrays of the same shape, the shape is given only once.
        self.inputs = [shape(first) for first, _ in bounds if first > 0][:1]
        self.outputs = [shape(end) for _, end in bounds if end < len(sizes) - 1][:1]
        self.test_schedule = None
        self.recorder = timeline.Recorder()

    # ---- a training step ---------------------------------------------------------------------------------------

    def step(self, images, labels):
        """Trains on this replica's part of one batch. Returns its loss."""
        self.images = images.reshape(self.micro_batches, self.size, -1)
        self.labels = labels.reshape(self.micro_batches, self.size)
        self.x, self.targets, self.sources, self.scores_grads, self.deltas = {}, {}, {}, {}, {}
        self.backward_passes_left = [self.micro_batches] * self.schedule.chunks
        self.recorder.spans.clear()
        self.reducer.begin()
        return self.pipeline.pipe_run(
            self.schedule,
            load_micro_batch=self.load,
            forward=self.recorder.timed("forward", self.forward),
            backward=self.recorder.timed("backward", self.backward),
            backward_input=self.recorder.timed("backward_input", self.backward_input),
            backward_weight=self.recorder.timed("backward_weight", self.backward_weight),
            reduce_tied_grads=lambda instruction: None,  # no weight is shared between stages
            reduce_grads=self.recorder.timed("reduce", self.reduce),
            optimizer_step=self.recorder.timed("update", self.update),
            inputs=self.inputs,
            outputs=self.outputs,
        )

    def load(self, instruction):
        """The first part of the model needs the images, and the last part needs the labels."""
        m, part = instruction.micro_batch, self.parts[instruction.chunk]
        if part.is_first:
            self.x[m] = self.images[m]
        if part.is_last:
            self.targets[m] = self.labels[m]

    def forward(self, instruction, inputs, outputs):
        m, chunk = instruction.micro_batch, instruction.chunk
        y, self.sources[chunk, m] = self.parts[chunk].forward(inputs[0] if inputs else self.x.pop(m))
        if outputs:
            outputs[0][...] = y
            return None
        loss, grad = digits.cross_entropy(y, self.targets.pop(m))
        # The loss of a batch is the mean of the micro-batches' losses.
        self.scores_grads[m] = grad / self.micro_batches
        return loss

    def backward(self, instruction, inputs, outputs, output_grads, input_grads):
        m, chunk = instruction.micro_batch, instruction.chunk
        y, y_grad = (outputs[0], output_grads[0]) if outputs else (None, self.scores_grads.pop(m))
        x_grad = self.parts[chunk].backward(self.sources.pop((chunk, m)), y, y_grad, self.taker(chunk))
        if input_grads:
            input_grads[0][...] = x_grad

    def backward_input(self, instruction, inputs, outputs, output_grads, input_grads):
        m, chunk = instruction.micro_batch, instruction.chunk
        y, y_grad = (outputs[0], output_grads[0]) if outputs else (None, self.scores_grads.pop(m))
        deltas = self.deltas[chunk, m] = []
        note = lambda layer, delta: deltas.append((layer, delta))
        x_grad = self.parts[chunk].backward_input(self.sources[chunk, m], y, y_grad, note)
        if input_grads:
            input_grads[0][...] = x_grad

    def backward_weight(self, instruction, inputs, outputs, output_grads, input_grads):
        key = instruction.chunk, instruction.micro_batch
        part = self.parts[instruction.chunk]
        part.backward_weight(self.sources.pop(key), self.deltas.pop(key), self.taker(instruction.chunk))

    def taker(self, chunk):
        """Begins to add a micro-batch to a chunk's gradients. With the last micro-batch, the reducer can start with
        them.
        """
        self.backward_passes_left[chunk] -= 1
        first, is_last = self.first_param[chunk], self.backward_passes_left[chunk] == 0

        def take(index, grad):
            if is_last:
                self.grads[first + index] = grad
                self.reducer.mark_ready(first + index, grad)
            else:
                self.reducer.accumulate(first + index, grad)

        return take

    def reduce(self, instruction):
        self.reducer.finish()  # now `grads` hold the mean over the replicas

    def update(self, instruction):
        self.optimizer.step(self.grads)

    # ---- a test ------------------------------------------------------------------------------------------------

    def correct(self, images, labels):
        """Returns, on all stages, how many of the images this replica's pipeline recognizes."""
        count = -(-len(labels) // self.size)
        if self.test_schedule is None:
            self.test_schedule = pipeline_options.test_schedule(self.schedule, count)
        # The last micro-batch is filled with other images.
        rows = np.resize(np.arange(len(labels)), (count, self.size))
        real = np.arange(rows.size).reshape(rows.shape) < len(labels)
        self.images, self.labels, self.x, self.targets = images[rows], np.where(real, labels[rows], -1), {}, {}
        mean = self.pipeline.pipe_run(
            self.test_schedule,
            load_micro_batch=self.load,
            forward=self.recognise,
            inputs=self.inputs,
            outputs=self.outputs,
        )
        return round(mean * count)

    def recognise(self, instruction, inputs, outputs):
        """The forward pass of a test. Instead of a loss, the last stage returns how many images it recognized."""
        m = instruction.micro_batch
        y, _ = self.parts[instruction.chunk].forward(inputs[0] if inputs else self.x.pop(m))
        if outputs:
            outputs[0][...] = y
            return None
        return (y.argmax(axis=1) == self.targets.pop(m)).sum()
