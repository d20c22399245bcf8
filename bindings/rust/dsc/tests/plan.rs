//! Schedules of whole pipelines, without a communicator: planning, queries, export, drawing, simulation and search.

use std::thread;

use dsc::{
    Error, ErrorCode, PipeCompute, PipeCosts, PipeFormat, PipeInstruction, PipeLimits, PipeMessages, PipeOp,
    PipePicture, PipePlacement, PipePlan, PipePlanner, PipeReadOptions, PipeSchedule,
};

const NAMES: [(&str, usize); 10] = [
    ("gpipe", 1),
    ("1f1b", 1),
    ("interleaved_1f1b", 2),
    ("looped_bfs", 2),
    ("zb_h1", 1),
    ("zb_h2", 1),
    ("zb_v", 2),
    ("v_half", 2),
    ("v_min", 2),
    ("dualpipe_v", 2),
];

fn plan(name: &str, stages: usize, micro_batches: usize) -> PipePlan {
    PipePlanner::new(name, stages, micro_batches).plan().unwrap()
}

fn computes(op: PipeOp) -> bool {
    matches!(op, PipeOp::Forward | PipeOp::Backward | PipeOp::BackwardInput | PipeOp::BackwardWeight)
}

fn instructions(plan: &PipePlan, stage: usize) -> Vec<PipeInstruction> {
    plan.stage(stage).unwrap().collect::<dsc::Result<_>>().unwrap()
}

#[track_caller]
fn refused<T>(result: dsc::Result<T>, words: &str) -> Error {
    let error = result.err().expect("it is refused");
    assert!(error.code == ErrorCode::InvalidArg && error.message.contains(words), "{}", error);
    error
}

#[test]
fn every_schedule_is_taken_apart() {
    for (name, chunks) in NAMES {
        let plan = plan(name, 4, 8);
        let info = plan.info().unwrap();
        assert_eq!((plan.name().unwrap().as_str(), info.stages, info.micro_batches), (name, 4, 8));
        assert_eq!((info.chunks, info.forward_only, info.messages), (chunks, false, PipeMessages::WhenNeeded));
        for stage in 0..4 {
            let of = |op, chunk, micro_batch| (Some(op), chunk, micro_batch);
            let listed = instructions(&plan, stage);
            let passes = listed.iter().filter(|it| computes(it.op)).map(|it| of(it.op, it.chunk, it.micro_batch));
            let order = plan.order(stage).unwrap();
            assert!(passes.eq(order.iter().map(|it| (it.op, it.chunk, it.micro_batch))), "{} {}", name, stage);
        }
        refused(plan.stage(4), "stage is 4, expected 0 to 3");
        refused(plan.order(4), "stage is 4");
    }
}

#[test]
fn a_stage_knows_its_pipeline() {
    let stage = PipeSchedule::with_chunks("interleaved_1f1b", 2, 1, 4, 3).unwrap();
    let whole = stage.plan().unwrap();
    assert_eq!((whole.info().unwrap().chunks, whole.info().unwrap().micro_batch_group), (3, Some(2)));
    assert!(instructions(&whole, 1).into_iter().eq(stage.map(Result::unwrap)));
}

#[test]
fn what_a_planner_is_told_counts() {
    let planner = PipePlanner::new("interleaved_1f1b", 2, 6).chunks(3).micro_batch_group(3);
    let info = planner.plan().unwrap().info().unwrap();
    assert_eq!((info.chunks, info.micro_batch_group), (3, Some(3)));
    assert_eq!(plan("1f1b", 2, 6).info().unwrap().micro_batch_group, None);

    let forward = PipePlanner::new("zb_v", 2, 4).forward_only().plan().unwrap();
    assert!(forward.info().unwrap().forward_only);
    assert!(forward.orders().unwrap().iter().flatten().all(|it| it.op == Some(PipeOp::Forward)));

    let merged = PipePlanner::new("zb_h1", 2, 4).merge_backward().plan().unwrap();
    assert!(merged.order(0).unwrap().iter().any(|it| it.op == Some(PipeOp::Backward)));

    let early = PipePlanner::new("1f1b", 2, 4).messages_at_once().plan().unwrap();
    assert_eq!(early.info().unwrap().messages, PipeMessages::AtOnce);
    assert!(early.stage(1).unwrap().buffers().unwrap() >= plan("1f1b", 2, 4).stage(1).unwrap().buffers().unwrap());
}

#[test]
fn wrong_planners_are_refused() {
    refused(PipePlanner::new("zbv", 2, 4).plan(), "did you mean \"zb_v\"");
    refused(PipePlanner::new("1f\0b", 2, 4).plan(), "the name of a schedule is \"1f\\0b\"; expected text");
    refused(PipePlanner::new("1f1b", 0, 4).plan(), "stages is 0");
    refused(PipePlanner::new("1f1b", 2, 0).plan(), "micro_batches is 0");
    refused(PipePlanner::new("1f1b", 2, usize::MAX).plan(), "expected at most 2147483647");
    refused(PipePlanner::new("zb_v", 2, 4).chunks(0).plan(), "chunks is 0; expected at least 1");
    refused(PipePlanner::new("zb_v", 2, 4).chunks(3).plan(), "chunks is 3");
    refused(PipePlanner::new("1f1b", 2, 4).micro_batch_group(0).plan(), "micro_batch_group is 0; expected at least 1");
    refused(
        PipePlanner::new("zb_v", 2, 4).zigzag().plan(),
        "placement is Zigzag, expected Loop: the name of the schedule determines it",
    );
    let huge = PipePlanner::new("1f1b", 1 << 10, 1 << 30).plan().unwrap_err();
    assert_eq!(huge.code, ErrorCode::Overflow, "{}", huge);
}

#[test]
fn custom_orders() {
    let v = plan("dualpipe_v", 2, 4);
    let orders = v.orders().unwrap();
    assert!(orders.iter().flatten().any(|it| it.overlaps));
    let planner = PipePlanner::new("mine", 2, 4).chunks(2);
    let again = planner.clone().zigzag().custom(&orders).unwrap();
    assert_eq!((again.orders().unwrap(), again.info().unwrap().placement), (orders.clone(), PipePlacement::Zigzag));
    refused(planner.custom(&orders), "can never run"); // with the loop placement the second chunks are on other stages

    let (forward, backward) = (PipeCompute::new(PipeOp::Forward, 0, 0), PipeCompute::new(PipeOp::Backward, 0, 0));
    let pair = vec![PipeCompute::new(PipeOp::Forward, 0, 1).with_next(), backward];
    let overlapping = [[vec![forward], pair, vec![PipeCompute::new(PipeOp::Backward, 0, 1)]].concat()];
    assert_eq!(PipePlanner::new("pair", 1, 2).custom(&overlapping).unwrap().orders().unwrap(), overlapping);

    let one = PipePlanner::new("one", 1, 1);
    let idle = one.custom(&[vec![forward, PipeCompute::idle(), backward]]).unwrap();
    assert_eq!(idle.order(0).unwrap()[1].op, None);
    assert_eq!(idle.stage(0).unwrap().step(1).unwrap().micro_batch, None);
    assert_eq!(idle.simulate(&PipeCosts::new()).unwrap().timeline().unwrap().len(), 2); // idle steps take no time
    assert_eq!(one.clone().forward_only().custom(&[vec![forward]]).unwrap().order(0).unwrap(), [forward]);
}

#[test]
fn wrong_orders_are_refused() {
    let (forward, backward) = (PipeCompute::new(PipeOp::Forward, 0, 0), PipeCompute::new(PipeOp::Backward, 0, 0));
    let (one, two) = (PipePlanner::new("one", 1, 1), PipePlanner::new("two", 2, 1));
    refused(two.custom(&[vec![forward, backward]]), "orders has 1 lists; expected 2, one per stage");
    refused(PipePlanner::new("none", 0, 1).custom(&[]), "stages is 0");
    refused(one.custom(&[vec![]]), "stage 0: there is no forward of micro-batch 0");
    refused(one.custom(&[vec![forward]]), "stage 0: there is no backward of micro-batch 0");
    refused(one.custom(&[vec![backward, forward]]), "comes before its forward");
    refused(one.custom(&[vec![forward, PipeCompute::new(PipeOp::SendGrad, 0, 0)]]), "is no pass");
    refused(one.custom(&[vec![PipeCompute::new(PipeOp::Unknown(77), 0, 0)]]), "is no pass");
    refused(one.custom(&[vec![PipeCompute::new(PipeOp::Forward, usize::MAX, 0)]]), "chunk is 18446744073709551615");
    refused(
        one.clone().micro_batch_group(2).custom(&[vec![forward, backward]]),
        "expected 0: a custom schedule has no groups of micro-batches",
    );

    let passes = |op, m| PipeCompute::new(op, 0, m);
    let (f, b) = (PipeOp::Forward, PipeOp::Backward);
    let orders = [vec![passes(f, 0), passes(b, 0), passes(f, 1), passes(b, 1)], vec![passes(f, 1), passes(f, 0)]];
    let stuck = [orders[0].clone(), [orders[1].clone(), vec![passes(b, 0), passes(b, 1)]].concat()];
    refused(PipePlanner::new("stuck", 2, 2).custom(&stuck), "these stages wait for each other");
}

#[test]
fn texts_are_read_as_they_were_written() {
    let v = plan("zb_v", 4, 8);
    for format in [PipeFormat::PyTorch, PipeFormat::PyTorchComms, PipeFormat::Json] {
        let text = v.write(format).unwrap();
        let read = PipePlan::read(&text, format).unwrap();
        assert_eq!(read.orders().unwrap(), v.orders().unwrap());
        assert_eq!((read.info().unwrap().placement, read.write(format).unwrap()), (PipePlacement::Zigzag, text));
    }
    assert_eq!(plan("1f1b", 2, 2).write(PipeFormat::Megatron).unwrap(), "[1, 1, -1, -1]\n[1, -1, 1, -1]\n");
    let steps = plan("deepspeed_train", 2, 2).write(PipeFormat::DeepSpeed).unwrap();
    assert_eq!(steps.lines().nth(1), Some("step 0: LoadMicroBatch(buffer_id=0), ForwardPass(buffer_id=0)"));
    refused(plan("zb_h1", 2, 2).write(PipeFormat::Megatron), "backward_input, expected only forward and backward");
    refused(v.write(PipeFormat::Unknown(99)), "format is Unknown(99), expected PyTorch to Json");

    let options = PipeReadOptions { merge_backward: true, messages: PipeMessages::AtOnce };
    let merged = PipePlan::read_with("0F0,0I0,0W0\n", PipeFormat::PyTorch, &options).unwrap();
    assert_eq!(merged.write(PipeFormat::PyTorch).unwrap(), "0F0,0B0\n");
    assert_eq!(merged.info().unwrap().messages, PipeMessages::AtOnce);
    let text = v.write(PipeFormat::PyTorchComms).unwrap();
    refused(PipePlan::read_with(&text, PipeFormat::PyTorchComms, &options), "places its messages itself");
    refused(PipePlan::read("0F0,0X0", PipeFormat::PyTorch), "line 1, column 6");
    refused(PipePlan::read("", PipeFormat::Json), "not valid JSON");
    refused(PipePlan::read("0F0\0", PipeFormat::PyTorch), "line 1, column 4");
}

#[test]
fn instructions_of_another_program_are_followed() {
    for (name, chunks) in NAMES {
        let plan = plan(name, 3, 6);
        let listed: Vec<_> = (0..3).map(|stage| instructions(&plan, stage)).collect();
        let planner = PipePlanner::new("", 3, 6).chunks(chunks).placement(plan.info().unwrap().placement);
        planner.validate(&listed).unwrap();
        let mut without = listed.clone();
        let sent = without[0].iter().position(|it| it.op == PipeOp::SendActivation).unwrap();
        without[0].remove(sent);
        refused(planner.validate(&without), "for a send that stage 0 does not make");
        let mut twisted = listed.clone();
        twisted[0][sent].peer = Some(2);
        refused(planner.validate(&twisted), "stage 0: peer of instruction");
        refused(planner.validate(&listed[..2]), "instructions has 2 lists; expected 3, one per stage");
    }
    refused(PipePlanner::new("", 1, 1).validate(&[vec![]]), "stage 0: there is no forward of micro-batch 0");
    let whole = vec![
        PipeInstruction::new(0, PipeOp::Forward).of(0, 0).in_buffer(0),
        PipeInstruction::new(1, PipeOp::Backward).of(0, 0).in_buffer(0),
    ];
    PipePlanner::new("", 1, 1).validate(std::slice::from_ref(&whole)).unwrap();
    let falling = vec![whole[1], whole[0]];
    refused(
        PipePlanner::new("", 1, 1).validate(&[falling]),
        "step of instruction 1, forward, is 0, expected 1 or more",
    );
    let late = PipeInstruction::new(usize::MAX, PipeOp::Forward).of(0, 0);
    refused(PipePlanner::new("", 1, 1).validate(&[vec![late]]), "step of instruction 0");
}

#[test]
fn costs_of_parts() {
    let costs = PipeCosts::new().forward(&[1.0, 4.0]).latency(0.5).activation_bytes(&[10.0]).static_bytes(&[5.0, 7.0]);
    // Stage 0 runs its first forward pass from 0 to 1. From 1.5 on, stage 1 runs three forward and backward passes,
    // which take 4 + 2 each. The last gradient arrives at 19.5 + 0.5.
    let plan = plan("1f1b", 2, 3);
    let it = plan.simulate(&costs).unwrap();
    assert_eq!((it.makespan, it.stages.len()), (22.0, 2));
    assert_eq!((it.stages[0].busy, it.stages[0].idle, it.stages[0].peak_bytes), (9.0, 13.0, 25.0));
    assert_eq!((it.stages[1].busy, it.stages[1].start, it.stages[1].end), (18.0, 1.5, 19.5));
    assert_eq!((it.stages[1].own_window_idle, it.stages[1].peak_bytes, it.stages[1].reduced), (0.0, 17.0, None));
    let spans = it.timeline().unwrap();
    assert_eq!((spans.len(), spans[0].op, spans[0].start, spans[0].end), (12, PipeOp::Forward, 0.0, 1.0));
    assert!(spans.iter().map(|span| span.end).fold(0.0, f64::max) == it.makespan);
}

#[test]
fn every_cost_counts() {
    let plan = plan("1f1b", 2, 4);
    let makespan = |costs: PipeCosts| plan.simulate(&costs).unwrap().makespan;
    assert_eq!(makespan(PipeCosts::new()), 15.0);
    assert_eq!(makespan(PipeCosts::new().backward_input(&[0.0]).backward_weight(&[0.0])), 5.0);
    let messages = PipeCosts::new().message_bytes(&[10.0]);
    assert_eq!(makespan(messages.clone()), 15.0);
    assert!(makespan(messages.bytes_per_time(10.0)) > 15.0);
    let reduced = PipeCosts::new().gradient_bytes(&[100.0]).bucket_bytes(50.0).reduce_bytes_per_time(100.0);
    let it = plan.simulate(&reduced).unwrap();
    assert_eq!((it.makespan, it.stages[0].reduced, it.stages[1].reduced), (15.5, Some(15.5), Some(13.5)));
    assert!(makespan(reduced.reduce_latency(2.0)) > 15.5);
    let pairs = PipePlanner::new("dualpipe_v", 2, 4).plan().unwrap();
    let alone = pairs.simulate(&PipeCosts::new()).unwrap().makespan;
    assert!(pairs.simulate(&PipeCosts::new().overlap(0.7)).unwrap().makespan < alone);
}

#[test]
fn wrong_costs_are_refused() {
    let plan = plan("1f1b", 2, 4);
    let simulate = |costs: PipeCosts| plan.simulate(&costs);
    refused(
        simulate(PipeCosts::new().forward(&[1.0; 3])),
        "the number of values per cost is 3, expected 1 or 2: one for each part",
    );
    let mixed = PipeCosts::new().forward(&[1.0; 2]).backward_input(&[1.0; 3]).static_bytes(&[1.0]);
    refused(simulate(mixed), "forward has 2 numbers; expected 1 or 3, like backward_input");
    refused(simulate(PipeCosts::new().forward(&[])), "forward is []; expected one number, or one for each part");
    refused(simulate(PipeCosts::new().latency(-1.0)), "latency is -1");
    refused(simulate(PipeCosts::new().backward_weight(&[1.0, f64::NAN])), "is nan");
    refused(plan.draw(PipePicture::Text, &PipeCosts::new().overlap(f64::INFINITY)), "overlap is inf");
    refused(simulate(PipeCosts::new().latency(f64::NAN)), "latency is");
}

#[test]
fn nothing_could_delay_the_critical_path() {
    let plan = plan("1f1b", 4, 8);
    let it = plan.simulate(&PipeCosts::new().latency(1.0)).unwrap();
    let path = it.critical_path().unwrap();
    assert_eq!(path[0].start, 0.0);
    assert_eq!(path.last().unwrap().end, it.makespan);
    for pair in path.windows(2) {
        let wait = if pair[0].stage == pair[1].stage { 0.0 } else { 1.0 };
        assert_eq!(pair[1].start - pair[0].end, wait);
    }
}

#[test]
fn the_best_schedule() {
    let planner = PipePlanner::new("auto", 2, 3);
    let costs = PipeCosts::new().forward(&[1.0, 2.0]).backward_input(&[2.0]).latency(0.5);
    let it = planner.find(&costs, &PipeLimits::new().activations(2)).unwrap();
    assert!(it.is_optimal && it.bound <= it.makespan && it.makespan <= it.best_named_makespan.unwrap());
    assert!(it.best_named.is_some() && !it.origin.is_empty());
    let simulated = it.plan.simulate(&costs).unwrap();
    assert_eq!(simulated.makespan, it.makespan);
    assert!(simulated.stages.iter().all(|stage| stage.peak_activations <= 2));
    assert!(it.plan.stage(1).unwrap().steps().unwrap() > 0);

    let again = planner.find(&costs, &PipeLimits::new().activations(2)).unwrap();
    assert_eq!(again.plan.orders().unwrap(), it.plan.orders().unwrap());
    let equal = planner.find(&PipeCosts::new(), &PipeLimits::new()).unwrap();
    assert_eq!(planner.plan().unwrap().orders().unwrap(), equal.plan.orders().unwrap());

    let heavy = PipeCosts::new().static_bytes(&[10.0]);
    refused(planner.find(&heavy, &PipeLimits::new().bytes(5.0)), "no schedule satisfies");
    refused(planner.find(&heavy, &PipeLimits::new().bytes(f64::NAN)), "bytes is nan");
    refused(planner.find(&heavy, &PipeLimits::new().bytes(0.0)), "bytes is 0; expected more than 0");
    refused(planner.find(&heavy, &PipeLimits::new().activations(0)), "activations is 0; expected at least 1");
    refused(PipePlanner::new("1f1b", 2, 3).find(&heavy, &PipeLimits::new()), "name is \"1f1b\", expected");
    refused(planner.clone().merge_backward().find(&heavy, &PipeLimits::new()), "merge_backward is 1");
}

#[test]
fn pictures() {
    let v = plan("zb_v", 4, 8);
    let text = v.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines.len()), ("zb_v: 4 stages x 2 chunks, 8 micro-batches", 6));
    assert!(lines[1].starts_with("0 |F0 F1 F2") && lines[5].contains("makespan 51, idle 5.9 %"), "{}", text);
    let costs = PipeCosts::new();
    assert!(v.draw(PipePicture::Color, &costs).unwrap().contains("\x1b["));
    assert!(v.draw(PipePicture::Svg, &costs).unwrap().trim_end().ends_with("</svg>"));
    assert!(v.draw(PipePicture::Perfetto, &costs).unwrap().contains("\"traceEvents\""));
    refused(v.draw(PipePicture::Unknown(9), &costs), "picture is Unknown(9), expected Text to Perfetto");

    let large = plan("zb_v", 256, 1024);
    assert_eq!(large.draw(PipePicture::Svg, &costs).unwrap_err().code, ErrorCode::Overflow);
    assert_eq!(large.to_string(), "zb_v: 256 stages x 2 chunks, 1024 micro-batches");
    assert_eq!(plan("1f1b", 1024, 1024).to_string(), "1f1b: 1024 stages, 1024 micro-batches");
    assert!(plan("1f1b", 2, 2).to_string().starts_with("1f1b: 2 stages, 2 micro-batches\n"));
    let debug = format!("{:?}", v);
    assert!(debug.contains("zb_v") && debug.contains("stages: 4"), "{}", debug);
}

#[test]
fn any_thread_may_ask_at_once() {
    let plan = plan("interleaved_1f1b", 4, 8);
    let it = plan.simulate(&PipeCosts::new()).unwrap();
    let expected = (plan.orders().unwrap(), it.stages.clone(), it.timeline().unwrap());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let stages = plan.simulate(&PipeCosts::new()).unwrap().stages;
                    assert_eq!((plan.orders().unwrap(), stages, it.timeline().unwrap()), expected);
                    assert_eq!(instructions(&plan, 3).len(), instructions(&plan, 3).len());
                }
            });
        }
    });
}
