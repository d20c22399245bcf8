#!/usr/bin/env python3
"""A pipeline whose stages multiply by 2: with 4 ranks a number x becomes 16 x.

    dscrun -n 4 -- python3 09_pipeline.py

Stage 0 prints its schedule; then all stages run their schedules.
"""

import itertools

import numpy as np

import libdsc as dsc

MICRO_BATCHES = 4


class Stage:
    """A stage computes y = weight x. The loss of a micro-batch is the last stage's y."""

    def __init__(self):
        self.weight, self.weight_grad = np.array([2.0]), np.zeros(1)
        self.x = {}  # inputs of the micro-batches that are in progress

    def load(self, instruction):
        """Called on the first stage for inputs, and on the last stage for labels, which are not needed here."""
        self.x[instruction.micro_batch] = np.array([instruction.micro_batch + 1.0])

    def forward(self, instruction, inputs, outputs):
        x = inputs[0] if inputs else self.x[instruction.micro_batch]
        y = self.weight * x
        if outputs:
            outputs[0][:] = y  # the library sends it when the schedule says so
            return None
        return y[0]

    def backward(self, instruction, inputs, outputs, output_grads, input_grads):
        x = inputs[0] if inputs else self.x[instruction.micro_batch]
        grad = output_grads[0] if output_grads else np.array([1.0 / MICRO_BATCHES])
        self.weight_grad += x * grad
        if input_grads:
            input_grads[0][:] = self.weight * grad


def describe(instruction):
    """Returns text such as "send_activation 0 to 1"."""
    words = [instruction.op]
    if instruction.micro_batch is not None:
        words.append(str(instruction.micro_batch))
    if instruction.peer is not None:
        words.append(f"{'to' if instruction.op.startswith('send') else 'from'} {instruction.peer}")
    return " ".join(words)


world = dsc.init_distributed()
schedule = dsc.PipeSchedule("1f1b", stages=world.size, stage=world.rank, micro_batches=MICRO_BATCHES)
if world.rank == 0:
    for step, instructions in itertools.groupby(schedule, key=lambda instruction: instruction.step):
        print(f"step {step}:", ", ".join(map(describe, instructions)))

stage = Stage()
number = [((1,), "float64")]  # what two stages exchange
mean_loss = world.pipe_run(  # no shared weights, no other replicas, and no optimizer
    schedule,
    load_micro_batch=stage.load,
    forward=stage.forward,
    backward=stage.backward,
    inputs=number if world.rank > 0 else [],
    outputs=number if world.rank < world.size - 1 else [],
)
assert mean_loss == 2**world.size * 2.5  # x is 1, 2, 3, 4
assert stage.weight_grad[0] == mean_loss / 2
print(f"stage {world.rank}: mean loss {mean_loss:g}, gradient of its weight {stage.weight_grad[0]:g}")

dsc.finalize()
