//! Batches: operations that start together.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

use dsc::request::{all_gather, all_reduce, broadcast, recv, send};
use dsc::{Error, ErrorCode, Op};

use crate::ranks;

const RANKS: usize = 3;

#[test]
fn messages_cross_in_a_batch() {
    ranks(RANKS, |world| {
        let (right, left) = ((world.rank() + 1) % RANKS, (world.rank() + RANKS - 1) % RANKS);
        let (own, mut came) = (vec![world.rank() as u32; 200_000], vec![9u32; 200_000]);
        let (mut sums, mut rooted) = ([1i64; 5], [world.rank() as f32]);
        world
            .batch(|batch| {
                batch.add(send(&own, right))?;
                batch.add(all_reduce(&mut sums, Op::Sum))?;
                batch.add(recv(&mut came, left))?;
                batch.add(broadcast(&mut rooted, 2))
            })
            .unwrap();
        assert_eq!((came, sums, rooted), (vec![left as u32; 200_000], [3; 5], [2.0]));
        world.batch(|_| Ok(())).unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn a_batch_of_a_scope_runs_beside_the_program() {
    ranks(2, |world| {
        let (mut x, mut y) = ([1u8; 9], [2u8; 9]);
        let peer = 1 - world.rank();
        world
            .scope(|scope| {
                let both = scope
                    .batch(|batch| {
                        batch.add(recv(&mut x, peer))?;
                        batch.add(send(&mut y, peer))
                    })
                    .unwrap();
                assert!(both.wait_for(Duration::from_secs(20)).unwrap() && both.test().unwrap());
                both.wait()
            })
            .unwrap();
        assert_eq!(x, [2; 9]);
        let mut parts = vec![[1u32; 3]; 50];
        world
            .scope(|scope| {
                scope.batch(|batch| parts.iter_mut().try_for_each(|x| batch.add(all_reduce(x, Op::Sum)))).map(drop)
            })
            .unwrap();
        assert_eq!(parts, vec![[2; 3]; 50]); // the end of the scope has waited
        world.finalize().unwrap();
    });
}

#[test]
fn what_fails_before_the_start_starts_nothing() {
    ranks(2, |world| {
        let (mut x, three, mut five) = ([1.0f64; 4], [1.0f64; 3], [0.0f64; 5]);
        let error = world.batch(|batch| {
            batch.add(all_reduce(&mut x, Op::Sum))?;
            batch.add(all_gather(&three, &mut five))
        });
        assert_eq!((error.unwrap_err().code, x), (ErrorCode::InvalidArg, [1.0; 4]));
        let mut unsent = [0u8; 2];
        // An operation that the library refuses at the start is left out. The other operations run.
        let error = world.batch(|batch| {
            batch.add(broadcast(&mut unsent, 7))?;
            batch.add(all_reduce(&mut x, Op::Sum))
        });
        assert_eq!((error.unwrap_err().code, x), (ErrorCode::InvalidArg, [2.0; 4]));
        world.barrier().unwrap(); // works only if no batch is still open
        world.finalize().unwrap();
    });
}

#[test]
fn the_failure_of_one_is_that_of_the_batch() {
    ranks(2, |world| {
        let (mut x, mut y) = ([1.0f32; 4], vec![1.0f32; 4 + world.rank()]);
        let failed: Result<(), Error> = world.batch(|batch| {
            batch.add(all_reduce(&mut x, Op::Sum))?;
            batch.add(all_reduce(&mut y, Op::Sum))
        });
        let error = failed.unwrap_err();
        assert_eq!(error.code, ErrorCode::Mismatch);
        assert_eq!((error.op.as_deref(), error.group.as_deref()), (Some("all_reduce"), Some("world")));
    });
}

#[test]
fn a_panic_while_describing_starts_nothing() {
    ranks(2, |world| {
        let mut x = [world.rank() as f32; 4];
        if world.rank() == 1 {
            assert_eq!(world.barrier().unwrap_err().code, ErrorCode::Revoked);
            return;
        }
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _ = world.batch(|batch| {
                batch.add(all_reduce(&mut x, Op::Sum))?;
                panic!("not my day")
            });
        }));
        assert!(caught.is_err() && x == [0.0; 4]);
    });
}
