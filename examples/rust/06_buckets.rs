//! Gradient buckets: the plan alone, and a reducer that averages gradients while they are being computed.
//!
//!     dscrun -n 4 -- 06_buckets

use dsc::{BucketPlanner, BucketReducer, Dtype, ReducerOptions, Tensor};

const COUNTS: [usize; 4] = [100, 10, 50, 5];

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    if world.rank() == 0 {
        for limit_bytes in [1 << 20, 200] {
            let plan = BucketPlanner::new(&COUNTS, &[Dtype::F32; 4])
                .limits(&[limit_bytes])
                .plan()?;
            let buckets: Vec<String> = plan
                .buckets
                .iter()
                .map(|bucket| format!("{:?}", bucket))
                .collect();
            println!("limit of {} bytes: {}", limit_bytes, buckets.join(" "));
        }
    }

    let mut params = COUNTS.map(|count| vec![0.0f32; count]);
    let mut tensors: Vec<Tensor> = params.iter_mut().map(Tensor::new).collect();
    let options = ReducerOptions::new()
        .bucket_bytes(200)
        .first_bucket_bytes(200);
    let mut reducer = BucketReducer::new(&world, &mut tensors, &options)?;

    let mut grads = COUNTS.map(|count| vec![0.0f32; count]);
    let iteration = reducer.begin()?;
    for (index, grad) in grads.iter_mut().enumerate().rev() {
        grad.fill(((world.rank() + 1) * (index + 1)) as f32); // backward: the last gradient is computed first
        iteration.mark_ready(index, grad)?; // the reduction of a full bucket starts automatically
    }
    iteration.finish()?; // now grads hold the mean over all ranks

    let means: Vec<String> = grads
        .iter()
        .map(|grad| grad[grad.len() - 1].to_string())
        .collect();
    println!("rank {}: mean gradients {}", world.rank(), means.join(" "));
    world.finalize()
}
