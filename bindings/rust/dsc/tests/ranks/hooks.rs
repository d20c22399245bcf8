//! Communication hooks.

use std::sync::{Arc, Mutex};

use dsc::{Bucket, Comm, ErrorCode, HookResult, Op, ReducerOptions};

use crate::ranks;
use crate::reducer_features::{iterate, reducer};

fn mean(bucket: &mut Bucket<'_>) -> HookResult {
    let (comm, divisor) = (bucket.comm(), bucket.divisor() as f32);
    let gradients = bucket.buffer_mut::<f32>()?;
    comm.all_reduce(gradients, Op::Sum)?;
    gradients.iter_mut().for_each(|x| *x /= divisor);
    Ok(())
}

#[test]
fn a_function_reduces_buckets() {
    ranks(2, |world| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let calls = seen.clone();
        let mut reducer = reducer(&world, 3, ReducerOptions::new().buckets(&[vec![2], vec![0, 1]]));
        reducer
            .set_hook("doubles the second", move |bucket| {
                mean(bucket)?;
                if let [_, second] = &mut bucket.gradients_mut::<f32>()?[..] {
                    second.iter_mut().for_each(|x| *x *= 2.0);
                }
                assert!(bucket
                    .buffer_mut::<f64>()
                    .unwrap_err()
                    .message
                    .contains("has elements of F32, but the call is for elements of F64"));
                assert!(bucket.device_buffer::<f32>().is_err() && bucket.stream().is_none());
                assert_eq!(bucket.raw_mut()?.into_inner().len(), 4 * bucket.len());
                calls.lock().unwrap().push((bucket.index(), bucket.params().to_vec(), bucket.len(), bucket.is_last()));
                Ok(())
            })
            .unwrap();
        let me = world.rank() as f32;
        for _ in 0..2 {
            assert_eq!(iterate(&mut reducer, &[1, 2, 0], &[me, 1.0 + me, 8.0]).unwrap(), [0.5, 3.0, 8.0]);
        }
        let once = [(0, vec![2], 4, false), (1, vec![0, 1], 8, true)];
        assert_eq!(*seen.lock().unwrap(), [once.clone(), once].concat());
        assert!(reducer.stats().unwrap().contains("doubles the second"));
        assert_eq!(Arc::strong_count(&seen), 2);
        reducer.use_hook(None).unwrap();
        assert_eq!(Arc::strong_count(&seen), 1); // the function was dropped
        assert_eq!(iterate(&mut reducer, &[2, 1, 0], &[me, 1.0, 8.0]).unwrap(), [0.5, 1.0, 8.0]);
        reducer.set_hook("mean", mean).unwrap();
        assert_eq!(iterate(&mut reducer, &[2, 1, 0], &[me, 1.0, 8.0]).unwrap(), [0.5, 1.0, 8.0]);
        drop(reducer);
        world.finalize().unwrap();
    });
}

/// Runs an iteration with a hook that fails on rank 1. Returns the error of each rank, and the error of its next call.
fn failures(fail: fn(&mut Bucket<'_>) -> HookResult) -> Vec<(dsc::Error, dsc::Error)> {
    ranks(2, |world| {
        let mut reducer = reducer(&world, 2, ReducerOptions::new());
        reducer.set_hook("frail", if world.rank() == 1 { fail } else { mean }).unwrap();
        let first = iterate(&mut reducer, &[1, 0], &[1.0, 2.0]).unwrap_err();
        let second = reducer.set_sync(true).and_then(|()| reducer.begin().map(drop)).unwrap_err();
        world.barrier().unwrap(); // the world still works
        drop(reducer);
        world.finalize().unwrap();
        (first, second)
    })
}

#[test]
fn an_error_of_a_function_is_told() {
    let heard = failures(|_| Err("no more ink".into()));
    let (own, later) = &heard[1];
    assert_eq!((own.code, own.op.as_deref()), (ErrorCode::Callback, Some("bucket_reducer_mark_ready")));
    assert_eq!(own.message, "hook frail failed on bucket 0: no more ink");
    assert!(later.message.contains("an iteration failed on the GPU or was dropped before finish()"), "{}", later);
    let (others, _) = &heard[0];
    assert!(others.message.contains("hook frail failed on rank 1: "), "{}", others);
    assert!(
        others.message.ends_with("in step 0 of bucket 0: hook frail failed on bucket 0: no more ink"),
        "{}",
        others
    );
}

#[test]
fn an_error_of_this_crate_is_told_as_it_is() {
    let heard = failures(|bucket| Ok(bucket.buffer_mut::<u8>().map(drop)?));
    assert_eq!(heard[1].0.code, ErrorCode::InvalidArg);
    assert_eq!(heard[1].0.message, "bucket 0 has elements of F32, but the call is for elements of U8");
}

#[test]
fn a_panic_in_a_function_is_told() {
    let heard = failures(|bucket| panic!("bucket {} leaks", bucket.index()));
    assert_eq!(heard[1].0.code, ErrorCode::Callback);
    assert_eq!(heard[1].0.message, "hook frail failed on bucket 0: it panicked: bucket 0 leaks");
}

#[test]
fn finish_tells_after_a_mark_that_failed() {
    ranks(1, |world| {
        let mut reducer = reducer(&world, 1, ReducerOptions::new());
        reducer.set_hook("frail", |_| Err("no more ink".into())).unwrap();
        let mut grad = [1f32; 4];
        let iteration = reducer.begin().unwrap();
        assert_eq!(iteration.mark_ready(0, &mut grad).unwrap_err().code, ErrorCode::Callback);
        assert!(iteration.grad_view::<f32>(0).is_err()); // the library still uses the gradient's memory
        let error = iteration.finish().unwrap_err();
        assert!(error.message.contains("no more ink"), "{}", error);
        let error = reducer.begin().map(drop).unwrap_err();
        assert!(error.message.contains("no more ink"), "{}", error);
    });
}

fn compressed(world: &Comm, spec: &str) -> dsc::BucketReducer {
    let mut reducer = reducer(world, 2, ReducerOptions::new().rebuild(dsc::Rebuild::Never));
    reducer.use_hook(Some(spec)).unwrap();
    reducer
}

#[test]
fn built_in_hooks_have_names_and_memory() {
    ranks(2, |world| {
        assert!(dsc::hooks().unwrap().iter().any(|line| line.starts_with("onebit")));
        let me = world.rank() as f32;
        let values = [me, 1.0 + 2.0 * me];
        let mut plain = compressed(&world, "bf16");
        assert_eq!(iterate(&mut plain, &[1, 0], &values).unwrap(), [0.5, 2.0]);
        assert_eq!(plain.save_hook().unwrap(), []);

        // A hook with a restored state gives the same results as the first one.
        let (mut first, mut second) = (compressed(&world, "onebit"), compressed(&world, "onebit"));
        iterate(&mut first, &[1, 0], &values).unwrap();
        let state = first.save_hook().unwrap();
        assert!(!state.is_empty());
        second.load_hook(&state).unwrap();
        let expected = iterate(&mut first, &[1, 0], &values).unwrap();
        assert_eq!(iterate(&mut second, &[1, 0], &values).unwrap(), expected);

        assert_eq!(plain.load_hook(&state).unwrap_err().code, ErrorCode::InvalidArg);
        let error = plain.use_hook(Some("bf8")).unwrap_err();
        assert!(error.code == ErrorCode::InvalidArg && error.message.contains("unknown hook bf8"), "{}", error);
        plain.use_hook(None).unwrap();
        assert_eq!(plain.save_hook().unwrap_err().code, ErrorCode::State);
        assert!(plain.set_hook("a\0b", mean).unwrap_err().message.contains("without zero bytes"));
        world.finalize().unwrap();
    });
}
