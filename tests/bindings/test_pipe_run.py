"""Communicator.pipe_run(): pipelines of several ranks, each a process made by spawn()."""

import gc
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from conftest import ROOT
from test_ranks import SECONDS, ranks

import libdsc as dsc

sys.path.insert(0, str(ROOT / "tests" / "support"))
from repetitions import repetitions  # noqa: E402

MICRO_BATCHES = 4
NUMBER = [((3,), "float64")]


class Stage:
    """Computes y = 2 x in every element. The loss is the first y of the last stage."""

    def __init__(self, comm, schedule="1f1b", micro_batches=MICRO_BATCHES):
        self.comm, self.micro_batches = comm, micro_batches
        self.schedule = dsc.PipeSchedule(
            schedule, stages=comm.size, stage=comm.rank, micro_batches=micro_batches
        )
        self.loaded, self.grads, self.seen = {}, [], []
        self.ends = {"inputs": NUMBER if comm.rank else [], "outputs": NUMBER if comm.rank < comm.size - 1 else []}

    def load_micro_batch(self, instruction):
        self.loaded[instruction.micro_batch] = np.full(3, instruction.micro_batch + 1.0)

    def forward(self, instruction, inputs, outputs):
        self.seen.append(instruction)
        y = 2 * (inputs[0] if inputs else self.loaded[instruction.micro_batch])
        if not outputs:
            return y[0]
        outputs[0][:] = y
        return None

    def backward(self, instruction, inputs, outputs, output_grads, input_grads):
        grad = output_grads[0] if output_grads else np.full(3, 1 / self.micro_batches)
        x = inputs[0] if inputs else self.loaded[instruction.micro_batch]
        self.grads.append(float((x * grad)[2]))
        if input_grads:
            input_grads[0][:] = 2 * grad

    def other(self, instruction):
        self.seen.append(instruction)

    def run(self, **changed):
        callbacks = {name: getattr(self, name) for name in ("load_micro_batch", "forward", "backward")}
        callbacks |= {name: self.other for name in ("reduce_tied_grads", "reduce_grads", "optimizer_step")}
        return self.comm.pipe_run(self.schedule, **(callbacks | self.ends | changed))


def only_passes(world):
    stage = Stage(world)
    for micro_batch in range(MICRO_BATCHES):
        stage.loaded[micro_batch] = np.full(3, micro_batch + 1.0)
    nothing = dict.fromkeys(("load_micro_batch", "reduce_tied_grads", "reduce_grads", "optimizer_step"))
    return stage.run(**nothing), stage.grads, {str(instruction.op) for instruction in stage.seen}


def test_callbacks_with_nothing_to_do_may_be_missing():
    first, second = ranks(2, only_passes)
    assert first[0] == second[0] == 2 * 2 * np.mean([1, 2, 3, 4])
    assert first[2] == second[2] and len(first[2]) == 1  # only forward passes were recorded
    assert len(first[1]) == len(second[1]) == MICRO_BATCHES


def trains_twice(world, schedule):
    stage = Stage(world, schedule)
    losses = [stage.run(), stage.run()]
    expected = [i for i in stage.schedule if i.op in ("forward", "reduce_tied_grads", "reduce_grads", "optimizer_step")]
    return losses, sum(stage.grads), stage.seen == 2 * expected


@pytest.mark.parametrize("schedule", ["deepspeed_train", "gpipe", "1f1b"])
@pytest.mark.parametrize("n", [1, 3])
def test_losses_and_gradients(n, schedule):
    mean = 2**n * (1 + 2 + 3 + 4) / 4
    assert ranks(n, trains_twice, schedule) == [([mean, mean], 2 * mean / 2, True)] * n


def forgets(world, debug, which):
    """Stage 0 writes no output for micro-batch 2, or stage 1 writes no gradient for its input."""
    if debug:
        os.environ["DSC_PIPE_DEBUG"] = "1"
    stage = Stage(world)

    def forward(instruction, inputs, outputs):
        if which == "output" and outputs and instruction.micro_batch == 2:
            return None
        return Stage.forward(stage, instruction, inputs, outputs)

    def backward(instruction, inputs, outputs, output_grads, input_grads):
        forgotten = which == "gradient" and instruction.micro_batch == 2
        Stage.backward(stage, instruction, inputs, outputs, output_grads, [] if forgotten else input_grads)

    try:
        stage.run(forward=forward, backward=backward)
    except dsc.CallbackError as error:
        return str(error)
    return "nothing was said"


@pytest.mark.parametrize(
    "which, said",
    [
        ("output", "rank 0: the callback for forward of micro-batch 2 in buffer 2 did not write output 0"),
        ("gradient", "rank 1: the callback for backward of micro-batch 2 in buffer 2 did not write gradient of input 0"),
    ],
)
def test_a_callback_that_writes_nothing_is_found_by_a_switch(which, said):
    assert ranks(2, forgets, False, which) == ["nothing was said"] * 2
    for text in ranks(2, forgets, True, which):
        assert said.partition(" in buffer")[0] in text and said.rpartition("did not")[2] in text, text


def reuses_arrays(world):
    stage, arrays = Stage(world), []

    def forward(instruction, inputs, outputs):
        arrays.append((instruction.buffer, *(inputs or outputs)))
        return Stage.forward(stage, instruction, inputs, outputs)

    stage.run(forward=forward)
    stage.run(forward=forward)
    by_buffer = {}
    for buffer, array in arrays:
        by_buffer.setdefault(buffer, set()).add(id(array))
    kept, expected = arrays[0][1], arrays[0][1].copy()
    del stage, forward
    gc.collect()
    return all(len(found) == 1 for found in by_buffer.values()), (kept == expected).all()


def test_arrays_are_made_once_and_outlive_the_schedule():
    assert ranks(2, reuses_arrays) == [(True, True)] * 2


def keeps_arrays(world):
    """Runs with more memory, on another communicator and with the caller's memory, while arrays of the first run
    exist."""
    stage, kept, handles = Stage(world), [], []
    wider = {name: [((300_000,), "float64")] for name in stage.ends if stage.ends[name]}

    def forward(instruction, inputs, outputs):
        if instruction.micro_batch == 0 and len(kept) < 2:
            kept.append((outputs or inputs)[0])
        return None if outputs else 0.0

    def run(comm, **changed):
        stage.comm = comm
        stage.run(forward=forward, backward=lambda *_: None, **changed)
        handles.append(stage.schedule._handle)

    other = world.split(0)
    run(world)
    kept[0][:] = 5
    run(world, **wider)  # an array of the first run still exists, so the schedule continues with a new handle
    kept[0][0] += 1
    run(other, **wider)
    kept[1][-2:] = 5, 7
    found = kept[0].tolist(), kept[1][-2:].tolist()
    kept[1] = None
    run(world, memory=np.zeros(1 << 24, np.uint8), **wider)
    run(world, **wider)
    return [a != b for a, b in zip(handles, handles[1:])], found


def keeps_arrays_while_others_grow(world, variable):
    """The memory is replaced on all ranks, because the last two ranks exchange larger arrays."""
    stage, kept = Stage(world), []

    def forward(instruction, inputs, outputs):
        if len(kept) == 0 and outputs:
            kept.append(outputs.resize(0, (3,)) if variable else outputs[0])
        return None if outputs else 0.0

    def run(width):
        ends = {name: [((width,) if (name, world.rank) in (("outputs", 1), ("inputs", 2)) else (3,), "float64")] for name in stage.ends}
        ends = {name: shapes if stage.ends[name] else [] for name, shapes in ends.items()}
        stage.run(forward=forward, backward=lambda *_: None, variable_shapes=variable, **ends)

    run(3)
    if world.rank == 0:
        kept[0][:] = 5
    for width in (300_000, 600_000):
        run(width)
    if world.rank > 0:
        return None
    kept[0][0] += 1
    return kept[0].tolist()


@pytest.mark.parametrize("variable", [False, True])
def test_arrays_that_are_kept_outlive_memory_that_other_ranks_replace(variable):
    assert ranks(3, keeps_arrays_while_others_grow, variable)[0] == [6, 5, 5]


def test_arrays_that_are_kept_keep_their_memory():
    assert ranks(2, keeps_arrays) == [([True, True, False, False], ([6, 5, 5], [5, 7]))] * 2


def sends_two_tensors(world):
    ends = [((2, 3), "float32"), (4, "int32")]
    found = []

    def forward(instruction, inputs, outputs):
        for array in outputs:
            array[...] = 7 + instruction.micro_batch
        found.extend((a.shape, a.dtype.name, float(a.min()), float(a.max())) for a in inputs)
        return None if outputs else 0

    def backward(instruction, inputs, outputs, output_grads, input_grads):
        for array, grads in ((outputs, output_grads), (inputs, input_grads)):
            assert [g is None for g in grads] == [a.dtype == np.int32 for a in array]
        if input_grads:
            input_grads[0][...] = 0.5
        else:
            found.append((output_grads[0].shape, output_grads[0].dtype.name, float(output_grads[0].min())))

    stage = Stage(world, micro_batches=1)
    shapes = {"inputs": ends if world.rank else [], "outputs": [] if world.rank else ends}
    stage.run(forward=forward, backward=backward, **shapes)
    return found


def test_tensors_of_several_types():
    first, last = ranks(2, sends_two_tensors)
    assert first == [((2, 3), "float32", 0.5)]
    assert last == [((2, 3), "float32", 7, 7), ((4,), "int32", 7, 7)]


def only_forward(world):
    stage = Stage(world, "deepspeed_inference")

    def forward(instruction, inputs, outputs):
        result = stage.forward(instruction, inputs, outputs)
        return result if world.rank < world.size - 1 else None

    silent = world.pipe_run(stage.schedule, forward=forward, load_micro_batch=stage.load_micro_batch, **stage.ends)
    mean = world.pipe_run(stage.schedule, forward=stage.forward, load_micro_batch=stage.load_micro_batch, **stage.ends)
    return silent, mean


def test_inference():
    assert ranks(2, only_forward) == [(0.0, 10.0)] * 2


class OwnError(Exception):
    """An exception class that is not from the package."""


def fails(rank, failing, name):
    world = dsc.init_distributed(init_timeout=30, timeout=30)
    stage = Stage(world)

    def callback(instruction, *arrays):
        if rank == failing and instruction.micro_batch in (2, None):
            raise OwnError("broken")
        return getattr(stage, name)(instruction, *arrays)

    try:
        stage.run(**{name: callback})
    except OwnError as error:
        return "own", str(error)
    except dsc.CallbackError as error:
        with pytest.raises(dsc.RevokedError):
            world.barrier()
        return "other", error.rank, error.op, error.message
    raise AssertionError("the run succeeded")


@pytest.mark.parametrize("name, failing", [("forward", 1), ("backward", 2), ("load_micro_batch", 0)])
def test_an_exception_ends_the_run_everywhere(name, failing):
    found = dsc.spawn(fails, 3, (failing, name), timeout=SECONDS)
    assert found[failing] == ("own", "broken")
    for rank in {0, 1, 2} - {failing}:
        assert found[rank][:3] == ("other", failing, "pipe_run")
        assert f"the callback for {name} of micro-batch 2" in found[rank][3]


def misuses(world):
    stage, messages = Stage(world), []
    wrong_shape = {"outputs": [((4,), "float64")]} if world.rank == 0 else {}
    for kind, changed in [(dsc.InvalidArgError, {"backward": None}), (dsc.MismatchError, wrong_shape)]:
        with pytest.raises(kind) as caught:
            stage.run(**changed)
        messages.append(str(caught.value))
    with pytest.raises(TypeError, match="forward is a int; expected a function"):
        stage.run(forward=3)
    with pytest.raises(TypeError, match=r"inputs\[0\] is 5; expected a pair \(shape, dtype\)"):
        stage.run(inputs=[5])
    with pytest.raises(TypeError, match=r"^the dtype of inputs\[0\] is 'complex64'"):
        stage.run(inputs=[((3,), "complex64")])
    with pytest.raises(TypeError, match="schedule is a str; expected a PipeSchedule"):
        world.pipe_run("1f1b", forward=stage.forward)
    assert stage.run() == 10.0
    stage.schedule.close()
    with pytest.raises(dsc.BadHandleError):
        stage.run()
    return messages


def test_misuse_is_explained_on_all_ranks_and_harmless():
    first, second = ranks(2, misuses)
    assert first == second
    assert "no callback for backward" in first[0] and "[4]" in first[1] and "[3]" in first[1]


def forgets_the_loss(rank):
    stage = Stage(dsc.init_distributed(timeout=30))
    expected = TypeError if rank == 1 else dsc.CallbackError
    with pytest.raises(expected) as caught:
        stage.run(forward=lambda instruction, inputs, outputs: None)
    return str(caught.value)


def test_a_forgotten_loss():
    assert dsc.spawn(forgets_the_loss, 2, timeout=SECONDS)[1].startswith("forward returned None; expected a number, the loss")


def is_interrupted(rank, where, left):
    """Rank 1 interrupts rank 0, which waits for gradients and leaves before any arrive.

    Or rank 0 interrupts itself in a callback.
    """
    world = dsc.init_distributed(timeout=30)
    stage, pids = Stage(world), np.array([0])
    pids[0] = os.getpid()
    world.broadcast(pids)

    def forward(instruction, inputs, outputs):
        if where == "waiting" and rank == 1:
            time.sleep(0.3)
            os.kill(int(pids[0]), signal.SIGINT)
            end = time.monotonic() + SECONDS / 3
            while not left.exists() and time.monotonic() < end:
                time.sleep(0.01)
            assert left.exists()
        if where == "callback" and rank == 0 and instruction.micro_batch == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return stage.forward(instruction, inputs, outputs)

    try:
        stage.run(forward=forward)
    except BaseException as error:
        assert signal.set_wakeup_fd(-1) == -1
        if rank == 0:
            left.touch()
        return type(error).__name__
    return "nothing"


@pytest.mark.parametrize("where", ["waiting", "callback"])
def test_ctrl_c(where, tmp_path):
    found = dsc.spawn(is_interrupted, 2, (where, tmp_path / "left"), timeout=SECONDS)
    assert found[0] == "KeyboardInterrupt" and found[1] in ("CallbackError", "RevokedError")


def is_interrupted_often(rank):
    """Ctrl-C arrives at times that are often between the library's call and the first line of a callback."""
    world = dsc.init_distributed(timeout=30)
    unraisable = []
    sys.unraisablehook = unraisable.append
    for attempt in range(repetitions(20, least=5)):
        group = world.split(0)
        stage = Stage(group, micro_batches=500)
        timer = threading.Timer(0.01 + attempt % 20 / 1000, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            while True:
                stage.seen.clear()
                stage.run()
        timer.join()
        seen = [instruction.micro_batch for instruction in stage.seen]
        assert seen[:500] == list(range(min(500, len(seen)))), "a callback was left out"
        group.close()
    assert sys.unraisablehook == unraisable.append
    return unraisable


def test_no_ctrl_c_is_lost():
    assert dsc.spawn(is_interrupted_often, 1, timeout=SECONDS) == [[]]


def calls_the_library(world):
    """2 x 2 ranks. A callback of a pipeline run uses another group, that of the ranks of the same stage."""
    pipeline, twins = world.split(world.rank // 2), world.split(world.rank % 2)
    stage, total = Stage(pipeline), np.array([world.rank + 1.0])

    def reduce_grads(instruction):
        twins.all_reduce(total)

    loss = stage.run(reduce_grads=reduce_grads)
    assert signal.set_wakeup_fd(-1) == -1
    return loss, total[0]


def test_callbacks_may_use_other_groups():
    assert ranks(4, calls_the_library) == [(10.0, 4.0), (10.0, 6.0)] * 2


def test_ranks_as_threads_of_one_process():
    results = {}

    def body(rank):
        world = dsc.init_distributed(rank=rank, world_size=2, rank_per_thread=True, job_id=f"pipe-{os.getpid()}")
        results[rank] = Stage(world).run()
        dsc.finalize()

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert results == {0: 10.0, 1: 10.0}


RETURNED = {"an array": np.ones(3), "a number": 1.0, "a list": [np.ones(3)], "a truth value": True}


def returns_instead_of_writing(world, what, where):
    """The stage also writes its outputs, so only its return value is wrong."""
    stage, started = Stage(world), []

    def forward(instruction, inputs, outputs):
        returned = Stage.forward(stage, instruction, inputs, outputs)
        return RETURNED[what] if outputs and where == "forward" else returned

    def backward(instruction, inputs, outputs, output_grads, input_grads):
        started.append(instruction.op)
        Stage.backward(stage, instruction, inputs, outputs, output_grads, input_grads)
        return RETURNED[what] if input_grads and where == "backward" else None

    at_fault = (where == "forward") == (world.rank == 0)
    with pytest.raises(TypeError if at_fault else dsc.CallbackError) as raised:
        stage.run(forward=forward, backward=backward)
    return str(raised.value), len(stage.seen), len(started)


@pytest.mark.parametrize("what", RETURNED)
def test_a_result_that_is_returned_instead_of_written(what):
    kind = type(RETURNED[what]).__name__
    (text, calls, _), (other, received, _) = ranks(2, returns_instead_of_writing, what, "forward")
    said = f"forward returned a {kind}; expected None on this stage; write the result into the array instead: outputs[0][...] = y"
    assert text == said and said in other
    assert calls == 1 and received == 0  # nothing was sent to the next stage


def test_gradients_that_are_returned_instead_of_written():
    (_, _, received), (text, _, _) = ranks(2, returns_instead_of_writing, "an array", "backward")
    assert text == "backward returned a ndarray; expected None on this stage; write the result into the array instead: input_grads[0][...] = g"
    assert received == 0


LOSSES = {"text": "1.0", "array": np.ones(3), "tuple": (1.0, 2.0)}


def returns_no_loss(rank, what):
    stage = Stage(dsc.init_distributed(timeout=30))
    with pytest.raises(TypeError if rank == 1 else dsc.CallbackError) as raised:
        stage.run(forward=lambda *call: Stage.forward(stage, *call) if rank == 0 else LOSSES[what])
    return str(raised.value)


@pytest.mark.parametrize("what", LOSSES)
def test_a_loss_is_a_number(what):
    kind = type(LOSSES[what]).__name__
    said = f"forward returned a {kind}; expected a number, the loss of the micro-batch, on the last stage"
    first, last = dsc.spawn(returns_no_loss, 2, (what,), timeout=SECONDS)
    assert last == said and said in first
