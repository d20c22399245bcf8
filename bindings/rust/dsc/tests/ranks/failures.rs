//! Errors on all ranks when one rank fails or leaves.

use std::thread;
use std::time::Duration;

use dsc::{request, BucketReducer, ErrorCode, Op, ReducerOptions, Tensor};

use crate::ranks;

#[test]
fn ranks_that_disagree_hear_who_does() {
    let messages = ranks(3, |world| {
        let mut x = vec![0f32; if world.rank() == 1 { 5 } else { 4 }];
        let error = world.all_reduce(&mut x, Op::Sum).unwrap_err();
        assert_eq!((error.code, error.op.as_deref()), (ErrorCode::Mismatch, Some("all_reduce")));
        assert!(error.to_string().starts_with("DSC_ERR_MISMATCH: "), "{}", error);
        assert_eq!(world.barrier().unwrap_err().code, ErrorCode::Revoked);
        error.message
    });
    assert!(messages.iter().all(|message| message.contains('4') && message.contains('5')), "{:?}", messages);
}

#[test]
fn a_rank_that_leaves_is_named() {
    ranks(2, |world| {
        if world.rank() == 1 {
            return; // dropping the world is local and does not wait
        }
        let error = world.barrier().unwrap_err();
        assert_eq!((error.code, error.rank), (ErrorCode::PeerLeft, Some(1)));
    });
}

#[test]
fn a_time_out_names_the_missing_rank() {
    ranks(2, |world| {
        if world.rank() == 0 {
            world.set_timeout(Duration::from_millis(50)).unwrap();
            let error = world.all_reduce(&mut 1i32, Op::Sum).unwrap_err();
            assert_eq!((error.code, &*error.ranks), (ErrorCode::Timeout, &[1][..]));
        } else {
            while world.failure().unwrap().is_none() {
                thread::yield_now();
            }
            assert!(world.barrier().is_err());
        }
    });
}

/// Rank 2 never sends, so rank 0 gets a time-out. Rank 1 then drops its reducer of the same ranks.
#[test]
fn errors_tell_of_the_failure_in_their_text() {
    ranks(3, |world| {
        let mut param = vec![0f32; 10];
        let mut tensors = [Tensor::new(&mut param)];
        let mut reducer = BucketReducer::new(&world, &mut tensors, &ReducerOptions::new()).unwrap();
        if world.rank() == 0 {
            world.set_timeout(Duration::from_millis(50)).unwrap();
            let error = world.recv(&mut 0u8, 2).unwrap_err();
            assert_eq!(
                (error.code, &*error.ranks, error.group.as_deref()),
                (ErrorCode::Timeout, &[2][..], Some("world"))
            );
        }
        while world.failure().unwrap().is_none() {
            thread::yield_now();
        }
        if world.rank() == 1 {
            return;
        }
        for _ in 0..2 {
            let error = world.all_reduce(&mut 1i32, Op::Sum).unwrap_err();
            let number = error.message.split("collective ").nth(1).and_then(|rest| rest.split(' ').next());
            // either the revocation or its cause
            assert!(matches!(error.code, ErrorCode::Revoked | ErrorCode::Timeout), "{}", error);
            assert_eq!((&*error.ranks, error.group.as_deref()), (&[2][..], Some("world")), "{}", error);
            assert_eq!(number.map(str::parse), error.sequence.map(Ok), "{}", error);
        }
        let mut gradient = vec![1f32; 10];
        let error = reducer.begin().and_then(|iteration| {
            iteration.mark_ready(0, &mut gradient)?;
            iteration.finish()
        });
        let error = error.unwrap_err();
        assert_eq!((error.code, error.rank, &*error.ranks), (ErrorCode::PeerLeft, Some(1), &[1][..]), "{}", error);
        assert_eq!(error.group.as_deref(), Some("reducer"));
    });
}

#[test]
fn another_thread_can_end_a_blocked_call() {
    ranks(2, |world| {
        if world.rank() == 0 {
            let watch = world.watch();
            let ending = thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                watch.abort().unwrap();
                watch
            });
            assert_eq!(world.barrier().unwrap_err().code, ErrorCode::Revoked);
            let watch = ending.join().unwrap();
            assert_eq!(watch.failure().unwrap().unwrap().code, ErrorCode::Revoked);
            drop(world);
            watch.abort().unwrap(); // the communicator has already ended
            assert_eq!(watch.failure().unwrap(), None);
        } else {
            assert_eq!(world.recv(&mut 0u8, 0).unwrap_err().code, ErrorCode::Revoked);
        }
    });
}

#[test]
fn a_work_outlives_its_communicator() {
    ranks(2, |world| {
        let work = world.start(request::recv(vec![0u8; 8], 1 - world.rank())).unwrap();
        drop(world);
        let error = work.wait().unwrap_err();
        assert!(matches!(error.code, ErrorCode::Revoked | ErrorCode::PeerLeft), "{}", error);
    });
}
