//! Expert parallelism: a layer with six experts, which the ranks divide. A router has chosen two weighted experts for
//! each token. Each token is sent to the ranks of its experts, which compute, and returns as a weighted sum. The
//! gradients take the same paths.
//!
//!     dscrun -n 4 -- 18_expert_parallel

use dsc::{MoeOptions, MoePayload, MoePlan, Op};

const TOKENS: usize = 8;
const WIDTH: usize = 4;
const EXPERTS: usize = 6;
const TOP_K: usize = 2;

/// An expert multiplies by one number, which is its parameter.
fn parameter_of(expert: usize) -> f64 {
    expert as f64 - 2.0
}

/// Returns the rows of this rank's experts, multiplied by their parameters.
fn apply_experts(plan: &MoePlan<'_>, rows: &[f64]) -> dsc::Result<Vec<f64>> {
    let mut parameters = Vec::new();
    for (expert, count) in plan.experts().zip(plan.expert_rows()?) {
        parameters.extend(vec![parameter_of(expert); count * WIDTH]);
    }
    Ok(rows
        .iter()
        .zip(parameters)
        .map(|(row, parameter)| row * parameter)
        .collect())
}

fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    // Small whole numbers and quarters, whose products and sums are exact in any order.
    let number = |token: usize| world.rank() * TOKENS + token;
    let tokens: Vec<f64> = (0..TOKENS * WIDTH)
        .map(|i| ((2 * number(i / WIDTH) + 3 * (i % WIDTH)) % 7) as f64 - 3.0)
        .collect();
    let experts: Vec<i32> = (0..TOKENS * TOP_K)
        .map(|slot| ((number(slot / TOP_K).pow(2) + 2 * (slot % TOP_K)) % EXPERTS) as i32)
        .collect();
    let weights: Vec<f64> = (0..TOKENS * TOP_K)
        .map(|slot| [0.75, 0.25][slot % TOP_K])
        .collect();

    // Forward.
    let mut plan = world.moe_plan(&experts, None, &MoeOptions::new(EXPERTS, TOP_K))?;
    let mut rows = vec![0.0; plan.rows() * WIDTH];
    plan.dispatch(&tokens, WIDTH, MoePayload::Plain, &mut rows)?;
    let results = apply_experts(&plan, &rows)?;
    let (mut out, mut returned) = (vec![0.0; TOKENS * WIDTH], vec![0.0; TOKENS * TOP_K * WIDTH]);
    plan.combine(
        &results,
        Some(&weights),
        WIDTH,
        &mut out,
        Some(&mut returned),
    )?;

    // Backward: the gradient of the loss sum(out * out) / 2 is out.
    let (mut grad_results, mut grad_weights) = (vec![0.0; rows.len()], vec![0.0; weights.len()]);
    let of_weights = Some((&returned, &mut grad_weights));
    plan.combine_backward(&out, Some(&weights), WIDTH, &mut grad_results, of_weights)?;
    let grad_rows = apply_experts(&plan, &grad_results)?;
    let mut grad_tokens = vec![0.0; tokens.len()];
    plan.dispatch_backward(&grad_rows, WIDTH, &mut grad_tokens)?;

    // The expected result for this rank's tokens: each output is a multiple of its token, and so is its gradient.
    for (t, token) in tokens.chunks(WIDTH).enumerate() {
        let slots = t * TOP_K..(t + 1) * TOP_K;
        let parameter = |slot: usize| parameter_of(experts[slot] as usize);
        let factor: f64 = slots
            .clone()
            .map(|slot| weights[slot] * parameter(slot))
            .sum();
        for (c, x) in token.iter().enumerate() {
            assert_eq!(out[t * WIDTH + c], factor * x);
            assert_eq!(grad_tokens[t * WIDTH + c], factor * factor * x);
        }
        for slot in slots {
            assert_eq!(
                grad_weights[slot],
                factor * parameter(slot) * product(token, token)
            );
        }
    }

    let mut sums = [product(&rows, &grad_results), product(&out, &out) / 2.0];
    world.all_reduce(&mut sums, Op::Sum)?;
    println!(
        "rank {}: {} rows for {} experts from {} on; loss {:.1}, gradients of the parameters sum to {:.0}",
        world.rank(), plan.rows(), plan.experts().len(), plan.experts().start, sums[1], sums[0]
    );
    drop(plan);
    world.finalize()
}
