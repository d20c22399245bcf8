"""Reducers under a pipeline: the gradients of all micro-batches are reduced once, in reduce_grads."""

import numpy as np
import pytest

import libdsc as dsc
from reducer_ranks import everywhere

MICRO_BATCHES = 4


class Stage:
    """One stage of one replica, y = w * x. The model is the product of all stages."""

    def __init__(self, world):
        replicas = 2 if world.size == 4 else 1
        self.stages = world.size // replicas
        self.replica, self.stage = divmod(world.rank, self.stages)
        self.pipeline = world.split(self.replica, self.stage)
        self.group = world.split(self.stage, self.replica)
        self.weight = np.array([self.stage + 2.0])
        self.inputs, self.passes = {}, 0

    def forward(self, instruction, inputs, outputs):
        x = inputs[0].copy() if inputs else np.array([1.0 + instruction.micro_batch + 10 * self.replica])
        self.inputs[instruction.micro_batch] = x
        if not outputs:
            return float(x[0] * self.weight[0])
        outputs[0][...] = x * self.weight

    def gradient(self, instruction, output_grads, input_grads):
        grad = output_grads[0] if output_grads else np.array([1.0])
        if input_grads:
            input_grads[0][...] = grad * self.weight
        self.passes += 1
        return grad * self.inputs[instruction.micro_batch]

    def run(self, **callbacks):
        schedule = dsc.PipeSchedule("1f1b", stages=self.stages, stage=self.stage, micro_batches=MICRO_BATCHES)
        end = [((1,), "float64")]
        return self.pipeline.pipe_run(
            schedule, forward=self.forward, load_micro_batch=lambda *_: None,
            inputs=end if self.stage > 0 else [], outputs=end if self.stage < self.stages - 1 else [], **callbacks)

    def expected(self):
        """Returns the mean over the replicas of the sum of all inputs times all other weights."""
        replicas = self.group.size
        inputs = sum(1.0 + m + 10 * r for m in range(MICRO_BATCHES) for r in range(replicas)) / replicas
        return inputs * np.prod([s + 2.0 for s in range(self.stages) if s != self.stage])


def gradients_are_reduced_once(world):
    stage = Stage(world)
    with dsc.BucketReducer(stage.group, [stage.weight]) as reducer:
        grad = np.zeros(1)

        def backward(instruction, inputs, outputs, output_grads, input_grads):
            grads = stage.gradient(instruction, output_grads, input_grads)
            if instruction.micro_batch == MICRO_BATCHES - 1:
                grad[...] = grads
                reducer.mark_ready(0, grad)
            else:
                reducer.accumulate(0, grads)

        reducer.begin()
        stage.run(backward=backward, reduce_grads=lambda i: reducer.finish())
        assert (stage.passes, grad[0]) == (MICRO_BATCHES, stage.expected())
        assert reducer.op_stats()[0].count == 1 or stage.group.size == 1


def passes_under_no_sync_are_reduced_once(world):
    stage = Stage(world)
    with dsc.BucketReducer(stage.group, [stage.weight]) as reducer:

        def backward(instruction, inputs, outputs, output_grads, input_grads):
            reducer.begin()
            reducer.mark_ready(0, stage.gradient(instruction, output_grads, input_grads))
            reducer.finish()  # only accumulates

        def reduce_grads(instruction):
            reducer.begin()
            reducer.mark_unused(0)
            reducer.finish()

        with reducer.no_sync():
            stage.run(backward=backward)
        reduce_grads(None)
        assert (stage.passes, reducer.grad_view(0)[0]) == (MICRO_BATCHES, stage.expected())


def a_reduction_per_pass_is_refused(world):
    for kind in ("reducer", "shards"):
        stage = Stage(world)
        ours = dsc.BucketReducer(stage.group, [stage.weight]) if kind == "reducer" else dsc.Sharded(stage.group, [stage.weight])

        def backward(instruction, inputs, outputs, output_grads, input_grads):
            grads = stage.gradient(instruction, output_grads, input_grads)
            if instruction.micro_batch > 0:
                return
            ours.mark_ready(0, grads)
            with pytest.raises(dsc.StateError, match="finish is called inside the callback for backward of micro-batch 0 .*once per step"):
                ours.finish()

        with ours:
            ours.begin()
            stage.run(backward=backward, reduce_grads=lambda i: ours.finish())  # no gradient was lost


for body in (gradients_are_reduced_once, passes_under_no_sync_are_reduced_once, a_reduction_per_pass_is_refused):
    globals()[f"test_{body.__name__}"] = everywhere(body)
