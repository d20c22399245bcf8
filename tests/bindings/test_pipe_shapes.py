"""Communicator.pipe_run() with shapes that differ between micro-batches, and in the caller's memory."""

import numpy as np
import pytest
from test_ranks import ranks

import libdsc as dsc

MOST = [((4, 3), "float32"), (6, "int32")]  # rows of numbers, and word lengths
MICRO_BATCHES = 6


def rows_of(part, micro_batch):
    return (part + micro_batch) % 5


class Stage:
    """Part p outputs rows_of(p, m) rows of p + m, and m times the number p."""

    def __init__(self, comm, name, assigns=True):
        self.comm, self.assigns = comm, assigns
        self.schedule = dsc.PipeSchedule(name, stages=comm.size, stage=comm.rank, micro_batches=MICRO_BATCHES)
        self.parts = comm.size * self.schedule.chunks
        back = self.schedule.placement == "zigzag"
        self.part = [
            c * comm.size + (comm.size - 1 - comm.rank if back and c % 2 else comm.rank)
            for c in range(self.schedule.chunks)
        ]
        self.ends = {
            "inputs": MOST if any(p > 0 for p in self.part) else [],
            "outputs": MOST if any(p < self.parts - 1 for p in self.part) else [],
            "variable_shapes": True,
        }

    def numbers(self, part, m):
        return np.full((rows_of(part, m), 3), part + m, np.float32)

    def words(self, part, m):
        return np.full(m, part, np.int32)

    def same(self, arrays, part, m):
        assert len(arrays) == 2
        np.testing.assert_array_equal(arrays[0], self.numbers(part, m))
        np.testing.assert_array_equal(arrays[1], self.words(part, m))

    def forward(self, it, inputs, outputs):
        part, m = self.part[it.chunk], it.micro_batch
        if part > 0:
            self.same(inputs, part - 1, m)
        if part == self.parts - 1:
            return m
        assert [a.shape for a in outputs] == [(4, 3), (6,)]
        if self.assigns:
            outputs[0], outputs[-1] = self.numbers(part, m), self.words(part, m)
        else:
            outputs.resize(0, (rows_of(part, m), 3))[...] = part + m
            outputs.resize(1, m)[:] = part
        self.same(outputs, part, m)
        return None

    def backward(self, it, inputs, outputs, output_grads, input_grads):
        part, m = self.part[it.chunk], it.micro_batch
        if part > 0:
            self.same(inputs, part - 1, m)
            assert input_grads[0].shape == inputs[0].shape and input_grads[1] is None
            input_grads[0][...] = 10 * part
        if part < self.parts - 1:
            self.same(outputs, part, m)
            np.testing.assert_array_equal(output_grads[0], np.full((rows_of(part, m), 3), 10 * (part + 1)))

    def run(self, **changed):
        callbacks = {"forward": self.forward, "backward": self.backward}
        callbacks |= {"backward_input": self.backward, "backward_weight": lambda *_: None}
        ends = ("load_micro_batch", "reduce_tied_grads", "reduce_grads", "optimizer_step")
        callbacks |= {name: lambda it: None for name in ends}
        return self.comm.pipe_run(self.schedule, **(callbacks | self.ends | changed))


def runs(world, name, assigns):
    stage = Stage(world, name, assigns)
    return [stage.run(), stage.run()]


@pytest.mark.parametrize("name", ["1f1b", "zb_v", "interleaved_1f1b"])
@pytest.mark.parametrize("assigns", [True, False])
def test_shapes_vary(name, assigns):
    assert ranks(3, runs, name, assigns) == [[2.5, 2.5]] * 3


def attempts(world):
    stage, said, kept = Stage(world, "1f1b"), [], []

    def attempt(call, *args):
        try:
            call(*args)
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")

    def forward(it, inputs, outputs):
        if it.micro_batch != 0 or not outputs:
            return stage.forward(it, inputs, outputs)
        kept.append(outputs)
        attempt(outputs.resize, 0, (5, 3))
        attempt(outputs.resize, 0, (2, 2, 2))
        attempt(outputs.resize, 0, (-1, 3))
        attempt(outputs.__getitem__, 2)
        attempt(outputs.__setitem__, 1, np.full(2, 0.5))
        outputs[0] = np.ones((1, 12))  # float64 is converted to float32, and the shape to that of the output
        said.append([a.shape for a in outputs])
        outputs[0], outputs[1] = stage.numbers(world.rank, 0), stage.words(world.rank, 0)
        return None

    stage.run(forward=forward)
    for outputs in kept:
        attempt(outputs.resize, 0, (1, 3))
        attempt(outputs.__getitem__, 0)
    return said


def test_outputs_say_what_does_not_fit():
    assert ranks(2, attempts)[0] == [
        "ValueError: shape is (5, 3); expected at most 12 elements, those of (4, 3)",
        "ValueError: shape is (2, 2, 2); expected 2 dimensions, as outputs[0] has",
        "ValueError: shape[0] is -1; expected 0 to 2**63 - 1",
        "IndexError: outputs[2] does not exist; the number of outputs is 2",
        "TypeError: Cannot cast array data from dtype('float64') to dtype('int32') according to the rule 'same_kind'",
        [(1, 12), (2,)],
        *["RuntimeError: these outputs belong to a callback that has returned; they can be used only inside that callback"] * 2,
    ]


def differs(world):
    stage = Stage(world, "1f1b")
    with pytest.raises(dsc.errors.MismatchError) as caught:
        stage.run(variable_shapes=world.rank == 0)
    return str(caught.value), stage.run()


def test_variable_on_one_rank():
    for said, mean in ranks(2, differs):
        assert "chunks 1) with variable shapes, rank 1 runs 1f1b" in said
        assert mean == 2.5


def in_own_memory(world):
    stage = Stage(world, "zb_v")
    size = stage.schedule.run_bytes(**stage.ends)
    memory = np.zeros(size + 8, np.uint8)
    with pytest.raises(dsc.InvalidArgError, match=f"expected at least {size}"):
        stage.run(memory=memory[1:size])
    losses = [stage.run(memory=memory[4:-4]), stage.run(memory=bytearray(size)), stage.run()]
    return losses, memory[:4].any() or memory[-4:].any(), memory.any()


def test_memory_of_the_caller():
    assert ranks(2, in_own_memory) == [([2.5, 2.5, 2.5], False, True)] * 2


def raises_in_forward(world):
    stage = Stage(world, "1f1b")

    def forward(it, inputs, outputs):
        if world.rank == 1:
            inputs[0] = np.zeros(3)
        return stage.forward(it, inputs, outputs)

    try:
        stage.run(forward=forward)
    except (TypeError, dsc.CallbackError) as error:
        return str(error)


def test_every_rank_is_told_what_was_raised():
    words = "the array at index 0 cannot be replaced; write into it with [0][...] = value"
    told, own, other = ranks(3, raises_in_forward)
    assert own == words
    for said in (told, other):
        assert f"rank 1: the callback for forward of micro-batch 0 in step 0 returned 1: TypeError: {words}" in said


def test_a_pair_is_no_list_of_pairs():
    schedule = dsc.PipeSchedule("1f1b", stages=2, stage=0, micro_batches=2)
    with pytest.raises(TypeError, match="expected a list of pairs"):
        schedule.run_bytes(outputs=((10, 4), "float32"))
    assert schedule.run_bytes(outputs=(((10, 4), "float32"),)) == schedule.run_bytes(outputs=[((10, 4), "float32")])


def in_bad_memory(world):
    stage = Stage(world, "1f1b")
    said = []
    for memory in (np.zeros(10, np.uint8), bytes(1 << 16), np.zeros((200, 200), np.uint8)[:, ::2], 7):
        with pytest.raises((dsc.errors.InvalidArgError, ValueError, TypeError)) as caught:
            stage.run(memory=memory)
        said.append(str(caught.value))
    return said, stage.run()


def test_memory_that_will_not_do():
    for said, mean in ranks(2, in_bad_memory):
        assert "rank 0: memory has 10 bytes, expected at least" in said[0]
        assert "memory is read-only" in said[1]
        assert "memory is not contiguous" in said[2]
        assert "memory is a int; expected an array" in said[3]
        assert mean == 2.5
