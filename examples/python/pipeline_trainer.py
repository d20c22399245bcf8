"""One rank's part of a training on replicas of a pipeline: what it computes when the schedule says so."""

import numpy as np

import digits
import libdsc as dsc
import pipeline_model
import timeline


class Trainer:
    """A stage of a replica. The callbacks are called by Communicator.pipe_run() with one instruction each."""

    def __init__(self, world, options, sizes):
        self.layout, self.micro_batches = options.layout, options.micro_batches
        self.replica, self.number = self.layout.place(world.rank)
        # A row of the layout is a pipeline; a column has the same stage of all replicas.
        self.pipeline = world.split(self.replica, key=self.number, name=f"pipeline {self.replica}")
        self.replicas = world.split(self.number, key=self.replica, name=f"stage {self.number}")

        first, end = pipeline_model.cut(sizes, self.layout.stages)[self.number]
        self.stage = pipeline_model.Stage(sizes, options.seed + self.replica, first, end)
        self.optimizer = digits.Momentum(self.stage.params, options.lr)
        self.grads = [None] * len(self.stage.params)
        bucket_bytes = options.bucket_kib << 10
        # Copies the parameters of replica 0 to the others.
        self.reducer = dsc.BucketReducer(
            self.replicas, self.stage.params, bucket_bytes=bucket_bytes, first_bucket_bytes=bucket_bytes // 4
        )

        self.size = options.batch // self.layout.replicas // self.micro_batches  # images of a micro-batch
        self.inputs = [] if self.stage.is_first else [((self.size, sizes[first]), "float64")]
        self.outputs = [] if self.stage.is_last else [((self.size, sizes[end]), "float64")]
        self.schedule = self.make_schedule(options.schedule, self.micro_batches)
        self.test_schedule = None
        self.recorder = timeline.Recorder()

    def make_schedule(self, name, micro_batches):
        return dsc.PipeSchedule(name, stages=self.layout.stages, stage=self.number, micro_batches=micro_batches)

    # ---- a training step ---------------------------------------------------------------------------------------

    def step(self, images, labels):
        """Trains on this replica's part of one batch and returns its loss."""
        self.images = images.reshape(self.micro_batches, self.size, -1)
        self.labels = labels.reshape(self.micro_batches, self.size)
        self.x, self.targets, self.sources, self.scores_grads = {}, {}, {}, {}
        self.backward_passes_left = self.micro_batches
        self.recorder.spans.clear()
        self.reducer.begin()
        return self.pipeline.pipe_run(
            self.schedule,
            load_micro_batch=self.load,
            forward=self.recorder.timed("forward", self.forward),
            backward=self.recorder.timed("backward", self.backward),
            reduce_tied_grads=lambda instruction: None,  # no weight is on two stages
            reduce_grads=self.recorder.timed("reduce", self.reduce),
            optimizer_step=self.recorder.timed("update", self.update),
            inputs=self.inputs,
            outputs=self.outputs,
        )

    def load(self, instruction):
        """The first stage needs the images, the last one the labels."""
        m = instruction.micro_batch
        self.x[m], self.targets[m] = self.images[m], self.labels[m]

    def forward(self, instruction, inputs, outputs):
        m = instruction.micro_batch
        y, self.sources[m] = self.stage.forward(inputs[0] if inputs else self.x.pop(m))
        if outputs:
            outputs[0][...] = y
            return None
        loss, grad = digits.cross_entropy(y, self.targets.pop(m))
        self.scores_grads[m] = grad / self.micro_batches  # the loss of a batch is the mean of theirs
        return loss

    def backward(self, instruction, inputs, outputs, output_grads, input_grads):
        m = instruction.micro_batch
        y, y_grad = (outputs[0], output_grads[0]) if outputs else (None, self.scores_grads.pop(m))
        self.backward_passes_left -= 1
        x_grad = self.stage.backward(self.sources.pop(m), y, y_grad, self.take)
        if input_grads:
            input_grads[0][...] = x_grad

    def take(self, index, grad):
        """Adds up the micro-batches' gradients of a parameter; the last one lets the reducer start on it."""
        if self.backward_passes_left > 0:
            self.reducer.accumulate(index, grad)
        else:
            self.grads[index] = grad
            self.reducer.mark_ready(index, grad)

    def reduce(self, instruction):
        self.reducer.finish()  # now grads hold the mean over the replicas

    def update(self, instruction):
        self.optimizer.step(self.grads)

    # ---- a test ------------------------------------------------------------------------------------------------

    def correct(self, images, labels):
        """Returns on all stages how many of the images this replica's pipeline recognises."""
        count = -(-len(labels) // self.size)
        if self.test_schedule is None:
            self.test_schedule = self.make_schedule("deepspeed_inference", count)
        rows = np.resize(np.arange(len(labels)), (count, self.size))  # the last micro-batch is filled up
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
        """The forward pass of a test; instead of a loss the last stage returns how many it recognised."""
        m = instruction.micro_batch
        y, _ = self.stage.forward(inputs[0] if inputs else self.x.pop(m))
        if outputs:
            outputs[0][...] = y
            return None
        return (y.argmax(axis=1) == self.targets.pop(m)).sum()
