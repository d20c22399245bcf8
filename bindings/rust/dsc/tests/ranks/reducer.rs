//! Gradient buckets.

use std::mem;
use std::thread;

use dsc::{Average, BucketReducer, Comm, Dtype, ErrorCode, Iteration, Op, ReducerOptions, Tensor};

use crate::ranks;

const COUNTS: [usize; 3] = [6, 4, 2];

/// Makes a reducer of three parameters, with one bucket for each.
fn reducer(world: &Comm, options: ReducerOptions) -> BucketReducer {
    let mut params = COUNTS.map(|count| vec![world.rank() as f32; count]);
    let mut tensors: Vec<Tensor> = params.iter_mut().map(Tensor::new).collect();
    let made = BucketReducer::new(world, &mut tensors, &options.bucket_bytes(1).first_bucket_bytes(1)).unwrap();
    assert_eq!(params.map(|param| param[0]), [0.0; 3]); // copied from rank 0
    made
}

fn gradients(world: &Comm) -> [Vec<f32>; 3] {
    COUNTS.map(|count| vec![(world.rank() * count) as f32; count])
}

#[test]
fn gradients_are_averaged_in_place() {
    ranks(2, |world| {
        let mut reducer = reducer(&world, ReducerOptions::new());
        assert_eq!(reducer.buckets().unwrap(), [[2], [1], [0]]);
        for _ in 0..2 {
            let mut grads = gradients(&world);
            let iteration = reducer.begin().unwrap();
            for (index, grad) in grads.iter_mut().enumerate().rev() {
                iteration.mark_ready(index, grad).unwrap();
            }
            iteration.finish().unwrap();
            assert_eq!(grads, COUNTS.map(|count| vec![count as f32 / 2.0; count]));
            assert_eq!(reducer.view::<f32>(1).unwrap(), [2.0; 4]);
        }
        assert!(reducer.op_stats().unwrap().iter().any(|totals| totals.op == "all_reduce" && totals.count > 0));
        world.finalize().unwrap();
    });
}

#[test]
fn threads_mark_at_once() {
    ranks(2, |world| {
        let mut reducer = reducer(&world, ReducerOptions::new().average(Average::None));
        let mut grads = gradients(&world);
        let iteration = reducer.begin().unwrap();
        thread::scope(|scope| {
            for (index, grad) in grads.iter_mut().enumerate() {
                let iteration = &iteration;
                scope.spawn(move || iteration.mark_ready(index, grad).unwrap());
            }
        });
        iteration.finish().unwrap();
        assert_eq!(grads, COUNTS.map(|count| vec![count as f32; count]));
        world.finalize().unwrap();
    });
}

#[test]
fn views_accumulation_and_absence() {
    ranks(2, |world| {
        let mut reducer = reducer(&world, ReducerOptions::new().average(Average::None));
        let iteration = reducer.begin().unwrap();
        let mut view = iteration.grad_view::<f32>(0).unwrap();
        view.fill(1.0);
        let busy = iteration.mark_unused(0).unwrap_err(); // the view is still in use
        assert_eq!((busy.code, busy.message.contains("parameter 0 is in use")), (ErrorCode::State, true));
        view.mark_ready().unwrap();
        assert!(iteration.grad_view::<f32>(0).unwrap_err().message.contains("has already been marked"));
        iteration.accumulate(1, &[1.0f32; 4]).unwrap();
        iteration.accumulate(1, &[2.0f32; 4]).unwrap();
        iteration.mark_accumulated(1).unwrap();
        iteration.mark_unused(2).unwrap();
        iteration.finish().unwrap();
        assert_eq!(reducer.view::<f32>(0).unwrap(), [2.0; 6]);
        assert_eq!(reducer.view::<f32>(1).unwrap(), [6.0; 4]);
        assert_eq!(reducer.view::<f32>(2).unwrap(), [0.0; 2]);
        assert_eq!(reducer.view::<f64>(2).unwrap_err().code, ErrorCode::InvalidArg);
        world.finalize().unwrap();
    });
}

/// Marks every gradient. The callback creates and drops each of them.
fn backward(iteration: &Iteration, factor: f32) -> dsc::Result<()> {
    for (index, count) in COUNTS.iter().enumerate().rev() {
        let gradient = vec![factor * (index + 1) as f32; *count];
        iteration.mark_ready_copy(index, &gradient)?;
    }
    Ok(())
}

#[test]
fn gradients_that_do_not_stay_are_copied() {
    ranks(2, |world| {
        let mut reducer = reducer(&world, ReducerOptions::new());
        for step in [1.0, 10.0] {
            let iteration = reducer.begin().unwrap();
            iteration.accumulate(2, &[step; 2]).unwrap();
            backward(&iteration, step * (world.rank() + 1) as f32).unwrap();
            let error = iteration.mark_ready_copy(0, &[1.0f32; 6]).unwrap_err();
            assert_eq!(
                (error.code, &*error.message),
                (ErrorCode::State, "parameter 0 has already been marked ready or unused")
            );
            iteration.finish().unwrap();
            let means = [0, 1, 2].map(|index| reducer.read_grad::<f32>(index).unwrap());
            assert_eq!(means, [vec![1.5 * step; 6], vec![3.0 * step; 4], vec![5.5 * step; 2]]);
        }
        reducer.no_sync(|reducer| collect(reducer, 1.0)).unwrap();
        collect(&mut reducer, 2.0).unwrap();
        assert_eq!(reducer.read_grad::<f32>(1).unwrap(), [6.0; 4]);
        world.finalize().unwrap();
    });
}

fn collect(reducer: &mut BucketReducer, factor: f32) -> dsc::Result<()> {
    let iteration = reducer.begin()?;
    backward(&iteration, factor)?;
    iteration.finish()
}

#[test]
fn threads_mark_copies_at_once() {
    ranks(2, |world| {
        let mut reducer = reducer(&world, ReducerOptions::new().average(Average::None));
        let iteration = reducer.begin().unwrap();
        thread::scope(|scope| {
            for (index, count) in COUNTS.into_iter().enumerate() {
                let iteration = &iteration;
                scope.spawn(move || iteration.mark_ready_copy(index, &vec![index as f32; count]).unwrap());
            }
        });
        let short = iteration.mark_ready_copy(0, &[0f32; 5]).unwrap_err();
        assert_eq!(short.message, "the gradient of parameter 0 has 5 elements of F32; expected 6 of F32");
        iteration.finish().unwrap();
        assert_eq!(reducer.view::<f32>(2).unwrap(), [4.0; 2]);
        world.finalize().unwrap();
    });
}

#[test]
fn a_static_graph_marks_copies_as_often_as_in_its_first_iteration() {
    ranks(2, |world| {
        let mut reducer = reducer(&world, ReducerOptions::new().static_graph(true));
        for _ in 0..3 {
            let iteration = reducer.begin().unwrap();
            backward(&iteration, 1.0).unwrap();
            backward(&iteration, 2.0).unwrap();
            iteration.finish().unwrap();
            assert_eq!(reducer.read_grad::<f32>(0).unwrap(), [3.0; 6]);
        }
        world.finalize().unwrap();
    });
}

#[test]
fn wrong_gradients_are_refused() {
    ranks(1, |world| {
        let mut reducer = reducer(&world, ReducerOptions::new());
        let (mut short, mut other, mut good) = ([0f32; 5], [0f64; 6], [1f32; 6]);
        let iteration = reducer.begin().unwrap();
        let error = iteration.mark_ready(0, &mut short).unwrap_err();
        assert_eq!(error.message, "the gradient of parameter 0 has 5 elements of F32; expected 6 of F32");
        let error = iteration.mark_ready(0, &mut other).unwrap_err();
        assert_eq!(error.message, "the gradient of parameter 0 has 6 elements of F64; expected 6 of F32");
        let error = iteration.mark_unused(3).unwrap_err();
        assert_eq!(error.message, "there is no parameter 3; the number of parameters is 3");
        iteration.mark_ready(0, &mut good).unwrap();
        // a gradient in a forgotten view is not marked, so it is missing
        mem::forget(iteration.grad_view::<f32>(1).unwrap());
        let error = iteration.finish().unwrap_err();
        assert_eq!(error.code, ErrorCode::State);
        assert!(error.message.contains("parameter 1") && error.message.contains("parameter 2"), "{}", error);
        assert_eq!(reducer.view::<f32>(0).unwrap_err().code, ErrorCode::State);
        let iteration = reducer.begin().unwrap(); // the next iteration is not affected
        for index in 0..3 {
            iteration.mark_unused(index).unwrap();
        }
        iteration.finish().unwrap();
    });
}

#[test]
fn a_dropped_iteration_ends_the_reducer_everywhere() {
    ranks(2, |world| {
        let mut reducer = reducer(&world, ReducerOptions::new());
        let mut grads = gradients(&world);
        let iteration = reducer.begin().unwrap();
        world.barrier().unwrap();
        if world.rank() == 0 {
            iteration.mark_ready(2, &mut grads[2]).unwrap();
            drop(iteration);
            let error = reducer.begin().unwrap_err();
            assert!(
                error.message.contains("an iteration failed on the GPU or was dropped before finish()"),
                "{}",
                error
            );
        } else {
            for (index, grad) in grads.iter_mut().enumerate().rev() {
                if iteration.mark_ready(index, grad).is_err() {
                    break; // the other rank has already ended the reducer
                }
            }
            assert!(iteration.finish().is_err());
        }
        world.barrier().unwrap(); // the world still works
        world.finalize().unwrap();
    });
}

#[test]
fn explicit_buckets_and_one_bucket() {
    ranks(2, |world| {
        let made = reducer(&world, ReducerOptions::new().buckets(&[vec![1], vec![0, 2]]));
        assert_eq!(made.buckets().unwrap(), [vec![1], vec![0, 2]]);
        let made = reducer(&world, ReducerOptions::new().single_first_bucket(true));
        assert_eq!(made.buckets().unwrap().len(), 1);
        let mut params = [vec![world.rank() as f64]];
        let mut tensors: Vec<Tensor> = params.iter_mut().map(Tensor::new).collect();
        BucketReducer::new(&world, &mut tensors, &ReducerOptions::new().sync(false)).unwrap();
        assert_eq!(params[0], [world.rank() as f64]); // not overwritten
        world.finalize().unwrap();
    });
}

#[test]
fn parameters_are_compared_and_copied() {
    ranks(2, |world| {
        let count = 3 + world.rank();
        let tensors =
            [Tensor::described(Dtype::F32, 7), Tensor::described(Dtype::F64, count).name("head").shape(&[count])];
        let error = world.verify_params(&tensors).unwrap_err();
        assert_eq!(error.code, ErrorCode::Mismatch);
        assert!(error.message.contains("head"), "{}", error);
        world.verify_params(&tensors[..1]).unwrap(); // the communicator keeps working
        let (mut a, mut b) = (vec![world.rank() as f32; 9], [world.rank() as i64; 2]);
        world.broadcast_coalesced(&mut [Tensor::new(&mut a), Tensor::new(&mut b)], 1, 0).unwrap();
        assert_eq!((a, b), (vec![1.0; 9], [1; 2]));
        let (mut a, mut b) = (vec![1.0_f32; 9], [world.rank() as i64; 2]);
        world.all_reduce_coalesced(&mut [Tensor::new(&mut a), Tensor::new(&mut b)], Op::Sum, 0).unwrap();
        assert_eq!((a, b), (vec![2.0; 9], [1; 2]));
        world.finalize().unwrap();
    });
}
