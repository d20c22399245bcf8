//! Replicas of a pipeline of two stages: each backward pass marks its gradients in a reducer.
//!
//!     dscrun -n 4 -- 20_pipeline_buckets
//!
//! A stage is y = weight x + bias. The pipeline computes activations and gradients micro-batch by micro-batch. The
//! reducer averages the gradients of a stage over its replicas. The last micro-batch marks them, inside the callback
//! for the backward pass, so a reduction starts while other stages still compute.

use dsc::{
    BucketReducer, Comm, Dtype, GroupOptions, Iteration, Op, PipeCall, PipeCallbacks, PipeOp,
    PipeResult, PipeSchedule, PipeShapes, ReducerOptions, Tensor,
};

const STAGES: usize = 2;
const MICRO_BATCHES: usize = 4;
const STEPS: usize = 3;
const LEARNING_RATE: f64 = 0.01;

/// Returns input and label of a micro-batch. All replicas together have the inputs 0.1, 0.2 and so on.
fn sample(replica: usize, micro_batch: usize) -> (f64, f64) {
    let x = (replica * MICRO_BATCHES + micro_batch + 1) as f64 / 10.0;
    (x, 6.0 * x + 1.0)
}

/// Weight and bias.
type Params = [f64; 2];

fn start(stage: usize) -> Params {
    [stage as f64 + 1.0, 0.5]
}

fn apply(params: &Params, x: f64) -> f64 {
    params[0] * x + params[1]
}

fn descend(params: &mut Params, gradients: &Params) {
    for (param, gradient) in params.iter_mut().zip(gradients) {
        *param -= LEARNING_RATE * gradient;
    }
}

/// One training step of a stage: the state that the callbacks share.
struct Step<'a> {
    replica: usize,
    params: &'a Params,
    gradients: Params,
}

impl Step<'_> {
    fn micro_batch(call: &PipeCall) -> usize {
        call.instruction
            .micro_batch
            .expect("a pass has a micro-batch")
    }

    fn input(&self, call: &PipeCall) -> dsc::Result<f64> {
        if call.inputs.is_empty() {
            return Ok(sample(self.replica, Self::micro_batch(call)).0);
        }
        Ok(call.inputs.get::<f64>(0)?[0])
    }

    /// Returns the prediction of the last stage minus the label.
    fn excess(&self, call: &PipeCall) -> dsc::Result<f64> {
        let label = sample(self.replica, Self::micro_batch(call)).1;
        Ok(apply(self.params, self.input(call)?) - label)
    }

    fn forward(&mut self, call: &mut PipeCall) -> PipeResult {
        if call.outputs.is_empty() {
            let excess = self.excess(call)?;
            **call.loss.as_mut().ok_or("the last stage has a loss")? = excess * excess / 2.0;
        } else {
            call.outputs.get_mut(0)?[0] = apply(self.params, self.input(call)?);
        }
        Ok(())
    }

    /// A shared reference to the iteration is enough to mark gradients.
    fn backward(&mut self, call: &mut PipeCall, iteration: &Iteration) -> PipeResult {
        let grad = if call.output_grads.is_empty() {
            self.excess(call)? / MICRO_BATCHES as f64
        } else {
            call.output_grads.get::<f64>(0)?[0]
        };
        if !call.input_grads.is_empty() {
            call.input_grads.get_mut(0)?[0] = self.params[0] * grad;
        }
        self.gradients[0] += self.input(call)? * grad;
        self.gradients[1] += grad;
        if Self::micro_batch(call) + 1 == MICRO_BATCHES {
            for index in [1, 0] {
                iteration.mark_ready_copy(index, &self.gradients[index])?; // the last gradient of a bucket starts its reduction
            }
        }
        Ok(())
    }
}

/// The two stages exchange one number.
fn shapes(pipeline: &Comm) -> PipeShapes {
    let number = || vec![Tensor::described(Dtype::F64, 1).shape(&[1])];
    let (inputs, outputs) = match pipeline.rank() {
        0 => (Vec::new(), number()),
        _ => (number(), Vec::new()),
    };
    PipeShapes {
        inputs,
        outputs,
        ..PipeShapes::default()
    }
}

/// Runs the schedule once; the reducer then holds the mean gradients. Returns the mean loss of this replica.
fn step(
    pipeline: &Comm,
    schedule: &mut PipeSchedule,
    replica: usize,
    params: &Params,
    reducer: &mut BucketReducer,
) -> dsc::Result<f64> {
    let iteration = reducer.begin()?;
    let mut state = Step {
        replica,
        params,
        gradients: [0.0; 2],
    };
    let callbacks = PipeCallbacks::new()
        .on(PipeOp::LoadMicroBatch, |_, _| Ok(()))
        .on(PipeOp::Forward, Step::forward)
        .on(PipeOp::Backward, |state: &mut Step, call| {
            state.backward(call, &iteration)
        });
    let loss = pipeline.pipe_run(schedule, &mut state, &callbacks, &shapes(pipeline))?;
    drop(callbacks);
    iteration.finish()?;
    Ok(loss)
}

/// Runs the same training in one process. Returns the final parameters of a stage.
fn train_alone(stage: usize, replicas: usize) -> Params {
    let mut stages = [start(0), start(1)];
    let n = (replicas * MICRO_BATCHES) as f64;
    for _ in 0..STEPS {
        let mut gradients = [[0.0; 2]; STAGES];
        for (replica, m) in (0..replicas).flat_map(|r| (0..MICRO_BATCHES).map(move |m| (r, m))) {
            let (x, label) = sample(replica, m);
            let hidden = apply(&stages[0], x);
            let grad = (apply(&stages[1], hidden) - label) / n;
            let hidden_grad = stages[1][0] * grad;
            for (sum, (grad, input)) in gradients.iter_mut().zip([(hidden_grad, x), (grad, hidden)])
            {
                sum[0] += grad * input;
                sum[1] += grad;
            }
        }
        for (params, gradients) in stages.iter_mut().zip(&gradients) {
            descend(params, gradients);
        }
    }
    stages[stage]
}

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    assert!(
        world.size() % STAGES == 0,
        "expected an even number of ranks: dscrun -n 4 -- 20_pipeline_buckets"
    );
    let (replica, stage) = (world.rank() / STAGES, world.rank() % STAGES);
    let split = |color, key: usize, name| {
        let group = world.split_with(Some(color), key as i32, &GroupOptions::new().name(name))?;
        Ok::<_, dsc::Error>(group.expect("every rank has a color"))
    };
    let pipeline = split(replica, stage, "pipeline")?;
    let replicas = split(stage, replica, "replicas")?;

    let mut params = start(stage);
    let [weight, bias] = &mut params;
    let mut tensors = [Tensor::new(weight), Tensor::new(bias)];
    let mut reducer = BucketReducer::new(&replicas, &mut tensors, &ReducerOptions::new())?;
    let mut schedule = PipeSchedule::new("1f1b", STAGES, stage, MICRO_BATCHES)?;

    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let mut loss = step(&pipeline, &mut schedule, replica, &params, &mut reducer)?;
        let gradients = [reducer.read_grad(0)?[0], reducer.read_grad(1)?[0]];
        descend(&mut params, &gradients);
        replicas.all_reduce(&mut loss, Op::Avg)?;
        losses.push(format!("{:.4}", loss));
    }

    let expected = train_alone(stage, replicas.size());
    for (param, expected) in params.iter().zip(expected) {
        assert!(
            (param - expected).abs() < 1e-12,
            "{} is not {}",
            param,
            expected
        );
    }
    println!(
        "rank {}: losses {}; stage {} has weight {:.4}, bias {:.4}, as in one process",
        world.rank(),
        losses.join(" "),
        stage,
        params[0],
        params[1]
    );
    drop(reducer);
    world.finalize()
}
