//! Operations with borrowed buffers.

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
        world.scope(|scope| {
            mem::forget(scope.start(request::all_reduce(left, Op::Sum)).unwrap());
            drop(scope.start(request::all_reduce(right, Op::Max)).unwrap());
            if world.rank() == 1 {
                thread::sleep(Duration::from_millis(20)); // the other rank cannot be complete before
            }
        });
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
        world.scope(|scope| {
            let sum = scope.start(request::all_reduce(&mut x, Op::Sum)).unwrap();
            let all = scope.start(request::all_gather(&send, &mut recv)).unwrap();
            let raw = Raw::new(&mut bytes, dsc::Dtype::F16).unwrap();
            let came = scope.start(request::recv(raw, peer)).unwrap();
            scope.start(request::send(Raw::new(&[7u8, 7], dsc::Dtype::F16).unwrap(), peer)).unwrap();
            let x = sum.wait().unwrap();
            x[0] += 1;
            assert_eq!(*x, [2, 1, 1, 1, 1, 1, 1, 1]);
            assert_eq!(send, [1; 4]); // what is only read may be read by all
            assert_eq!(all.wait().unwrap().1[7], 1);
            assert!(came.wait_for(Duration::from_secs(20)).unwrap() && came.test().unwrap());
        });
        assert_eq!((x[0], bytes), (2, [7, 7]));
        world.finalize().unwrap();
    });
}

#[test]
fn many_operations_in_one_scope() {
    ranks(2, |world| {
        let mut parts = vec![[1u32; 3]; 500];
        world.scope(|scope| {
            for part in &mut parts {
                scope.start(request::all_reduce(part, Op::Sum)).unwrap();
            }
        });
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
                world.scope(|scope| {
                    let _running = scope.start(request::all_reduce(&mut x, Op::Sum)).unwrap();
                    panic!("not my day");
                })
            }));
            assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"not my day"));
            assert_eq!(x, [0.0; 4]); // nobody joined, and the buffer is this rank's again
        } else {
            assert_eq!(world.recv(&mut 0u8, 0).unwrap_err().code, ErrorCode::Revoked);
        }
    });
}
