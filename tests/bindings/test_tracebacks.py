"""Tracebacks show the program's lines and one frame of the package, unless the package itself has failed."""

import asyncio
import inspect
import os
import pickle
import traceback

import numpy as np
import pytest

import libdsc as dsc
from libdsc import _collectives, _ops
from test_ranks import ranks

PACKAGE = os.path.dirname(dsc.__file__)


def frames(error):
    """Returns (is of the package, function) for each frame, from the test's own frame on."""
    found = traceback.extract_tb(error.__traceback__)
    return [(os.path.dirname(frame.filename) == PACKAGE, frame.name) for frame in found][1:]


def raised_by(call):
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


CALLS = {
    "all_reduce": lambda w, x: w.all_reduce(x, op="mean"),
    "broadcast": lambda w, x: w.broadcast(x, root=5),
    "send": lambda w, x: w.send(x[::2], 0),
    "recv": lambda w, x: w.recv(x, 7),
    "reduce": lambda w, x: w.reduce(x, out=np.zeros(3)),
    "gather": lambda w, x: w.gather(None, x),
    "scatter": lambda w, x: w.scatter(x),
    "all_gather": lambda w, x: w.all_gather([x, x], x),
    "reduce_scatter": lambda w, x: w.reduce_scatter(x, np.zeros(3)),
    "all_to_all": lambda w, x: w.all_to_all([x], None),
    "isend": lambda w, x: w.isend("text", 0),
    "split": lambda w, x: w.split("a"),
    "create_group": lambda w, x: w.create_group([0, "b"]),
    "local_rank": lambda w, x: closed(w).local_rank,
    "nonfinite_check": lambda w, x: setattr(w, "nonfinite_check", "sometimes"),
    "monitored_barrier": lambda w, x: w.monitored_barrier(0),
    "progress": lambda w, x: closed(w).progress(),
    "source": lambda w, x: closed(w).source,
    "empty": lambda w, x: w.empty(-1),
    "dump_trace": lambda w, x: w.dump_trace("/dev/null"),
    "broadcast_object": lambda w, x: w.broadcast_object(lambda: 0),
    "pipe_run": lambda w, x: w.pipe_run("1f1b", forward=print),
    "init_distributed": lambda w, x: dsc.init_distributed("horse"),
    "average_gradients": lambda w, x: dsc.average_gradients(w, {"a": 3}),
    "verify_params": lambda w, x: dsc.verify_params(w, [3]),
    "simulate_pipeline": lambda w, x: dsc.simulate_pipeline("1f1b", 2, 4, overlap=7),
    "partition_layers": lambda w, x: dsc.partition_layers([1, "a"], 2),
    "plan_buckets": lambda w, x: dsc.plan_buckets([(1, "what")]),
    "premul": lambda w, x: dsc.premul("a"),
    "set_log": lambda w, x: dsc.set_log(print, "loud"),
    "spawn": lambda w, x: dsc.spawn(print, 0),
}


def closed(world):
    group = world.split(0)
    group.close()
    return group


@pytest.mark.parametrize("name", CALLS)
def test_one_frame(world, name):
    error = raised_by(lambda: CALLS[name](world, np.zeros(4)))
    assert [entry for entry in frames(error) if entry[0]] == [(True, name)], traceback.format_exception(error)
    assert frames(error)[-1] == (True, name)


@pytest.mark.parametrize("call", ["all_reduce", "all_reduce_rms_norm", "tensor_map", "moe_plan", "batch", "sequence_to_heads"])
def test_errors_about_arguments_name_the_public_class(world, call):
    with pytest.raises(TypeError, match=rf"^Communicator\.{call}\(\) got an unexpected keyword argument 'wrong'"):
        getattr(world, call)(wrong=1)
    with pytest.raises(TypeError, match=r"^BucketReducer\.set_hook\(\) got an unexpected"):
        dsc.BucketReducer.set_hook(None, wrong=1)


@pytest.mark.parametrize(
    "construct",
    [
        lambda w: dsc.BucketReducer(w, [np.zeros(6)[::2]]),
        lambda w: dsc.PipeSchedule("1f1b", 2, 4),
        lambda w: dsc.Mesh({"a": 3}, 4),
        lambda w: dsc.Ring(w, -1),
        lambda w: dsc.TiedLayers(w, {"k": [0]}, {"k": "text"}),
    ],
)
def test_constructors(world, construct):
    assert [entry for entry in frames(raised_by(lambda: construct(world))) if entry[0]] == [(True, "__init__")]


def test_calls_with_wrong_arguments_are_the_programs_fault(world):
    assert [own for own, _ in frames(raised_by(lambda: world.all_reduce()))] == [False]
    assert [entry for entry in frames(raised_by(lambda: world.split())) if entry[0]] == [(True, "split")]


def test_objects(world):
    group = world.split(0)
    reducer = dsc.BucketReducer(group, [np.zeros(3)])
    for call, name in (
        (lambda: reducer.mark_ready(7), "mark_ready"),
        (lambda: reducer.accumulate(0, np.zeros(4)), "accumulate"),
        (lambda: reducer.finish(), "finish"),
        (lambda: reducer([np.zeros(4)]), "__call__"),
    ):
        assert [entry for entry in frames(raised_by(call)) if entry[0]] == [(True, name)]
    group.abort()
    assert frames(raised_by(lambda: group.all_reduce(np.zeros(3))))[-1:] == [(True, "all_reduce")]
    reducer.close()
    assert [entry for entry in frames(raised_by(lambda: reducer.begin())) if entry[0]] == [(True, "begin")]


def test_frames_of_functions_of_the_program_stay(world):
    def inner():
        raise KeyError("mine")

    def forward(instruction, inputs, outputs):
        inner()

    group = world.split(0)
    schedule = dsc.PipeSchedule("1f1b", stages=1, stage=0, micro_batches=2)
    do_nothing = lambda *_: None  # noqa: E731
    rest = {"backward": do_nothing, "load_micro_batch": do_nothing, "optimizer_step": do_nothing}
    rest |= {"reduce_grads": do_nothing, "reduce_tied_grads": do_nothing}
    error = raised_by(lambda: group.pipe_run(schedule, forward=forward, **rest))
    assert isinstance(error, KeyError)
    assert [name for _, name in frames(error)][-3:] == ["pipe_run", "forward", "inner"]
    assert sum(own for own, _ in frames(error)) == 1

    class Breaks:
        @property
        def __array_interface__(self):
            inner()

    error = raised_by(lambda: world.all_reduce(Breaks()))
    assert [name for _, name in frames(error)][-3:] == ["all_reduce", "__array_interface__", "inner"]


def fails_in_function(world):
    def broken(earlier, later):
        raise KeyError("in the function")

    error = raised_by(lambda: world.all_reduce(np.zeros(4), op=dsc.user_op(broken, 1)))
    cause = error.__cause__
    return type(error).__name__, frames(error)[-1], str(cause), [f.name for f in traceback.extract_tb(cause.__traceback__)][-1]


def in_split_world(world):
    """The failure ends the group, not the world."""
    return fails_in_function(world.split(0))


def test_the_cause_of_an_exception_stays():
    found = ranks(2, in_split_world)
    assert all(entry[:2] == ("CallbackError", (True, "all_reduce")) for entry in found)
    assert any(entry[2:] == ("'in the function'", "broken") for entry in found)


def without_peer(world):
    group = world.split(0)
    error = None
    if world.rank == 0:
        work = group.barrier(async_op=True)
        group.abort()
        errors = [raised_by(work.wait) for _ in range(3)]
        assert all([entry for entry in frames(error) if entry[0]] == [(True, "wait")] for error in errors)

        async def awaits():
            await work

        error = [name for own, name in frames(raised_by(lambda: asyncio.run(awaits()))) if own]
    world.barrier()
    return error


def test_works_that_fail_again_and_again():
    """Each wait raises the same exception, and its traceback does not grow."""
    assert ranks(2, without_peer)[0] == ["_wait_async"]


def test_a_fault_of_the_package_keeps_its_frames(world, monkeypatch):
    def broken(op):
        return {}["a name that nobody knows"]

    monkeypatch.setattr(_collectives, "number_of", broken)
    monkeypatch.setattr(broken, "__code__", broken.__code__.replace(co_filename=_ops.__file__))
    error = raised_by(lambda: world.all_reduce(np.zeros(3)))
    assert isinstance(error, KeyError)
    assert frames(error)[-1] == (True, "broken") and (True, "all_reduce") in frames(error)


def test_an_internal_error_keeps_its_frames(world, monkeypatch):
    def fails(*_):
        raise dsc.InternalError("a fault of the library")

    monkeypatch.setattr(fails, "__code__", fails.__code__.replace(co_filename=_ops.__file__))
    monkeypatch.setattr(_collectives, "number_of", fails)
    assert frames(raised_by(lambda: world.all_reduce(np.zeros(3))))[-1] == (True, "fails")


def test_the_standard_library_keeps_the_frames_before_it(world, monkeypatch):
    """The package may have passed a wrong value to the standard library."""
    monkeypatch.setattr(dsc._communicator, "text_of", lambda *_: "{")
    error = raised_by(world.trace)
    assert "trace" in [name for own, name in frames(error) if own]
    assert frames(error)[-1] == (False, "raw_decode")
    names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert any(name.endswith("_communicator.py") for name in names)


def test_all_frames_on_demand(world, monkeypatch):
    monkeypatch.setenv("DSC_PYTHON_TRACEBACK", "full")
    assert sum(own for own, _ in frames(raised_by(lambda: world.all_reduce(np.zeros(4), op="mean")))) > 2


def test_a_program_sees_the_functions_as_they_are_written():
    assert list(inspect.signature(dsc.init_distributed).parameters)[:2] == ["dist_backend", "backend"]
    assert "color" in inspect.signature(dsc.Communicator.split).parameters
    assert dsc.spawn.__doc__ and dsc.Communicator.local_rank.__doc__
    assert pickle.loads(pickle.dumps(dsc.spawn)) is dsc.spawn
    assert pickle.loads(pickle.dumps(dsc.Communicator.split)) is dsc.Communicator.split


def test_what_programs_call_often_has_no_wrapper():
    often = {
        dsc.Communicator: "all_reduce broadcast all_gather reduce_scatter all_to_all barrier reduce gather scatter send recv",
        dsc.Work: "test wait synchronize",
        dsc.BucketReducer: "begin accumulate mark_ready mark_unused grad_view finish",
    }
    for kind, names in often.items():
        for name in names.split():
            assert not hasattr(getattr(kind, name), "__wrapped__"), name
    assert not hasattr(dsc.Communicator.rank.fget, "__wrapped__")
    assert hasattr(dsc.Communicator.split, "__wrapped__")
