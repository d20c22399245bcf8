//! Ranks with different numbers of batches train a small model: micro-batches without communication, a hook that
//! reduces the buckets, gradients of limited norm at first, and a join for the ranks that run out of batches.
//!
//!     dscrun -n 4 -- 16_uneven

use dsc::{Bucket, BucketReducer, ClipOptions, HookResult};
use dsc::{Join, JoinOptions, Op, ReducerOptions, Tensor};

const WANTED: [f64; 4] = [1.0, -2.0, 0.5, 0.25]; // three weights and a bias
const MICRO_BATCH: usize = 8;
const RATE: f64 = 0.5;

/// A rank's model and the source of its samples.
struct Learner {
    weights: Vec<f64>,
    bias: [f64; 1],
    seed: u64,
}

impl Learner {
    /// Random numbers from -1 to 1, different on each rank.
    fn number(&mut self) -> f64 {
        self.seed = self
            .seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.seed >> 33) as f64 / f64::from(1u32 << 30) - 1.0
    }

    /// The gradients of half the mean squared error of a micro-batch.
    fn gradients(&mut self) -> (Vec<f64>, [f64; 1]) {
        let n = self.weights.len();
        let (mut of_weights, mut of_bias) = (vec![0.0; n], [0.0]);
        for _ in 0..MICRO_BATCH {
            let x: Vec<f64> = (0..n).map(|_| self.number()).collect();
            let misses = (0..n).map(|i| x[i] * (self.weights[i] - WANTED[i]));
            let error = misses.sum::<f64>() + self.bias[0] - WANTED[n];
            for (slope, x) in of_weights.iter_mut().zip(&x) {
                *slope += error * x / MICRO_BATCH as f64;
            }
            of_bias[0] += error / MICRO_BATCH as f64;
        }
        (of_weights, of_bias)
    }

    /// Trains on one batch, of two micro-batches; returns the norm of the gradients if that is limited.
    fn step(&mut self, reducer: &mut BucketReducer, most: Option<f64>) -> dsc::Result<Option<f64>> {
        reducer.no_sync(|reducer| {
            let (mut of_weights, mut of_bias) = self.gradients();
            let iteration = reducer.begin()?;
            iteration.mark_ready(1, &mut of_bias)?;
            iteration.mark_ready(0, &mut of_weights)?;
            iteration.finish()
        })?;
        let (mut of_weights, mut of_bias) = self.gradients();
        let iteration = reducer.begin()?;
        iteration.mark_ready(1, &mut of_bias)?;
        iteration.mark_ready(0, &mut of_weights)?; // the sums of both micro-batches are reduced now
        let norm = match most {
            Some(most) => Some(iteration.finish_and_clip(&ClipOptions::new().max_norm(most))?),
            None => iteration.finish().map(|()| None)?,
        };
        for (weight, slope) in self.weights.iter_mut().zip(&of_weights) {
            *weight -= RATE / 2.0 * slope;
        }
        self.bias[0] -= RATE / 2.0 * of_bias[0];
        Ok(norm)
    }

    fn params(&mut self) -> [Tensor<'_>; 2] {
        [Tensor::new(&mut self.weights), Tensor::new(&mut self.bias)]
    }
}

/// Computes the mean over the ranks that have batches; a real hook could send fewer bits.
fn mean(bucket: &mut Bucket<'_>) -> HookResult {
    let (comm, ranks) = (bucket.comm(), bucket.divisor() as f64);
    let gradients = bucket.buffer_mut::<f64>()?;
    comm.all_reduce(gradients, Op::Sum)?;
    gradients.iter_mut().for_each(|x| *x /= ranks);
    Ok(())
}

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    let rank = world.rank();
    let mut learner = Learner {
        weights: vec![0.0; 3],
        bias: [4.0],
        seed: rank as u64,
    };
    let mut reducer = BucketReducer::new(&world, &mut learner.params(), &ReducerOptions::new())?;
    reducer.set_hook("mean", mean)?;

    let mut limited = 0; // steps whose norm was limited; here all ranks have batches
    for _ in 0..20 {
        let norm = learner.step(&mut reducer, Some(1.0))?;
        limited += usize::from(norm > Some(1.0));
    }
    let options = JoinOptions::new().divide_by_initial(false);
    let join = Join::new(&world, &mut [&mut reducer], &options)?;
    let batches = 100 + 10 * rank;
    for _ in 0..batches {
        learner.step(&mut reducer, None)?;
    }
    let last = join.finish(&mut [&mut reducer], &mut learner.params())?;

    let learnt = learner.weights.iter().chain(&learner.bias);
    let learnt: Vec<String> = learnt.map(|x| format!("{:.3}", x)).collect();
    println!(
        "rank {}: {} of the first 20 norms limited, then {} batches; learnt {} with rank {}",
        rank,
        limited,
        batches,
        learnt.join(" "),
        last
    );
    drop(reducer);
    world.finalize()
}
