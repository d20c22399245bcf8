"""Pipeline schedules through the Python package. The library's own tests have the recorded vectors."""

import gc

import pytest

import libdsc as dsc
from libdsc import PipeInstruction

NAMES = ["deepspeed_train", "deepspeed_inference", "data_parallel", "gpipe", "1f1b"]


def schedule(name="1f1b", stages=4, stage=1, micro_batches=8, **more):
    return dsc.PipeSchedule(name, stages=stages, stage=stage, micro_batches=micro_batches, **more)


def test_instructions():
    assert list(schedule("gpipe", 2, 0, 1)) == [
        PipeInstruction(0, "load_micro_batch", 0, 0, 0, None),
        PipeInstruction(0, "forward", 0, 0, 0, None),
        PipeInstruction(1, "send_activation", 0, 0, 0, 1),
        PipeInstruction(1, "recv_grad", 0, 0, 0, 1),
        PipeInstruction(1, "backward", 0, 0, 0, None),
        PipeInstruction(1, "reduce_tied_grads", None, None, None, None),
        PipeInstruction(1, "reduce_grads", None, None, None, None),
        PipeInstruction(1, "optimizer_step", None, None, None, None),
    ]


def test_the_order_of_the_design():
    it = schedule("deepspeed_train", 4, 1, 8, chunks=1)
    computed = [(i.op, i.micro_batch) for i in it if i.op in ("forward", "backward")]
    assert computed[:5] == [("forward", 0), ("forward", 1), ("forward", 2), ("backward", 0), ("forward", 3)]
    assert (it.steps, it.buffers) == (22, 3)


@pytest.mark.parametrize("name", NAMES)
def test_iterated_as_often_as_one_likes(name):
    it = schedule(name)
    instructions = list(it)
    assert len(it) == len(instructions) > it.steps / 2
    assert list(it) == instructions
    half = iter(it)
    assert [next(half) for _ in range(3)] == instructions[:3]
    assert list(it) == instructions
    assert {i.step for i in instructions} <= set(range(it.steps))
    assert all(0 <= i.buffer < it.buffers for i in instructions if i.buffer is not None)


def test_length_leaves_an_iteration_alone():
    it = schedule()
    walk = iter(it)
    first = next(walk)
    assert 1 + len(list(walk)) == len(it)
    walk = iter(it)
    assert next(walk) == first
    assert len(schedule()) == len(it)
    assert len(it) == 1 + len(list(walk))


def test_two_iterations_at_once():
    it = schedule()
    first, second = iter(it), iter(it)
    assert next(second).step == 0
    next(first)
    with pytest.raises(RuntimeError, match="a second loop"):
        next(first)


def test_steps():
    it = schedule("deepspeed_train")
    assert it.step(0) == (None, False)
    assert it.step(1) == dsc.PipeStep(micro_batch=0, is_forward=True)
    assert it.step(it.steps - 2) == (7, False)
    computed = [it.step(k) for k in range(it.steps)]
    assert [s.micro_batch for s in computed if s.is_forward and s.micro_batch is not None] == list(range(8))
    for wrong in (-1, it.steps, 2**64):
        with pytest.raises(IndexError, match=f"no step {wrong}; this schedule has 22"):
            it.step(wrong)


def test_a_schedule_that_nobody_could_store():
    it = schedule("deepspeed_train", 1024, 5, 2**30)
    assert it.steps == 2 * (2**30 + 1023)
    assert next(iter(it)) == PipeInstruction(5, "recv_activation", 0, 0, 0, 4)
    assert it.step(it.steps - 6) == (2**30 - 1, False)


def test_attributes_and_repr():
    it = schedule()
    assert (it.name, it.stages, it.stage, it.micro_batches, it.chunks) == ("1f1b", 4, 1, 8, 1)
    assert repr(it) == "<libdsc.PipeSchedule '1f1b', stage 1 of 4, 8 micro-batches>"
    assert "op='recv_activation', micro_batch=0" in repr(next(iter(it)))
    it.close()
    assert repr(it) == "<libdsc.PipeSchedule '1f1b', stage 1 of 4, 8 micro-batches, closed>"


def test_closing():
    with schedule() as it:
        walk = iter(it)
        next(walk)
    it.close()
    for use in (lambda: it.steps, lambda: it.buffers, lambda: iter(it), lambda: next(walk), lambda: it.step(0)):
        with pytest.raises(dsc.BadHandleError):
            use()


def test_nothing_stays_behind():
    handles = {schedule("data_parallel")._handle for _ in range(3)}
    gc.collect()
    for handle in handles:
        with pytest.raises(dsc.BadHandleError):
            dsc._pipe.check(dsc._pipe.lib.dsc_pipe_schedule_reset(handle))


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        (("1f1",), dsc.InvalidArgError, 'unknown schedule "1f1"; did you mean "1f1b"'),
        (("custom",), dsc.InvalidArgError, "needs a list of operations for each stage; use"),
        (("1f1b\0",), ValueError, "expected a string without zero bytes"),
        ((None,), TypeError, "name is None; expected a string"),
        (("1f1b", 0), dsc.InvalidArgError, "stages is 0, expected 1 or more"),
        (("1f1b", 4, 4), dsc.InvalidArgError, "stage is 4, expected 0 to 3"),
        (("1f1b", 4, 0, 0), dsc.InvalidArgError, "micro_batches is 0, expected 1 or more"),
        (("1f1b", 4, 0, 2**32 + 8), ValueError, "micro_batches is 4294967304"),
        (("1f1b", 4, 0, 2.0), TypeError, "micro_batches is 2.0; expected an integer"),
        (("1f1b", 1, 0, 2**31 - 1), dsc.OverflowError, "2147483647 micro-batches"),
    ],
)
def test_refusals(arguments, error, text):
    with pytest.raises(error, match=text):
        schedule(*arguments)
    with pytest.raises(dsc.InvalidArgError, match="chunks is 2"):
        schedule(chunks=2)
