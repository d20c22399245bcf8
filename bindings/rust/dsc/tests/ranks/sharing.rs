//! Several threads that use one communicator.

use std::thread;
use std::time::Duration;

use dsc::{Comm, ErrorCode, Op};

use crate::ranks;

fn shared<T: Send + Sync>() {}

#[test]
fn communicators_can_be_shared() {
    shared::<Comm>();
    ranks(2, |world| {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let mut x = [1u32; 4];
                world.all_reduce(&mut x, Op::Sum).map(|()| x[3])
            });
            assert_eq!((world.size(), world.name()), (2, "world")); // queries do not need the lock
            assert_eq!(worker.join().unwrap().unwrap(), 2);
        });
        world.finalize().unwrap();
    });
}

/// Receives a message as soon as no other thread is in a call.
fn received_in_turn(world: &Comm) -> dsc::Result<()> {
    loop {
        match world.recv(&mut 0u8, 1) {
            Err(error) if error.code == ErrorCode::Busy => thread::sleep(Duration::from_millis(1)),
            result => return result,
        }
    }
}

#[test]
fn a_second_thread_is_refused_and_nothing_happens() {
    ranks(2, |world| {
        if world.rank() == 0 {
            thread::scope(|scope| {
                let worker = scope.spawn(|| received_in_turn(&world));
                while world.send(&0u8, 7).unwrap_err().code != ErrorCode::Busy {
                    thread::sleep(Duration::from_millis(1)); // the worker has not started its call yet
                }
                world.abort().unwrap(); // any thread may call abort()
                assert_eq!(worker.join().unwrap().unwrap_err().code, ErrorCode::Revoked);
            });
        } else {
            assert_eq!(world.recv(&mut 0u8, 0).unwrap_err().code, ErrorCode::Revoked);
        }
    });
}
