//! A pipeline whose stages multiply by 2: with 4 ranks a number x becomes 16 x.
//!
//!     dscrun -n 4 -- 09_pipeline
//!
//! Stage 0 prints its schedule; then all stages run their schedules.

use dsc::{
    Comm, Dtype, PipeCall, PipeCallbacks, PipeOp, PipeResult, PipeSchedule, PipeShapes, Tensor,
};

const MICRO_BATCHES: usize = 4;

/// A stage computes y = weight x. The loss of a micro-batch is the last stage's y.
struct Stage {
    weight: f64,
    weight_grad: f64,
    /// Inputs of the first stage.
    x: [f64; MICRO_BATCHES],
}

impl Stage {
    /// Called on the first stage for inputs, and on the last stage for labels, which are not needed here.
    fn load(&mut self, call: &mut PipeCall) -> PipeResult {
        let m = call
            .instruction
            .micro_batch
            .ok_or("a load has a micro-batch")?;
        self.x[m] = m as f64 + 1.0;
        Ok(())
    }

    fn input(&self, call: &PipeCall) -> Result<f64, Box<dyn std::error::Error>> {
        let m = call
            .instruction
            .micro_batch
            .ok_or("a pass has a micro-batch")?;
        Ok(if call.inputs.is_empty() {
            self.x[m]
        } else {
            call.inputs.get::<f64>(0)?[0]
        })
    }

    fn forward(&mut self, call: &mut PipeCall) -> PipeResult {
        let y = self.weight * self.input(call)?;
        if !call.outputs.is_empty() {
            call.outputs.get_mut(0)?[0] = y; // sent when the schedule says so
        }
        if let Some(loss) = &mut call.loss {
            **loss = y;
        }
        Ok(())
    }

    fn backward(&mut self, call: &mut PipeCall) -> PipeResult {
        let last = call.output_grads.is_empty();
        let grad = if last {
            1.0 / MICRO_BATCHES as f64
        } else {
            call.output_grads.get::<f64>(0)?[0]
        };
        self.weight_grad += self.input(call)? * grad;
        if !call.input_grads.is_empty() {
            call.input_grads.get_mut(0)?[0] = self.weight * grad;
        }
        Ok(())
    }
}

/// Prints a line per step, such as "step 1: send_activation 0 to 1, load_micro_batch 1, forward 1".
fn print_instructions(schedule: &mut PipeSchedule) -> dsc::Result<()> {
    let mut lines = vec![Vec::new(); schedule.steps()?];
    for instruction in schedule {
        let instruction = instruction?;
        let mut text = instruction.op.to_string();
        if let Some(micro_batch) = instruction.micro_batch {
            text += &format!(" {}", micro_batch);
        }
        if let Some(peer) = instruction.peer {
            let way = if text.starts_with("send") {
                "to"
            } else {
                "from"
            };
            text += &format!(" {} {}", way, peer);
        }
        lines[instruction.step].push(text);
    }
    for (step, line) in lines.iter().enumerate() {
        println!("step {}: {}", step, line.join(", "));
    }
    Ok(())
}

/// The stages exchange one number.
fn shapes(world: &Comm) -> PipeShapes {
    let number = || vec![Tensor::described(Dtype::F64, 1).shape(&[1])];
    let (first, last) = (world.rank() == 0, world.rank() + 1 == world.size());
    PipeShapes {
        inputs: if first { Vec::new() } else { number() },
        outputs: if last { Vec::new() } else { number() },
        ..PipeShapes::default()
    }
}

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    let mut schedule = PipeSchedule::new("1f1b", world.size(), world.rank(), MICRO_BATCHES)?;
    if world.rank() == 0 {
        print_instructions(&mut schedule)?;
    }

    let mut stage = Stage {
        weight: 2.0,
        weight_grad: 0.0,
        x: [0.0; MICRO_BATCHES],
    };
    let callbacks = PipeCallbacks::new()
        .on(PipeOp::LoadMicroBatch, Stage::load)
        .on(PipeOp::Forward, Stage::forward)
        .on(PipeOp::Backward, Stage::backward);
    let mean_loss = world.pipe_run(&mut schedule, &mut stage, &callbacks, &shapes(&world))?;
    assert_eq!(mean_loss, f64::from(1 << world.size()) * 2.5); // x is 1, 2, 3, 4
    assert_eq!(stage.weight_grad, mean_loss / 2.0);
    println!(
        "stage {}: mean loss {}, gradient of its weight {}",
        world.rank(),
        mean_loss,
        stage.weight_grad
    );

    world.finalize()
}
