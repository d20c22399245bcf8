//! Other features of a reducer: sums of several passes, unused parameters, rebuilt buckets, buffers and clipping.

use dsc::{Average, BucketReducer, BufferSync, ClipOptions, Comm, Dtype, ErrorCode, Norm, Raw, Rebuild};
use dsc::{ReducerOptions, Tensor};

use crate::ranks;

const N: usize = 4;

/// Makes a reducer of the given number of parameters, each with N floats and its own bucket.
pub(crate) fn reducer(world: &Comm, params: usize, options: ReducerOptions) -> BucketReducer {
    let mut params = vec![[0f32; N]; params];
    let mut tensors: Vec<Tensor> = params.iter_mut().map(Tensor::new).collect();
    BucketReducer::new(world, &mut tensors, &options.bucket_bytes(1).first_bucket_bytes(1)).unwrap()
}

/// Runs an iteration with gradients of one value each, marked in the given order. Returns the results by parameter.
pub(crate) fn iterate(reducer: &mut BucketReducer, order: &[usize], values: &[f32]) -> dsc::Result<Vec<f32>> {
    let mut grads: Vec<[f32; N]> = values.iter().map(|value| [*value; N]).collect();
    let mut places: Vec<Option<&mut [f32; N]>> = grads.iter_mut().map(Some).collect();
    let iteration = reducer.begin()?;
    for index in order {
        iteration.mark_ready(*index, places[*index].take().unwrap())?;
    }
    iteration.finish()?;
    assert!(grads.iter().all(|grad| grad == &[grad[0]; N]));
    Ok(grads.iter().map(|grad| grad[0]).collect())
}

#[test]
fn passes_without_communication_add_up() {
    ranks(2, |world| {
        let me = world.rank() as f32;
        let mut reducer = reducer(&world, 2, ReducerOptions::new());
        let passed = reducer.no_sync(|reducer| {
            assert_eq!(iterate(reducer, &[1, 0], &[me, 1.0])?, [me, 1.0]); // the gradients are unchanged
            iterate(reducer, &[0, 1], &[me, 1.0])
        });
        assert_eq!(passed.unwrap(), [me, 1.0]);
        assert_eq!(reducer.read_grad::<f32>(0).unwrap(), [2.0 * me; N]); // the sum that this rank has accumulated
        assert_eq!(iterate(&mut reducer, &[1, 0], &[me, 3.0]).unwrap(), [1.5, 5.0]);

        // The previous setting is restored, even after an error.
        let error = reducer.no_sync(|reducer| reducer.read_grad::<f64>(0)).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArg);
        assert_eq!(iterate(&mut reducer, &[1, 0], &[me, 3.0]).unwrap(), [0.5, 3.0]);
        reducer.set_sync(false).unwrap();
        reducer.no_sync(|_| Ok(())).unwrap();
        let error = reducer.begin().unwrap().finish_and_clip(&ClipOptions::new()).unwrap_err();
        assert_eq!(error.code, ErrorCode::State);
        assert!(error.message.contains("no gradients to clip"), "{}", error);
        reducer.set_sync(true).unwrap();
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn unused_parameters_are_found() {
    ranks(2, |world| {
        let me = world.rank();
        let mut reducer = reducer(&world, 4, ReducerOptions::new().find_unused(true).average(Average::None));
        let results = iterate(&mut reducer, &[3, me], &[1.0, 2.0, 4.0, 8.0]).unwrap();
        assert_eq!(results[3], 16.0);
        assert_eq!(results[me], [1.0, 2.0][me]); // the other rank has no gradient
        assert_eq!(reducer.unused().unwrap(), [2]);
        assert_eq!(reducer.rebuilds().unwrap(), 0);
        world.finalize().unwrap();
    });
}

#[test]
fn a_static_graph_counts_marks() {
    ranks(2, |world| {
        let options = ReducerOptions::new().static_graph(true).average(Average::None);
        let mut reducer = reducer(&world, 3, options);
        let passed = reducer.no_sync(|reducer| iterate(reducer, &[2], &[0.0; 3])); // this iteration is not counted
        passed.unwrap();
        for step in 0..3 {
            let mut other = [1f32; N];
            let iteration = reducer.begin().unwrap();
            for _use in 0..2 {
                iteration.accumulate(0, &[world.rank() as f32 + 1.0; N]).unwrap();
                iteration.mark_accumulated(0).unwrap();
                assert!(iteration.grad_view::<f32>(0).is_err()); // the library may already use its memory
            }
            iteration.mark_ready(2, &mut other).unwrap();
            if step > 0 {
                // The library has already reduced zeros for this parameter.
                for error in [
                    iteration.grad_view::<f32>(1).map(drop).unwrap_err(),
                    iteration.accumulate(1, &[1f32; N]).unwrap_err(),
                ] {
                    assert_eq!(error.code, ErrorCode::State);
                    assert!(error.message.contains("parameter 1 had no gradient in the first iteration"), "{}", error);
                }
                iteration.mark_unused(1).unwrap();
            }
            if step == 2 {
                let third = iteration.mark_accumulated(0);
                assert_eq!(third.unwrap_err().code, ErrorCode::State);
            }
            iteration.finish().unwrap();
            assert_eq!((reducer.read_grad::<f32>(0).unwrap()[0], other), (6.0, [2.0; N]));
            assert_eq!(reducer.unused().unwrap(), [1]);
        }
        world.finalize().unwrap();
    });
}

#[test]
fn buckets_are_rebuilt_unless_there_are_views() {
    ranks(2, |world| {
        let mut rebuilt = reducer(&world, 3, ReducerOptions::new().small_bucket_first(true));
        let mut never = reducer(&world, 3, ReducerOptions::new().rebuild(Rebuild::Never));
        let mut viewed = reducer(&world, 3, ReducerOptions::new().rebuild(Rebuild::Repeated));
        for reducer in [&mut rebuilt, &mut never, &mut viewed] {
            assert_eq!(reducer.buckets().unwrap(), [[2], [1], [0]]);
        }
        viewed.view::<f32>(0).unwrap();
        for _ in 0..2 {
            for (reducer, rebuilds) in [(&mut rebuilt, 1), (&mut never, 0), (&mut viewed, 0)] {
                assert_eq!(iterate(reducer, &[1, 2, 0], &[1.0, 2.0, 3.0]).unwrap(), [1.0, 2.0, 3.0]);
                assert_eq!(reducer.read_grad::<f32>(2).unwrap(), [3.0; N]);
                assert_eq!(reducer.rebuilds().unwrap(), rebuilds);
            }
        }
        assert_eq!(rebuilt.buckets().unwrap(), [[1], [2], [0]]);
        assert_eq!(viewed.buckets().unwrap(), [[2], [1], [0]]);
        assert_eq!(rebuilt.view::<f32>(1).unwrap(), [2.0; N]); // its address after the rebuild
        assert_eq!(rebuilt.read_grad::<f32>(3).unwrap_err().code, ErrorCode::InvalidArg);
        world.finalize().unwrap();
    });
}

#[test]
fn views_may_have_another_type() {
    ranks(2, |world| {
        let bf16 = |bits: u16| [bits.to_ne_bytes(); 2].concat();
        let mut param = bf16(0);
        let mut raw = Raw::new(&mut param, Dtype::Bf16).unwrap();
        let mut tensors = [Tensor::new(&mut raw)];
        let options = ReducerOptions::new().grad_dtype(Dtype::F32).average(Average::None);
        let mut reducer = BucketReducer::new(&world, &mut tensors, &options).unwrap();
        let mut grad = bf16(0x3f80); // 1.0
        let mut raw = Raw::new(&mut grad, Dtype::Bf16).unwrap();
        let mut floats = [1f32; 2];
        let iteration = reducer.begin().unwrap();
        let error = iteration.mark_ready(0, &mut floats).unwrap_err();
        assert!(error.message.contains("2 elements of F32; expected 2 of Bf16"), "{}", error);
        iteration.accumulate(0, &Raw::new(&bf16(0x3b80), Dtype::Bf16).unwrap()).unwrap(); // 1 / 256
        iteration.mark_ready(0, &mut raw).unwrap();
        iteration.finish().unwrap();
        assert_eq!(reducer.view::<f32>(0).unwrap(), [2.0 + 2.0 / 256.0; 2]); // bfloat16 cannot represent this number
        assert_eq!(grad, bf16(0x4000));
        assert!(reducer
            .read_grad::<u8>(0)
            .unwrap_err()
            .message
            .contains("has elements of F32, but the call is for elements of U8"));
        world.finalize().unwrap();
    });
}

#[test]
fn buffers_are_made_equal() {
    ranks(2, |world| {
        let me = world.rank();
        let mut reducer = reducer(&world, 1, ReducerOptions::new());
        let (mut means, mut steps) = (vec![me as f32; 5], [me as i64 + 7; 2]);
        let error = reducer.sync_buffers(&mut [], BufferSync::Mean).unwrap_err();
        assert_eq!(error.code, ErrorCode::State);
        reducer.set_buffers(&mut [Tensor::new(&mut means), Tensor::new(&mut steps)]).unwrap();
        means[1] = 10.0 * me as f32;
        reducer.sync_buffers(&mut [Tensor::new(&mut means), Tensor::new(&mut steps)], BufferSync::Mean).unwrap();
        assert_eq!((&means[..2], steps), (&[0.5, 5.0][..], [7; 2]));
        means.fill(me as f32 + 3.0);
        let mut list = [Tensor::new(&mut means), Tensor::new(&mut steps)];
        reducer.sync_buffers(&mut list, BufferSync::Broadcast).unwrap();
        let error = reducer.sync_buffers(&mut list[..1], BufferSync::Broadcast).unwrap_err();
        assert_eq!(
            error.message,
            "sync_buffers: there are 1 buffers; expected the 2 buffers that were passed to set_buffers()"
        );
        assert_eq!(means, [3.0; 5]);
        let mut moved = [0f32; 5];
        let mut list = [Tensor::new(&mut moved), Tensor::new(&mut steps)];
        let error = reducer.sync_buffers(&mut list, BufferSync::Broadcast).unwrap_err();
        assert!(error.message.contains("buffer 0 is not the buffer that was passed to set_buffers()"), "{}", error);
        let error = reducer.set_buffers(&mut [Tensor::new(&mut vec![0u8; 1 + me])]).unwrap_err();
        assert_eq!(error.code, ErrorCode::Mismatch);
        world.finalize().unwrap();
    });
}

#[test]
fn gradients_are_clipped_where_they_lie() {
    ranks(2, |world| {
        let mut reducer = reducer(&world, 2, ReducerOptions::new());
        let clip = |reducer: &mut BucketReducer, value: f32, options: &ClipOptions<'_>| {
            let mut own = [value; N];
            let iteration = reducer.begin().unwrap();
            iteration.mark_ready(0, &mut own).unwrap();
            let mut view = iteration.grad_view::<f32>(1).unwrap();
            view.fill(2.0);
            view.mark_ready().unwrap();
            let norm = iteration.finish_and_clip(options)?;
            Ok((norm, own[0], reducer.view::<f32>(1).unwrap()[0]))
        };
        let options = ClipOptions::new();
        // the norm is only computed
        assert_eq!(clip(&mut reducer, 2.0, &options).unwrap(), (f64::from(32f32).sqrt(), 2.0, 2.0));
        let max = ClipOptions::new().norm(Norm::Max).max_norm(4.0).scale(2.0);
        let (norm, own, view) = clip(&mut reducer, 6.0, &max).unwrap();
        assert_eq!((norm, (own - 4.0).abs() < 1e-4, (view - 4.0 / 3.0).abs() < 1e-4), (12.0, true, true));
        let halved = ClipOptions::new().scale(0.5).counted(&[true, false]);
        assert_eq!(clip(&mut reducer, 4.0, &halved).unwrap(), (4.0, 2.0, 1.0));
        let shards = world.split(Some(world.rank()), 0).unwrap().unwrap();
        assert_eq!(clip(&mut reducer, 6.0, &max.clone().shards(&shards)).unwrap().0, 12.0);
        let (norm, own, _) = clip(&mut reducer, f32::NAN, &max).unwrap();
        assert!(norm.is_nan() && own.is_nan());
        assert_eq!(reducer.view::<f32>(1).unwrap()[0], 2.0); // the gradients are unchanged

        let wrong = |reducer: &mut BucketReducer, options: ClipOptions<'_>| {
            let error: dsc::Error = clip(reducer, 1.0, &options).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArg);
            error.message
        };
        let message = wrong(&mut reducer, ClipOptions::new().counted(&[true]));
        assert_eq!(message, "counted has 1 entries; expected 2, one per parameter");
        assert!(wrong(&mut reducer, ClipOptions::new().max_norm(0.0)).contains("max_norm is 0"));
        assert!(wrong(&mut reducer, ClipOptions::new().scale(0.0)).contains("scale is 0"));
        assert!(wrong(&mut reducer, ClipOptions::new().norm(Norm::Unknown(7)))
            .contains("norm is Unknown(7), expected Two or Max"));
        drop(shards);
        world.finalize().unwrap();
    });
}

/// Makes a reducer of a dense parameter, and of a table of 10 rows of 3 elements with sparse gradients.
fn sparse_reducer(world: &Comm, options: &ReducerOptions) -> BucketReducer {
    let (mut list, mut table) = ([0f32; N], [0f32; 30]);
    let mut tensors = [Tensor::new(&mut list), Tensor::new(&mut table).shape(&[10, 3]).expect_sparse()];
    BucketReducer::new(world, &mut tensors, options).unwrap()
}

#[test]
fn sparse_gradients_are_gathered() {
    ranks(2, |world| {
        let me = world.rank() as i64;
        let options = ReducerOptions::new().average(Average::None);
        for (keep, expected) in [(false, &[4, 8, 9][..]), (true, &[9, 8, 9, 4])] {
            let mut reducer = sparse_reducer(&world, &options.clone().keep_sparse_rows(keep));
            let mut grad = [1f32; N];
            let iteration = reducer.begin().unwrap();
            iteration.mark_sparse(1, &[9, 8 - 4 * me], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
            iteration.mark_ready(0, &mut grad).unwrap();
            iteration.finish().unwrap();
            let (indices, rows) = reducer.sparse::<f32>(1).unwrap();
            assert_eq!((indices, grad), (expected, [2.0; N]));
            assert_eq!(rows[..3], if keep { [1.0, 2.0, 3.0] } else { [4.0, 5.0, 6.0] });
            assert_eq!(rows[rows.len() - 3..], if keep { [4.0, 5.0, 6.0] } else { [2.0, 4.0, 6.0] });
        }
        let mut reducer = sparse_reducer(&world, &options);
        let mut table = [0f32; 30];
        let iteration = reducer.begin().unwrap();
        let told = |error: dsc::Result<()>| error.unwrap_err().message;
        assert!(told(iteration.mark_ready(1, &mut table)).contains("parameter 1 has sparse gradients"));
        assert!(told(iteration.grad_view::<f32>(1).map(drop)).contains("parameter 1 has sparse gradients"));
        assert!(
            told(iteration.mark_sparse(0, &[0], &[1f32])).contains("parameter 0 was not created with sparse gradients")
        );
        assert!(told(iteration.mark_sparse(1, &[10], &[1f32; 3])).contains("indices[0] is 10, expected 0 to 9"));
        let message = told(iteration.mark_sparse(1, &[1], &[1f32; 4]));
        assert_eq!(
            message,
            "values of parameter 1 has 4 elements of F32; expected 1 rows of 3 elements of F32 on the host"
        );
        iteration.mark_sparse(1, &[], &[0f32; 0]).unwrap();
        iteration.mark_unused(0).unwrap();
        iteration.finish().unwrap();
        assert_eq!(reducer.sparse::<f32>(1).unwrap(), (&[][..], &[][..]));
        assert_eq!(reducer.sparse::<f32>(0).unwrap_err().code, ErrorCode::InvalidArg);
        assert!(reducer.view::<f32>(1).is_err() && reducer.read_grad::<f32>(1).is_err());
        world.finalize().unwrap();
    });
}

#[test]
fn it_tells_about_itself() {
    ranks(2, |world| {
        let mut reducer = reducer(&world, 2, ReducerOptions::new().rebuild(Rebuild::Never));
        assert_eq!(reducer.draw().unwrap_err().code, ErrorCode::State); // no iteration has finished yet
        iterate(&mut reducer, &[1, 0], &[1.0, 2.0]).unwrap();
        let stats = reducer.stats().unwrap();
        assert!(stats.starts_with('{') && stats.contains("\"bucket_sizes\""), "{}", stats);
        assert!(reducer.draw().unwrap().starts_with("<svg"));
        assert!(reducer.op_stats().unwrap().iter().any(|totals| totals.op == "all_reduce" && totals.count > 1));
        drop(reducer.begin().unwrap());
        let error = reducer.stats().unwrap_err();
        assert!(error.message.contains("an iteration failed on the GPU or was dropped before finish()"), "{}", error);
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn options_are_checked_and_compared() {
    ranks(2, |world| {
        let make = |options: ReducerOptions| {
            let mut param = [0f32; N];
            BucketReducer::new(&world, &mut [Tensor::new(&mut param)], &options).map(drop).unwrap_err()
        };
        let error = make(ReducerOptions::new().rebuild(Rebuild::Unknown(9)));
        assert_eq!((error.code, error.message.contains("rebuild is Unknown(9)")), (ErrorCode::InvalidArg, true));
        let rebuild = if world.rank() == 0 { Rebuild::Never } else { Rebuild::Once };
        let error = make(ReducerOptions::new().rebuild(rebuild));
        assert!(error.message.contains("rebuild is Never on rank 0 and Once on rank 1"), "{}", error);
        let error = make(ReducerOptions::new().grad_dtype(Dtype::I32));
        assert_eq!(error.code, ErrorCode::Unsupported);
        let error = make(ReducerOptions::new().find_unused(world.rank() == 0));
        assert_eq!((error.code, error.message.contains("find_unused")), (ErrorCode::Config, true));
        world.finalize().unwrap();
    });
}
