//! Operations on borrowed buffers.

use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::thread;
use std::time::Duration;

use dsc::{request, ErrorCode, Op, Raw};

use crate::ranks;

#[test]
fn the_end_of_a_scope_waits_even_for_forgotten_works() {
    ranks(2, |world| {
        let mut x = vec![world.rank() as f64; 300_000];
        let (left, right) = x.split_at_mut(150_000);
        let waited = world.scope(|scope| {
            mem::forget(scope.start(request::all_reduce(left, Op::Sum)).unwrap());
            drop(scope.start(request::all_reduce(right, Op::Max)).unwrap());
            if world.rank() == 1 {
                thread::sleep(Duration::from_millis(20)); // the operation cannot complete before this rank joins
            }
            Ok(())
        });
        waited.unwrap();
        assert!(x.iter().all(|x| *x == 1.0));
        world.finalize().unwrap();
    });
}

#[test]
fn a_wait_gives_the_buffer_back_inside_the_scope() {
    ranks(2, |world| {
        let mut x = [world.rank() as i64; 8];
        let (send, mut recv) = ([1i32; 4], vec![0i32; 8]);
        let (mut bytes, peer) = ([0u8; 2], 1 - world.rank());
        world
            .scope(|scope| {
                let sum = scope.all_reduce(&mut x, Op::Sum)?;
                let all = scope.all_gather(&send, &mut recv)?;
                let raw = Raw::new(&mut bytes, dsc::Dtype::F16)?;
                let came = scope.start(request::recv(raw, peer))?;
                scope.start(request::send(Raw::new(&[7u8, 7], dsc::Dtype::F16)?, peer))?;
                let x = sum.wait()?;
                x[0] += 1;
                assert_eq!(*x, [2, 1, 1, 1, 1, 1, 1, 1]);
                assert_eq!(send, [1; 4]); // a buffer that is only read may also be read by this rank
                assert_eq!(all.wait()?.1[7], 1);
                assert!(came.wait_for(Duration::from_secs(20))? && came.test()?);
                Ok(())
            })
            .unwrap();
        assert_eq!((x[0], bytes), (2, [7, 7]));
        world.finalize().unwrap();
    });
}

#[test]
fn many_operations_in_one_scope() {
    ranks(2, |world| {
        let mut parts = vec![[1u32; 3]; 500];
        world
            .scope(|scope| {
                for part in &mut parts {
                    scope.all_reduce(part, Op::Sum)?;
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(parts, vec![[2u32; 3]; 500]);
        world.finalize().unwrap();
    });
}

#[test]
fn a_panic_ends_the_operations_on_all_ranks() {
    ranks(2, |world| {
        let mut x = [world.rank() as f32; 4];
        if world.rank() == 0 {
            let panic = catch_unwind(AssertUnwindSafe(|| {
                world.scope(|scope| -> dsc::Result<()> {
                    let _running = scope.all_reduce(&mut x, Op::Sum)?;
                    panic!("not my day");
                })
            }));
            assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"not my day"));
            assert_eq!(x, [0.0; 4]); // no other rank joined, and the buffer may be used again
        } else {
            assert_eq!(world.recv(&mut 0u8, 0).unwrap_err().code, ErrorCode::Revoked);
        }
    });
}

#[test]
fn a_failure_that_nobody_waited_for_is_the_scopes() {
    ranks(2, |world| {
        let (mut x, mut y) = (vec![0f32; 4 + world.rank()], [0f32; 4]);
        let outcome = world.scope(|scope| {
            scope.all_reduce(&mut x[..], Op::Sum)?; // the lengths differ between ranks
            scope.all_reduce(&mut y, Op::Sum).map(drop).or(Ok(()))
        });
        assert_eq!(outcome.unwrap_err().code, ErrorCode::Mismatch);
    });
}

#[test]
fn a_failure_that_the_closure_has_seen_is_its_own() {
    ranks(2, |world| {
        let mut x = vec![0f32; 4 + world.rank()];
        let code = world.scope(|scope| Ok(scope.all_reduce(&mut x[..], Op::Sum)?.wait().unwrap_err().code));
        assert_eq!(code.unwrap(), ErrorCode::Mismatch);
    });
}

#[test]
fn every_operation_of_a_scope() {
    ranks(2, |world| {
        let (rank, peer) = (world.rank() as i32, 1 - world.rank());
        let (mut all, mut part, mut told, mut most) = ([0; 2], [0; 1], [rank; 2], [rank; 2]);
        let (mut sum, mut mixed, mut came) = ([0; 2], [0; 2], [0; 1]);
        let (own, pair) = ([rank], [rank, 10 * rank]);
        world
            .scope(|scope| {
                scope.all_gather(&own, &mut all)?;
                scope.reduce_scatter(&pair, &mut part, Op::Sum)?;
                scope.broadcast(&mut told, 1)?;
                scope.reduce(&mut most, Op::Max, 0)?;
                scope.all_reduce_into(&pair, &mut sum, Op::Sum)?;
                scope.all_to_all(&pair, &mut mixed)?;
                scope.recv(&mut came, peer)?;
                scope.send(&own, peer)?;
                scope.barrier()?.wait()
            })
            .unwrap();
        assert_eq!((all, told, sum, came), ([0, 1], [1; 2], [1, 10], [peer as i32]));
        assert_eq!((part[0], most[0]), ([1, 10][world.rank()], 1));
        assert_eq!(mixed, [[0, 1], [0, 10]][world.rank()]);
        world.finalize().unwrap();
    });
}
