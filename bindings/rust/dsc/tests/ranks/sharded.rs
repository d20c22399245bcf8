//! Sharded parameters.

use dsc::{Average, Comm, Dtype, ErrorCode, NonFiniteCheck, ShardLayout, ShardRules, Sharded, ShardedOptions, Tensor};

use crate::ranks;

const COUNTS: [usize; 4] = [300, 7, 0, 1000];

fn shard(world: &Comm, stage: usize, options: ShardedOptions) -> dsc::Result<Sharded> {
    let own = world.rank() as f32;
    let mut params = COUNTS.map(|count| vec![2.0 + own; count]);
    let mut tensors: Vec<Tensor> = params.iter_mut().map(Tensor::new).collect();
    Sharded::new(world, &mut tensors, &options.stage(stage))
}

fn units() -> ShardedOptions {
    ShardedOptions::new().rules(ShardRules::new().units(&[0, 2]))
}

/// Runs one step with the update p -= g. The sum of the gradients over the ranks is 1 + 2 + ..., multiplied by the
/// parameter's number plus one.
fn step(world: &Comm, sharded: &mut Sharded) {
    sharded.begin(false).unwrap();
    for (index, count) in COUNTS.iter().enumerate().rev() {
        let gradient = vec![((world.rank() + 1) * (index + 1)) as f32; *count];
        sharded.accumulate(index, &gradient).unwrap();
        sharded.mark_accumulated(index).unwrap();
    }
    sharded.finish().unwrap();
    for bucket in 0..sharded.shards().unwrap().len() {
        let (params, grads) = sharded.shard::<f32, f32>(bucket).unwrap();
        params.iter_mut().zip(grads).for_each(|(param, grad)| *param -= grad);
    }
    sharded.step_done(true).unwrap();
}

#[test]
fn every_stage_trains_alike() {
    for size in [1, 2, 3] {
        for stage in [1, 2, 3] {
            ranks(size, |world| {
                let options = units().average(Average::None).prefetch(2);
                let mut sharded = shard(&world, stage, options).unwrap();
                assert_eq!(sharded.units(), [vec![0, 1], vec![2, 3]]);
                step(&world, &mut sharded);
                let sum = (size * (size + 1) / 2) as f32;
                for (unit, params) in sharded.units().into_iter().enumerate() {
                    sharded.unshard(unit).unwrap();
                    sharded.wait(unit).unwrap();
                    for index in params {
                        let expected = vec![2.0 - sum * (index + 1) as f32; COUNTS[index]];
                        assert_eq!(sharded.param::<f32>(index).unwrap(), expected);
                    }
                    sharded.reshard(unit).unwrap();
                }
                let memory = sharded.memory().unwrap();
                assert_eq!(memory.param_shard_bytes > 0, stage == 3);
                let owned: usize = sharded.ranges().unwrap().iter().map(|range| range.count).sum();
                let mut all = [owned as u64];
                world.all_reduce(&mut all, dsc::Op::Sum).unwrap();
                assert_eq!(all[0], 1307);
                assert!(sharded.stats().unwrap().iter().any(|one| one.op == "reduce_scatter"));
                drop(sharded);
                world.finalize().unwrap();
            });
        }
    }
}

#[test]
fn micro_batches_are_added_and_clipped() {
    ranks(2, |world| {
        let mut sharded = shard(&world, 2, units()).unwrap();
        for micro in 0..3 {
            sharded.begin(micro > 0).unwrap();
            for (index, count) in COUNTS.iter().enumerate() {
                sharded.mark_ready(index, &vec![1.0f32; *count]).unwrap();
            }
            sharded.finish().unwrap();
        }
        let norm = sharded.clip(&dsc::ClipOptions::new().max_norm(1.0)).unwrap();
        assert!((norm - 3.0 * 1307f64.sqrt()).abs() < 1e-6, "{}", norm);
        let range = sharded.ranges().unwrap()[0];
        let (_, grads) = sharded.shard::<f32, f32>(range.bucket).unwrap();
        assert!((f64::from(grads[range.shard_start]) * norm - 3.0).abs() < 1e-4);
        sharded.step_done(false).unwrap();
        drop(sharded);
        world.finalize().unwrap();
    });
}

#[test]
fn mistakes_are_told() {
    ranks(2, |world| {
        let error = shard(&world, 2 + world.rank(), units()).unwrap_err();
        assert!(error.code == ErrorCode::Config && error.message.contains("stage is 2 on rank 0"), "{}", error);
        let mut sharded = shard(&world, 3, units()).unwrap();
        let code = |result: dsc::Result<()>| result.unwrap_err().code;
        assert_eq!(code(sharded.wait(0)), ErrorCode::State);
        assert_eq!(code(sharded.param::<f32>(0).map(drop)), ErrorCode::State);
        assert_eq!(code(sharded.param::<f64>(0).map(drop)), ErrorCode::InvalidArg);
        assert_eq!(code(sharded.param::<f32>(4).map(drop)), ErrorCode::InvalidArg);
        assert_eq!(code(sharded.mark_ready(0, &[1.0f32; 300])), ErrorCode::State);
        sharded.begin(false).unwrap();
        assert_eq!(code(sharded.mark_ready(0, &[1.0f32; 299])), ErrorCode::InvalidArg);
        assert_eq!(code(sharded.mark_ready(0, &[1.0f64; 300])), ErrorCode::InvalidArg);
        assert_eq!(code(sharded.shard::<f32, f32>(0).map(drop)), ErrorCode::State);
        let error = sharded.finish().unwrap_err();
        assert!(error.code == ErrorCode::State && error.message.contains("4 of 4 parameters"), "{}", error);
        sharded.begin(false).unwrap();
        (0..4).for_each(|index| sharded.mark_unused(index).unwrap());
        sharded.finish().unwrap();
        assert_eq!(code(sharded.shard::<f64, f32>(0).map(drop)), ErrorCode::InvalidArg);
        assert_eq!(code(sharded.shard::<f32, f32>(9).map(drop)), ErrorCode::InvalidArg);
        drop(sharded);
        world.finalize().unwrap();
    });
}

#[test]
fn gradients_of_f32_over_raw_halves() {
    ranks(2, |world| {
        world.set_nonfinite_check(NonFiniteCheck::Fail).unwrap();
        let mut halves = vec![0u8; 20];
        let mut raw = dsc::Raw::new(&mut halves, Dtype::Bf16).unwrap();
        let mut tensors = [Tensor::new(&mut raw)];
        let options = ShardedOptions::new().grad_dtype(Dtype::F32).average(Average::None);
        let mut sharded = Sharded::new(&world, &mut tensors, &options).unwrap();
        assert_eq!(sharded.shards().unwrap()[0].grad_dtype, Dtype::F32);
        for value in [1.0f32, f32::NAN] {
            sharded.begin(false).unwrap();
            sharded.mark_ready(0, &[value; 10]).unwrap();
            if value.is_nan() {
                assert_eq!(sharded.finish().unwrap_err().code, ErrorCode::NonFinite);
            } else {
                sharded.finish().unwrap();
                sharded.step_done(false).unwrap();
            }
        }
        drop(sharded);
        world.finalize().unwrap();
    });
}

#[test]
fn layouts_are_planned_and_copied() {
    let (counts, dtypes) = ([5, 3], [Dtype::F32, Dtype::Bf16]);
    let parts = ShardRules::new().layout(ShardLayout::Partitioned);
    let plan = parts.plan(&counts, &dtypes, 2).unwrap();
    assert_eq!((plan.buckets[0].size, plan.buckets[1].used, plan.starts), (6, 3, vec![0, 0]));
    let copies = parts.copies(&counts, &dtypes, 2, &ShardRules::new().alignment(4), 1, 0).unwrap();
    let of: Vec<_> = copies.iter().map(|it| (it.param, it.from_shard, it.to_start, it.count)).collect();
    assert_eq!(of, [(0, 0, 0, 3), (0, 1, 3, 2), (1, 0, 0, 2), (1, 1, 2, 1)]);
    let megatron = ShardRules::new().layout(ShardLayout::Megatron).bucket_elements(0).wide_padding(true).alone(&[0]);
    assert_eq!(megatron.plan(&counts, &dtypes, 3).unwrap().buckets[0].size, 3 * 65_536);
    assert!(megatron.clone().alone(&[2]).plan(&counts, &dtypes, 3).is_err());
    assert!(parts.plan(&counts, &dtypes[..1], 2).is_err());
}
