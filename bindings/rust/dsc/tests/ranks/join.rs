//! Ranks with different numbers of batches.

use std::thread;

use dsc::{BufferSync, ErrorCode, Join, JoinOptions, ReducerOptions, Tensor};

use crate::ranks;
use crate::reducer_features::{iterate, reducer};

fn sent<T: Send + Sync>() {}

#[test]
fn ranks_without_batches_give_zeros() {
    sent::<Join>();
    ranks(3, |world| {
        let me = world.rank();
        for (divide, alone) in [(true, 1.0), (false, 3.0)] {
            let mut reducer = reducer(&world, 2, ReducerOptions::new());
            let options = JoinOptions::new().divide_by_initial(divide);
            let join = Join::new(&world, &mut [&mut reducer], &options).unwrap();
            let mut results = Vec::new();
            for _ in 0..[1, 0, 2][me] {
                results.push(iterate(&mut reducer, &[1, 0], &[3.0, 0.0]).unwrap()[0]);
            }
            let expected = if divide { [2.0, alone] } else { [3.0, alone] };
            assert_eq!(results, expected[..results.len()]);
            let mut param = [me as f64; 3];
            assert_eq!(join.finish(&mut [&mut reducer], &mut [Tensor::new(&mut param)]).unwrap(), 2);
            assert_eq!(param, [2.0; 3]);
            assert_eq!(reducer.view::<f32>(0).unwrap(), [alone; 4]); // the result of the last iteration of all ranks
            assert_eq!(iterate(&mut reducer, &[1, 0], &[3.0, 0.0]).unwrap(), [3.0, 0.0]);
            // the join has ended
        }
        world.finalize().unwrap();
    });
}

#[test]
fn hooks_and_local_passes_go_on() {
    ranks(2, |world| {
        let mut reducer = reducer(&world, 1, ReducerOptions::new());
        reducer
            .set_hook("sum", |bucket| {
                let comm = bucket.comm();
                comm.all_reduce(bucket.buffer_mut::<f32>()?, dsc::Op::Sum)?;
                Ok(())
            })
            .unwrap();
        let join = Join::new(&world, &mut [&mut reducer], &JoinOptions::new()).unwrap();
        if world.rank() == 0 {
            // this iteration does not involve other ranks
            reducer.no_sync(|reducer| iterate(reducer, &[0], &[1.0])).unwrap();
            assert_eq!(iterate(&mut reducer, &[0], &[4.0]).unwrap(), [5.0]);
        } else {
            reducer.set_sync(false).unwrap();
        }
        join.finish(&mut [&mut reducer], &mut []).unwrap();
        if world.rank() == 1 {
            assert_eq!(iterate(&mut reducer, &[0], &[4.0]).unwrap(), [4.0]); // still without synchronization
        }
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn buffers_of_ranks_without_batches_are_written() {
    ranks(2, |world| {
        let mut reducer = reducer(&world, 1, ReducerOptions::new());
        let mut means = [world.rank() as f32 + 1.0; 3];
        reducer.set_buffers(&mut [Tensor::new(&mut means)]).unwrap();
        let join = Join::new(&world, &mut [&mut reducer], &JoinOptions::new()).unwrap();
        if world.rank() == 1 {
            reducer.sync_buffers(&mut [Tensor::new(&mut means)], BufferSync::Broadcast).unwrap();
        }
        join.finish_with_buffers(&mut [&mut reducer], &mut [], &mut [&mut [Tensor::new(&mut means)]]).unwrap();
        assert_eq!(means, [2.0; 3]);

        // If the memory of the parameters is not borrowed, the call is refused and has no effect.
        let join = Join::new(&world, &mut [&mut reducer], &JoinOptions::new()).unwrap();
        let error = join.finish(&mut [&mut reducer], &mut []).unwrap_err();
        assert!(
            error.message.contains("there are 0 buffers; expected the 1 buffers that were passed to set_buffers()"),
            "{}",
            error
        );
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn an_early_end_can_be_an_error() {
    ranks(2, |world| {
        let mut reducer = reducer(&world, 1, ReducerOptions::new());
        let options = JoinOptions::new().throw_on_early_end(true);
        let join = Join::new(&world, &mut [&mut reducer], &options).unwrap();
        let told = if world.rank() == 0 {
            join.finish(&mut [&mut reducer], &mut []).map(drop)
        } else {
            let begun = iterate(&mut reducer, &[0], &[1.0]).map(drop);
            drop(join);
            begun
        };
        let error = told.unwrap_err();
        assert_eq!(error.code, ErrorCode::State);
        assert!(error.message.contains("rank 0 has no more batches"), "{}", error);
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn other_reducers_are_refused() {
    ranks(1, |world| {
        let mut first = reducer(&world, 1, ReducerOptions::new());
        let mut second = reducer(&world, 1, ReducerOptions::new());
        let error = Join::new(&world, &mut [], &JoinOptions::new()).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArg);
        let join = Join::new(&world, &mut [&mut first], &JoinOptions::new()).unwrap();
        let error = Join::new(&world, &mut [&mut first], &JoinOptions::new()).unwrap_err();
        assert!(
            error.code == ErrorCode::State && error.message.contains("belongs to a join that is not finished"),
            "{}",
            error
        );
        let error = join.finish(&mut [&mut second], &mut []).unwrap_err();
        assert!(error.message.contains("reducer 0 is not the reducer that the join was created with"), "{}", error);
        let join = Join::new(&world, &mut [&mut first], &JoinOptions::new()).unwrap();
        let error = join.finish(&mut [], &mut []).unwrap_err();
        assert!(error.message.contains("there are 0 reducers"), "{}", error);
        world.finalize().unwrap();
    });
}

#[test]
fn two_reducers_in_two_threads_take_turns() {
    ranks(1, |world| {
        let mut first = reducer(&world, 1, ReducerOptions::new());
        let mut second = reducer(&world, 1, ReducerOptions::new());
        let join = Join::new(&world, &mut [&mut first, &mut second], &JoinOptions::new()).unwrap();
        thread::scope(|scope| {
            for reducer in [&mut first, &mut second] {
                scope.spawn(move || {
                    for _ in 0..50 {
                        assert_eq!(iterate(reducer, &[0], &[1.0]).unwrap(), [1.0]);
                    }
                });
            }
        });
        assert_eq!(join.finish(&mut [&mut first, &mut second], &mut []).unwrap(), 0);
        world.finalize().unwrap();
    });
}
