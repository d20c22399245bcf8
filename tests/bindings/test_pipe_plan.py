"""Schedules of whole pipelines through the Python package: orders, texts, pictures and simulation."""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

import libdsc as dsc

NAMES = {
    "gpipe": 1,
    "1f1b": 1,
    "interleaved_1f1b": 2,
    "looped_bfs": 2,
    "zb_h1": 1,
    "zb_h2": 1,
    "zb_v": 2,
    "v_half": 2,
    "v_min": 2,
    "dualpipe_v": 2,
}


def whole(name="zb_v", stages=4, micro_batches=8, **more):
    return dsc.PipeSchedule(name, stages=stages, micro_batches=micro_batches, **more)


@pytest.mark.parametrize("name", NAMES)
def test_every_schedule(name):
    plan = whole(name)
    assert (plan.name, plan.stages, plan.stage, plan.chunks) == (name, 4, None, NAMES[name])
    with pytest.raises(dsc.StateError, match="for the whole pipeline, expected the schedule of one stage"):
        list(plan)
    for stage in range(4):
        computed = [it for it in plan.at_stage(stage) if it.op in ("forward", "backward", "backward_input", "backward_weight")]
        assert [(it.op, it.chunk, it.micro_batch) for it in computed] == [it[:3] for it in plan.order(stage)]
        forward = [(it.chunk, it.micro_batch) for it in computed if it.op == "forward"]
        assert sorted(forward) == [(chunk, m) for chunk in range(plan.chunks) for m in range(8)]
    assert len(plan.at_stage(0)) == len(list(plan.at_stage(0)))


def test_texts():
    plan = whole()
    for format in ("pytorch", "pytorch_comms", "json"):
        read = dsc.PipeSchedule.read(plan.write(format), format, stage=1)
        assert read.orders() == plan.orders() and read.placement == "zigzag" and read.stage == 1
        assert read.write(format) == plan.write(format)
    assert whole("1f1b", 2, 2).write("pytorch") == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert whole("1f1b", 2, 2).write("megatron") == "[1, 1, -1, -1]\n[1, -1, 1, -1]\n"
    assert whole("deepspeed_train", 2, 2).write("deepspeed").splitlines()[1] == (
        "step 0: LoadMicroBatch(buffer_id=0), ForwardPass(buffer_id=0)"
    )
    with pytest.raises(dsc.InvalidArgError, match="backward_input, expected only forward and backward"):
        whole("zb_h1").write("megatron")
    with pytest.raises(ValueError, match="format is 'csv'; expected one of 'pytorch', "):
        plan.write("csv")


@pytest.mark.parametrize(
    "text, words",
    [
        ("0F0,0X0", "line 1, column 6"),
        ("0F0\n", "no backward of micro-batch 0"),
        ("0F0,0B0\n1B0,1F0\n", "stage 1: operation 0, backward of micro-batch 0 in chunk 0, comes before its forward"),
        ("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n", "these stages wait for each other"),
    ],
)
def test_a_wrong_text(text, words):
    if words.startswith("no backward"):
        assert dsc.PipeSchedule.read(text, "pytorch").forward_only
        return
    with pytest.raises(dsc.InvalidArgError, match=words):
        dsc.PipeSchedule.read(text, "pytorch")


def test_an_order_of_ones_own():
    orders = [[("forward", 0, 0), None, ("backward", 0, 0)], [("forward", 0, 0), ("backward", 0, 0)]]
    plan = dsc.PipeSchedule.custom(orders, micro_batches=1, name="mine")
    assert plan.name == "mine" and plan.order(0)[1].op is None
    assert [it.step for it in plan.at_stage(0) if it.op in ("forward", "backward")] == [0, 2]
    assert plan.at_stage(0).step(1).micro_batch is None
    again = dsc.PipeSchedule.custom(whole().orders(), 8, 2, placement="zigzag")
    assert again.orders() == whole().orders()
    with pytest.raises(ValueError, match=r"orders\[0\]\[0\] is 'fwd'; expected the name of an operation"):
        dsc.PipeSchedule.custom([[("fwd", 0, 0)]], 1)
    with pytest.raises(TypeError, match=r"orders\[0\]\[0\] is \('forward', 0\); expected \(operation, chunk, micro-batch\)"):
        dsc.PipeSchedule.custom([[("forward", 0)]], 1)
    with pytest.raises(TypeError, match="text is b'0F0'; expected a string"):
        dsc.PipeSchedule.read(b"0F0", "pytorch")
    with pytest.raises(dsc.InvalidArgError, match="stage 0: there is no backward of micro-batch 0"):
        dsc.PipeSchedule.custom([[("forward", 0, 0)]], 1)


def test_the_simulation_of_the_design():
    it = dsc.simulate_pipeline(
        "zb_h1", stages=4, micro_batches=8, chunks=1, forward=1, backward_input=1, backward_weight=1, comm=0
    )
    assert it.makespan == 27 and it.idle == [3] * 4
    assert max(it.own_window_idle) == 3 and it.peak_activations == [4] * 4
    assert it.timeline == [] and it.critical_path == []


def test_costs_of_parts():
    it = dsc.simulate_pipeline(
        whole("1f1b", 2, 3), forward=[1, 4], comm=0.5, activation_bytes=10, static_bytes=[5, 7], timeline=True
    )
    # Stage 0 sends its first output at 1. From 1.5 on, stage 1 runs three forward passes (4) and backward passes (2).
    # It ends at 19.5. The last gradient arrives at 20, and the backward pass of stage 0 takes 2.
    assert it.makespan == 22 and it.busy == [9, 18] and it.peak_bytes == [25, 17]
    assert it.timeline[0] == dsc.PipeSpan(0, "forward", 0, 0, 0.0, 1.0) and len(it.timeline) == 12


def test_a_critical_path():
    it = dsc.simulate_pipeline(whole("1f1b"), critical_path=True, comm=1)
    assert it.critical_path[0].start == 0 and it.critical_path[-1].end == it.makespan
    for one, other in zip(it.critical_path, it.critical_path[1:]):
        assert other.start - one.end == (0 if one.stage == other.stage else 1)


def test_gradients_are_reduced_beside_the_backward_pass():
    alone = dsc.simulate_pipeline("1f1b", 2, 4)
    it = dsc.simulate_pipeline("1f1b", 2, 4, gradient_bytes=100, bucket_bytes=50, reduce_bytes_per_time=100)
    assert alone.reduced == [0, 0] and alone.makespan == 15
    assert it.reduced == [15.5, 13.5] and it.makespan == 15.5


@pytest.mark.parametrize(
    "arguments, costs, error, text",
    [
        (("1f1b", 2, 4), {"forward": [1, 2, 3]}, dsc.InvalidArgError, "list of costs has 3 values, expected 1 or 2"),
        (("1f1b", 2, 4), {"forward": [1, 2], "backward_input": [1, 2, 3]}, ValueError, "has 2 values; expected 1 or 3"),
        (("1f1b", 2, 4), {"forward": []}, ValueError, "forward is"),
        (("1f1b", 2, 4), {"forward": "1"}, TypeError, "forward is '1'; expected a number"),
        (("1f1b", 2, 4), {"comm": -1}, dsc.InvalidArgError, "latency is -1"),
        (("1f1b", 2, 4), {"backward_weight": float("nan")}, dsc.InvalidArgError, "is nan"),
        (("1f1b",), {}, TypeError, "stages or micro_batches is missing"),
        (("1f1b", 2, 4), {"latency": 2}, TypeError, "unknown argument 'latency'; expected a cost such as forward or comm"),
        (("zbv", 2, 4), {}, dsc.InvalidArgError, 'did you mean "zb_v"'),
    ],
)
def test_refusals(arguments, costs, error, text):
    with pytest.raises(error, match=text):
        dsc.simulate_pipeline(*arguments, **costs)


def test_the_best_schedule():
    it = dsc.find_schedule(2, 3, forward=[1, 2], backward_input=2, comm=0.5, activations=2)
    assert it.is_optimal and it.bound <= it.makespan <= it.best_named_makespan
    simulated = dsc.simulate_pipeline(it.schedule, forward=[1, 2], backward_input=2, comm=0.5)
    assert simulated.makespan == it.makespan and max(simulated.peak_activations) <= 2
    assert dsc.find_schedule(2, 3, stage=1).schedule.stage == 1
    drawn = it.schedule.draw(forward=[1, 2], backward_input=2, comm=0.5)
    assert it.schedule.draw() == str(it.schedule) == it.schedule.at_stage(0).draw() == drawn
    assert it.schedule.draw(forward=1) != drawn


def test_what_a_schedule_says_of_itself():
    it = dsc.PipeSchedule("interleaved_1f1b", stages=2, micro_batches=6, micro_batch_group=3, messages="at_once")
    assert (it.micro_batch_group, it.messages, it.placement, it.chunks) == (3, "at_once", "loop", 2)
    assert (dsc.PipeSchedule("1f1b", 2, 0, 4).micro_batch_group, it.at_stage(1).messages) == (None, "at_once")
    with pytest.raises(TypeError, match="expected micro_batches=M, or M as the fourth argument"):
        dsc.PipeSchedule("1f1b", 4, 8)
    assert dsc.PipeSchedule("auto", stages=2, micro_batches=3).name
    with pytest.raises(dsc.InvalidArgError, match="no schedule satisfies"):
        dsc.find_schedule(2, 3, static_bytes=10, bytes=5)


def test_pictures():
    plan = whole()
    lines = str(plan).splitlines()
    assert lines[0] == "zb_v: 4 stages x 2 chunks, 8 micro-batches" and len(lines) == 6
    assert lines[1].startswith("0 |F0 F1 F2 F3 F4 F5 F6 f0 i0 w0 f1") and lines[1].endswith("| holds 8")
    assert "makespan 51, idle 5.9 %" in lines[5]
    assert len({line.index("| holds") for line in lines[1:5]}) == 1
    crowded = str(whole("1f1b", 2, 300)).splitlines()[1]  # a label that does not fit is left out
    assert {int(it) for it in re.findall(r"F(\d+)", crowded)} <= set(range(300)) and crowded.count("F1 ") <= 1
    drawing = ElementTree.fromstring(plan._repr_svg_())
    titles = [it.text for it in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 4 * 8 * 6 and titles[0].startswith("forward of micro-batch 0, chunk 0, stage 0")
    trace = json.loads(plan.draw("perfetto"))["traceEvents"]
    assert sum(it["ph"] == "X" for it in trace) == 4 * 8 * 6
    held = [it["args"]["held"] for it in trace if it["ph"] == "C"]
    assert max(held) == 8 and min(held) == 0
    assert "\033[" in plan.draw("color") and "\033[" not in plan.draw()
    with pytest.raises(TypeError, match="unknown cost 'forwards'; expected one of comm, forward"):
        plan.draw(forwards=2)
    with pytest.raises(dsc.OverflowError, match="expected at most 200000 for a picture"):
        whole("1f1b", 1024, 1024).draw("svg")
    assert "2 stages" in repr(whole("1f1b", 2))
