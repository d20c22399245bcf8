//! Operations with a root, all-to-all, blocks of different lengths, scaled sums, NaN and infinity.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dsc::{request, Dtype, ErrorCode, NonFiniteCheck, Op, PremulSum, Raw, Tensor, UserOp};

use crate::ranks;

const RANKS: usize = 3;

#[test]
fn one_rank_has_or_gets_all() {
    ranks(RANKS, |world| {
        let (rank, root) = (world.rank(), 1);
        let mut x = [rank as i32 + 1; 4];
        world.reduce(&mut x, Op::Sum, root).unwrap();
        assert_eq!(x, [if rank == root { 6 } else { rank as i32 + 1 }; 4]);
        let mut all = vec![9u64; if rank == root { 2 * RANKS } else { 0 }];
        world.gather(&[rank as u64; 2], &mut all, root).unwrap();
        assert!(rank != root || all == [0, 0, 1, 1, 2, 2]);
        let mut part = [7u64; 2];
        world.scope(|scope| scope.start(request::scatter(&all, &mut part, root)).map(drop)).unwrap();
        assert_eq!(part, [rank as u64; 2]);
        world.finalize().unwrap();
    });
}

#[test]
fn receivers_need_not_know_the_size() {
    ranks(RANKS, |world| {
        let root = 2;
        let mine: &[i32] = if world.rank() == root { &[7, 8, 9] } else { &[] };
        assert_eq!(world.broadcast_vec(mine, root).unwrap(), [7, 8, 9]);
        assert_eq!(world.broadcast_vec::<u8>(&[], root).unwrap(), []);
        let shape: &[usize] = if world.rank() == root { &[2, 0, 5] } else { &[1; 40] };
        assert_eq!(world.broadcast_shape(Dtype::Bf16, shape, root).unwrap(), (Dtype::Bf16, vec![2, 0, 5]));
        if world.rank() == root {
            let error = world.broadcast_shape(Dtype::F32, &[1; 33], root).unwrap_err();
            assert!(error.message.starts_with("shape has 33 sizes; expected at most 32"), "{}", error.message);
        }
        world.finalize().unwrap();
    });
}

#[test]
fn parts_are_exchanged() {
    ranks(RANKS, |world| {
        let rank = world.rank();
        let send: Vec<usize> = (0..RANKS).map(|to| 10 * rank + to).collect();
        let mut x: Vec<i64> = send.iter().map(|x| *x as i64).collect();
        let mut came = vec![0i64; RANKS];
        world.all_to_all(&x, &mut came).unwrap();
        world.all_to_all_in_place(&mut x).unwrap();
        assert_eq!((&came, &came[..]), (&x, &[rank as i64, 10 + rank as i64, 20 + rank as i64][..]));
        let error = world.all_to_all(&[0u8; 4], &mut [0u8; 4]).unwrap_err();
        assert_eq!(
            error.message,
            "all_to_all: the buffer has 4 elements; expected a multiple of 3, the number of ranks"
        );
        // Every rank sends r + 1 elements to rank r.
        let (sent, got) = ([1, 2, 3], [rank + 1; RANKS]);
        let mut blocks = vec![0u32; RANKS * (rank + 1)];
        world.all_to_all_v(&[rank as u32; 6], &sent, &mut blocks, &got).unwrap();
        assert_eq!((blocks[0], blocks[rank + 1], blocks[2 * rank + 2]), (0, 1, 2));
        world.finalize().unwrap();
    });
}

#[test]
fn blocks_of_different_lengths() {
    ranks(RANKS, |world| {
        let (rank, counts) = (world.rank(), [0, 1, 2]);
        let mut all = [9.0f64; 3];
        world.all_gather_v(&vec![rank as f64; rank], &mut all, &counts).unwrap();
        assert_eq!(all, [1.0, 2.0, 2.0]);
        let mut part = vec![0.0; rank];
        world.reduce_scatter_v(&all, &mut part, &counts, Op::Sum).unwrap();
        assert_eq!(part, vec![3.0 * rank as f64; rank]);
        let error = world.all_gather_v(&[0.0; 7], &mut all, &counts).unwrap_err();
        assert_eq!(error.message, format!("all_gather: send has 7 elements; expected {}, its count", rank));
        let error = world.all_gather_v(&[0.0], &mut all, &[1, 2]).unwrap_err();
        assert_eq!(error.message, "all_gather: there are 2 counts for recv; expected 3, one per rank");
        let error = world.all_gather_v(&[0.0], &mut all, &[1, 1, usize::MAX]).unwrap_err();
        assert_eq!(
            error.message,
            "all_gather: recv has 3 elements; expected the sum of its counts, which is too large for memory"
        );
        let error = world.all_gather_v(&[0.0], &mut all, &[1, 1, 2]).unwrap_err();
        assert_eq!(error.message, "all_gather: recv has 3 elements; expected 4, the sum of its counts");
        world.monitored_barrier(Duration::from_secs(20)).unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn a_sum_of_scaled_inputs() {
    ranks(2, |world| {
        let half = PremulSum::new(0.5).unwrap();
        let (mut x, op) = ([2.0f32 + world.rank() as f32; 3], half.op());
        world.all_reduce(&mut x, op).unwrap();
        assert_eq!(x, [2.5; 3]);
        drop(half);
        assert_eq!(world.all_reduce(&mut x, op).unwrap_err().code, ErrorCode::InvalidArg);
        assert_eq!(PremulSum::new(f64::NAN).unwrap_err().code, ErrorCode::InvalidArg);
        world.finalize().unwrap();
    });
}

#[test]
fn a_user_defined_function() {
    let calls = ranks(RANKS, |world| {
        let (calls, factor) = (Arc::new(AtomicUsize::new(0)), 10);
        let counted = calls.clone();
        // The operation is not commutative, so the result shows the order of the ranks.
        let digits = move |earlier: &mut [u64], later: &[u64]| {
            counted.fetch_add(1, Ordering::Relaxed);
            assert_eq!(earlier.len(), later.len());
            earlier.iter_mut().zip(later).for_each(|(x, y)| *x = factor * *x + y);
        };
        let digits = UserOp::new(7, digits).unwrap();
        let (mut x, op) = (vec![world.rank() as u64 + 1; 50_000], digits.op());
        world.all_reduce(&mut x, op).unwrap();
        assert_eq!(x, vec![123; 50_000]);
        let work = world.start(request::all_reduce(vec![world.rank() as u64 + 4], op)).unwrap();
        drop(digits); // operations with this function continue
        assert_eq!(work.wait().unwrap(), [456]);
        world.barrier().unwrap();
        assert_eq!(world.all_reduce(&mut x, op).unwrap_err().code, ErrorCode::InvalidArg);
        world.finalize().unwrap();
        calls.load(Ordering::Relaxed)
    });
    assert!(calls.iter().sum::<usize>() >= RANKS);
}

#[test]
fn a_panic_in_a_function_ends_the_operation_on_all_ranks() {
    ranks(2, |world| {
        let broken = UserOp::new(1, |_: &mut [f32], _: &[f32]| panic!("not this time")).unwrap();
        let error = world.all_reduce(&mut [1.0f32; 4], broken.op()).unwrap_err();
        assert!(matches!(error.code, ErrorCode::Callback | ErrorCode::Revoked), "{:?}", error.code);
        let cause = world.watch().failure().unwrap().unwrap();
        assert_eq!(cause.code, ErrorCode::Callback);
        let later = world.barrier().unwrap_err();
        assert_eq!(later.code, ErrorCode::Revoked);
        for error in [error, cause, later] {
            assert!(error.message.contains("user operation 1 returned 1: panicked: not this time"), "{:#?}", error);
        }
    });
}

#[test]
fn the_text_of_a_panic_is_in_the_error_of_a_work() {
    ranks(2, |world| {
        let broken = UserOp::new(11, |_: &mut [i64], _: &[i64]| panic!("no {}", "luck")).unwrap();
        let error = world.start(request::all_reduce(vec![1i64; 4], broken.op())).unwrap().wait().unwrap_err();
        assert!(error.message.contains("11 returned 1: panicked: no luck"), "{:#?}", error);
    });
}

#[test]
fn a_function_for_another_type_is_refused_before_any_rank_learns_of_it() {
    ranks(2, |world| {
        let op = UserOp::new(3, |x: &mut [f32], y: &[f32]| x.iter_mut().zip(y).for_each(|(x, y)| *x += y)).unwrap();
        let mut bytes = [0u8; 16];
        let mut wide = Raw::new(&mut bytes, Dtype::F64).unwrap();
        let refused = "op is a UserOp for F32; expected buffers of this type, got F64";
        for error in [
            world.all_reduce(&mut wide, op.op()).unwrap_err(),
            world.start(request::reduce(Raw::new(vec![0u8; 8], Dtype::F64).unwrap(), op.op(), 0)).unwrap_err(),
            world.batch(|batch| batch.add(request::all_reduce(&mut wide, op.op()))).unwrap_err(),
            world.all_reduce_coalesced(&mut [Tensor::new(&mut [0.0f64; 2])], op.op(), 0).unwrap_err(),
        ] {
            assert_eq!(error.code, ErrorCode::InvalidArg);
            assert!(error.message.ends_with(refused), "{}", error);
        }
        let mut x = [1.0f32; 2];
        world.all_reduce(&mut x, op.op()).unwrap(); // the other rank was not affected
        world.all_reduce_coalesced(&mut [Tensor::new(&mut x)], op.op(), 0).unwrap();
        assert_eq!(x, [4.0; 2]);
        world.finalize().unwrap();
    });
}

#[test]
fn a_function_may_not_call_back() {
    let seen = ranks(2, |world| {
        let inside = Arc::new(Mutex::new(None));
        let seen = inside.clone();
        let refused =
            move |_: &mut [i32], _: &[i32]| *seen.lock().unwrap() = Some(PremulSum::new(1.0).unwrap_err().code);
        let op = UserOp::new(2, refused).unwrap();
        world.all_reduce(&mut [1i32; 4], op.op()).unwrap();
        let seen = *inside.lock().unwrap();
        // the function ran on this rank or on the other one
        assert!(seen.is_none() || seen == Some(ErrorCode::Reentrant));
        seen
    });
    assert!(seen.contains(&Some(ErrorCode::Reentrant)));
}

#[test]
fn ranks_with_different_functions() {
    ranks(2, |world| {
        let op = UserOp::new(world.rank() as u64, |_: &mut [i8], _: &[i8]| ()).unwrap();
        assert_eq!(world.all_reduce(&mut [1i8; 4], op.op()).unwrap_err().code, ErrorCode::Mismatch);
    });
}

#[test]
fn nan_among_the_inputs() {
    ranks(2, |world| {
        world.set_nonfinite_check(NonFiniteCheck::Fail).unwrap();
        assert_eq!(world.nonfinite(false).unwrap().first, None);
        let mut x = [1.0f32, if world.rank() == 1 { f32::NAN } else { 1.0 }];
        let error = world.all_reduce(&mut x, Op::Sum).unwrap_err();
        assert_eq!((error.code, error.rank, error.index()), (ErrorCode::NonFinite, Some(1), Some(1)));
        assert_eq!((error.op.as_deref(), error.sequence), (Some("all_reduce"), Some(1)));
        let found = world.nonfinite(true).unwrap();
        let first = found.first.unwrap();
        assert_eq!((found.elements, found.operations), (1, 1));
        assert_eq!((first.operation.as_str(), first.rank, first.index), ("all_reduce", 1, 1));
        assert_eq!((x[0], world.nonfinite(false).unwrap().elements), (2.0, 0));
        world.finalize().unwrap();
    });
}

#[cfg(feature = "half")]
#[test]
fn half_precision_floats_are_elements() {
    use half::{bf16, f16};

    ranks(2, |world| {
        let mut x = vec![f16::from_f32(1.5 + world.rank() as f32); 100];
        world.all_reduce(&mut x, Op::Sum).unwrap();
        assert_eq!(x[99].to_f32(), 4.0);
        let mut all = [bf16::from_f32(0.0); 2];
        world.all_gather(&bf16::from_f32(world.rank() as f32 - 0.5), &mut all).unwrap();
        assert_eq!(all.map(bf16::to_f32), [-0.5, 0.5]);
        world.finalize().unwrap();
    });
}
