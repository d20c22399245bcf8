//! Pipeline schedules and runs.

use std::panic::{catch_unwind, AssertUnwindSafe};

use dsc::{
    Comm, Dtype, ErrorCode, PipeCall, PipeCallbacks, PipeInstruction, PipeOp, PipeResult, PipeSchedule, PipeShapes,
    Tensor,
};

use crate::ranks;

const MICRO_BATCHES: usize = 4;

/// A stage that computes y = 3 x.
#[derive(Default)]
struct Stage {
    grad: f64,
    stepped: bool,
}

fn micro_batch(call: &PipeCall) -> usize {
    call.instruction.micro_batch.expect("a pass has a micro-batch")
}

fn input(call: &PipeCall) -> dsc::Result<f64> {
    if call.inputs.is_empty() {
        return Ok(micro_batch(call) as f64);
    }
    Ok(call.inputs.get::<f64>(0)?[0])
}

fn forward(_: &mut Stage, call: &mut PipeCall) -> PipeResult {
    let (m, y) = (micro_batch(call) as i32, 3.0 * input(call)?);
    if !call.outputs.is_empty() {
        call.outputs.get_mut(0)?[0] = y;
        let numbers = call.outputs.get_mut::<i32>(1)?;
        assert_eq!(numbers.len(), 5);
        numbers.fill(m);
    }
    if let Some(loss) = &mut call.loss {
        **loss = y;
        if !call.inputs.is_empty() {
            assert_eq!(call.inputs.get::<i32>(1)?, [m; 5]);
        }
    }
    assert!(call.output_grads.is_empty() && call.input_grads.is_empty());
    Ok(())
}

fn backward(stage: &mut Stage, call: &mut PipeCall) -> PipeResult {
    let grad = if call.output_grads.is_empty() { 1.0 } else { call.output_grads.get::<f64>(0)?[0] };
    stage.grad += grad * input(call)?;
    if !call.input_grads.is_empty() {
        call.input_grads.get_mut(0)?[0] = 3.0 * grad;
        assert!(call.input_grads.get_mut::<i32>(1).unwrap_err().message.contains("has no gradient"));
        assert!(call
            .input_grads
            .get_mut::<i32>(0)
            .unwrap_err()
            .message
            .contains("has elements of F64, but the call is for elements of I32"));
        assert!(call.inputs.get_mut::<f64>(0).unwrap_err().message.contains("read-only in this callback"));
    }
    Ok(())
}

fn nothing(_: &mut Stage, _: &mut PipeCall) -> PipeResult {
    Ok(())
}

fn callbacks() -> PipeCallbacks<'static, Stage> {
    PipeCallbacks::new()
        .on(PipeOp::LoadMicroBatch, nothing)
        .on(PipeOp::Forward, forward)
        .on(PipeOp::Backward, backward)
        .on(PipeOp::ReduceTiedGrads, nothing)
        .on(PipeOp::ReduceGrads, nothing)
        .on(PipeOp::OptimizerStep, |stage, _| {
            stage.stepped = true;
            Ok(())
        })
}

fn tensors() -> Vec<Tensor<'static>> {
    vec![Tensor::described(Dtype::F64, 1), Tensor::described(Dtype::I32, 5)]
}

fn shapes(world: &Comm) -> PipeShapes {
    PipeShapes {
        inputs: if world.rank() > 0 { tensors() } else { Vec::new() },
        outputs: if world.rank() + 1 < world.size() { tensors() } else { Vec::new() },
        ..PipeShapes::default()
    }
}

/// Variable shapes: at most 4 rows of 2 elements.
fn variable(world: &Comm) -> PipeShapes {
    let most = || vec![Tensor::described(Dtype::F32, 8).shape(&[4, 2])];
    PipeShapes {
        inputs: if world.rank() > 0 { most() } else { Vec::new() },
        outputs: if world.rank() + 1 < world.size() { most() } else { Vec::new() },
        variable: true,
    }
}

/// Returns the elements of micro-batch m: m rows of 2. Both elements of row i are m + i.
fn rows(m: usize) -> Vec<f32> {
    (0..2 * m).map(|i| (m + i / 2) as f32).collect()
}

fn forward_rows(_: &mut Stage, call: &mut PipeCall) -> PipeResult {
    let m = micro_batch(call);
    if !call.outputs.is_empty() {
        assert_eq!(call.outputs.shape(0)?, [4, 2]);
        for (wrong, shape) in [(0, &[5, 2][..]), (0, &[4]), (0, &[usize::MAX, 2]), (0, &[usize::MAX, 0]), (1, &[4, 2])]
        {
            assert_eq!(call.outputs.resize(wrong, shape).unwrap_err().code, ErrorCode::InvalidArg);
        }
        call.outputs.resize(0, &[1 << 62, 0])?; // without elements, any number of rows is allowed
        assert!(call.outputs.shape(0)? == [1 << 62, 0] && call.outputs.get::<f32>(0)?.is_empty());
        call.outputs.resize(0, &[m, 2])?;
        call.outputs.get_mut(0)?.copy_from_slice(&rows(m));
    }
    if !call.inputs.is_empty() {
        assert_eq!((call.inputs.shape(0)?, call.inputs.get::<f32>(0)?), (&[m as i64, 2][..], &rows(m)[..]));
        assert_eq!(call.inputs.resize(0, &[1, 2]).unwrap_err().code, ErrorCode::State);
    }
    if let Some(loss) = &mut call.loss {
        **loss = m as f64;
    }
    Ok(())
}

fn backward_rows(stage: &mut Stage, call: &mut PipeCall) -> PipeResult {
    let m = micro_batch(call);
    if !call.input_grads.is_empty() {
        assert_eq!(call.input_grads.shape(0)?, [m as i64, 2]);
        call.input_grads.get_mut(0)?.copy_from_slice(&rows(m));
    }
    if !call.output_grads.is_empty() {
        stage.grad += call.output_grads.get::<f32>(0)?.iter().sum::<f32>() as f64;
        assert_eq!(call.outputs.get::<f32>(0)?, rows(m));
    }
    Ok(())
}

#[test]
fn shapes_vary_and_memory_is_handed_in() {
    ranks(3, |world| {
        let (mut schedule, mut stage, shapes) = (schedule(&world, "1f1b"), Stage::default(), variable(&world));
        let callbacks = callbacks().on(PipeOp::Forward, forward_rows).on(PipeOp::Backward, backward_rows);
        let mut memory = vec![0; schedule.run_bytes(&shapes).unwrap()];
        let run = |memory: &mut Vec<u8>, schedule: &mut PipeSchedule, stage: &mut Stage| {
            world.pipe_run_in(schedule, stage, &callbacks, &shapes, memory)
        };
        assert_eq!(run(&mut memory, &mut schedule, &mut stage).unwrap(), 1.5);
        let all: f32 = (0..MICRO_BATCHES).flat_map(rows).sum();
        assert_eq!(stage.grad, if world.rank() < 2 { all as f64 } else { 0.0 });
        memory.pop();
        let error = run(&mut memory, &mut schedule, &mut stage).unwrap_err();
        assert!(error.message.contains("memory has "), "{}", error);
        assert_eq!(world.pipe_run(&mut schedule, &mut stage, &callbacks, &shapes).unwrap(), 1.5);
        world.finalize().unwrap();
    });
}

fn schedule(world: &Comm, name: &str) -> PipeSchedule {
    PipeSchedule::new(name, world.size(), world.rank(), MICRO_BATCHES).unwrap()
}

#[test]
fn stages_compute_one_function() {
    for name in ["1f1b", "gpipe", "deepspeed_train"] {
        ranks(3, |world| {
            let (mut schedule, mut stage) = (schedule(&world, name), Stage::default());
            for _ in 0..2 {
                stage.grad = 0.0;
                let loss = world.pipe_run(&mut schedule, &mut stage, &callbacks(), &shapes(&world)).unwrap();
                assert_eq!((loss, stage.grad, stage.stepped), (27.0 * 1.5, 9.0 * 6.0, true));
            }
            world.finalize().unwrap();
        });
    }
}

#[test]
fn the_iterator_gives_what_the_queries_promise() {
    let mut schedule = PipeSchedule::new("1f1b", 3, 1, MICRO_BATCHES).unwrap();
    let listed: Vec<PipeInstruction> = schedule.by_ref().map(dsc::Result::unwrap).collect();
    assert!(schedule.next().is_none());
    assert_eq!(listed.last().unwrap().op, PipeOp::OptimizerStep);
    assert_eq!(listed.last().unwrap().step + 1, schedule.steps().unwrap());
    for instruction in &listed {
        let step = schedule.step(instruction.step).unwrap();
        match instruction.op {
            PipeOp::Forward => assert_eq!((step.micro_batch, step.is_forward), (instruction.micro_batch, true)),
            PipeOp::Backward => assert_eq!((step.micro_batch, step.is_forward), (instruction.micro_batch, false)),
            PipeOp::SendActivation | PipeOp::RecvGrad => assert_eq!(instruction.peer, Some(2)),
            PipeOp::RecvActivation | PipeOp::SendGrad => assert_eq!(instruction.peer, Some(0)),
            _ => assert_eq!(instruction.peer, None),
        }
        assert!(instruction.buffer.map_or(true, |buffer| buffer < schedule.buffers().unwrap()));
    }
    schedule.reset().unwrap();
    assert_eq!(schedule.next().unwrap().unwrap(), listed[0]);
    let error = PipeSchedule::new("2f2b", 3, 1, MICRO_BATCHES).unwrap_err();
    assert!(error.code == ErrorCode::InvalidArg && error.message.contains("1f1b"), "{}", error);
    assert_eq!(PipeOp::Unknown(99).to_string(), "unknown");
}

#[test]
fn what_cannot_run_is_refused() {
    ranks(2, |world| {
        let (mut schedule, mut stage) = (schedule(&world, "1f1b"), Stage::default());
        let none = PipeCallbacks::new();
        let error = world.pipe_run(&mut schedule, &mut stage, &none, &shapes(&world)).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArg);
        assert!(error.message.contains("there is no callback for"), "{}", error);
        let wrong = callbacks().on(PipeOp::SendGrad, nothing);
        let error = world.pipe_run(&mut schedule, &mut stage, &wrong, &shapes(&world)).unwrap_err();
        assert_eq!(
            error.message,
            "pipe_run: there is a callback for send_grad, but the library performs this operation itself"
        );
        // the refused runs had no effect
        world.pipe_run(&mut schedule, &mut stage, &callbacks(), &shapes(&world)).unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn an_error_in_a_callback_ends_the_run_everywhere() {
    ranks(2, |world| {
        let (mut schedule, mut stage) = (schedule(&world, "1f1b"), Stage::default());
        let guilty = world.rank() == 1;
        let failing = callbacks().on(PipeOp::Backward, move |stage, call| {
            if guilty && micro_batch(call) == 1 {
                return Err("the gradient is no number".into());
            }
            backward(stage, call)
        });
        let error = world.pipe_run(&mut schedule, &mut stage, &failing, &shapes(&world)).unwrap_err();
        assert_eq!((error.code, error.op.as_deref()), (ErrorCode::Callback, Some("pipe_run")));
        assert!(error.message.contains("rank 1: the callback for backward of micro-batch 1"), "{}", error);
        assert!(error.message.contains("returned 1: the gradient is no number"), "{}", error);
        assert_eq!(world.failure().unwrap().unwrap().code, ErrorCode::Callback);
        assert!(world.barrier().is_err());
    });
}

#[test]
fn a_panic_in_a_callback_goes_on_after_the_run() {
    ranks(2, |world| {
        let (mut schedule, mut stage) = (schedule(&world, "gpipe"), Stage::default());
        if world.rank() == 0 {
            let failing = callbacks().on(PipeOp::ReduceGrads, |_, _| panic!("out of luck"));
            let run = || world.pipe_run(&mut schedule, &mut stage, &failing, &shapes(&world));
            let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of luck"));
        } else {
            let error = world.pipe_run(&mut schedule, &mut stage, &callbacks(), &shapes(&world)).unwrap_err();
            assert_eq!(error.code, ErrorCode::Callback, "{}", error);
            assert!(error.message.contains("panicked: out of luck"), "{}", error);
        }
    });
}
