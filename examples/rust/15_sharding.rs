//! Sharded training: every rank keeps one part of the optimizer's state, of the gradients and of the parameters, and a
//! layer is whole only while it computes.
//!
//!     dscrun -n 4 -- 15_sharding [STAGE]

use dsc::{ShardRules, Sharded, ShardedOptions, Tensor};

const COUNTS: [usize; 4] = [100, 10, 50, 5];
const LAYERS: [usize; 2] = [0, 2]; // the first parameter of each layer
const STEPS: usize = 3;

/// Makes a layer's parameters available, computes with them, and releases them.
fn use_layer(sharded: &mut Sharded, layer: usize) -> dsc::Result<[f32; 2]> {
    sharded.unshard(layer)?;
    sharded.wait(layer)?;
    let first = LAYERS[layer];
    let firsts = [
        sharded.param::<f32>(first)?[0],
        sharded.param::<f32>(first + 1)?[0],
    ];
    sharded.reshard(layer)?;
    Ok(firsts)
}

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    let stage = std::env::args()
        .nth(1)
        .map_or(3, |text| text.parse().unwrap_or(0));
    let mut params = COUNTS.map(|count| vec![1.0f32; count]);
    let mut tensors: Vec<Tensor> = params.iter_mut().map(Tensor::new).collect();
    let options = ShardedOptions::new()
        .stage(stage)
        .rules(ShardRules::new().units(&LAYERS));
    let mut sharded = Sharded::new(&world, &mut tensors, &options)?;
    drop(params); // their values are in the library's buffers now
    let mut momentum: Vec<Vec<f32>> = sharded
        .shards()?
        .iter()
        .map(|shard| vec![0.0; shard.count])
        .collect();

    let mut norm = 0.0;
    for _ in 0..STEPS {
        for layer in 0..LAYERS.len() {
            use_layer(&mut sharded, layer)?; // forward
        }
        sharded.begin(false)?;
        for layer in (0..LAYERS.len()).rev() {
            use_layer(&mut sharded, layer)?; // backward: the last layer's gradients are computed first
            for index in [LAYERS[layer] + 1, LAYERS[layer]] {
                let value = ((world.rank() + 1) * (index + 1)) as f32;
                sharded.mark_ready(index, &vec![value; COUNTS[index]])?; // the last gradient of a layer starts its reduction
            }
        }
        sharded.finish()?; // now this rank's shards hold the mean
        norm = sharded.clip(&dsc::ClipOptions::new().max_norm(1000.0))?;
        for (bucket, own) in momentum.iter_mut().enumerate() {
            let (params, grads) = sharded.shard::<f32, f32>(bucket)?; // the optimizer updates only this rank's shards
            for ((param, grad), own) in params.iter_mut().zip(grads).zip(own) {
                *own = 0.9 * *own + grad;
                *param -= 0.1 * *own;
            }
        }
        sharded.step_done(true)?;
    }

    let mut firsts = Vec::new();
    for layer in 0..LAYERS.len() {
        firsts.extend(use_layer(&mut sharded, layer)?.map(|value| format!("{:.4}", value)));
    }
    println!("rank {}: parameters {}", world.rank(), firsts.join(" "));
    if world.rank() == 0 {
        println!("norm of all gradients {:.2}", norm);
    }
    drop(sharded);
    world.finalize()
}
