//! An all-reduce, followed by the addition of a residual and by RMSNorm.

use dsc::{Comm, ErrorCode};

use crate::ranks;

const HIDDEN: usize = 5;

/// Returns the input of a rank, and the residual, which is equal on all ranks.
fn rows(rank: usize) -> (Vec<f64>, Vec<f64>) {
    let number = |i: usize| ((i * 7 + rank * 3) % 11) as f64 / 2.0 - 2.0;
    ((0..3 * HIDDEN).map(number).collect(), (0..3 * HIDDEN).map(|i| i as f64 / 4.0).collect())
}

fn summed(world: &Comm) -> Vec<f64> {
    let (_, mut sum) = rows(0);
    for rank in 0..world.size() {
        rows(rank).0.iter().zip(&mut sum).for_each(|(part, whole)| *whole += part);
    }
    sum
}

#[test]
fn rows_are_normalized() {
    let weight = [1.0, 2.0, -1.0, 0.5, 3.0];
    for size in [1, 2, 3] {
        ranks(size, |world| {
            let (mut own, mut residual) = rows(world.rank());
            world.all_reduce_rms_norm(&mut own, Some(&mut residual), Some(&weight), HIDDEN, 1e-3).unwrap();
            let expected = summed(&world);
            assert_eq!(residual, expected);
            for (found, row) in own.chunks(HIDDEN).zip(expected.chunks(HIDDEN)) {
                let squares: f64 = row.iter().map(|x| x * x).sum();
                let root = (squares / HIDDEN as f64 + 1e-3).sqrt();
                for j in 0..HIDDEN {
                    assert!((found[j] - row[j] / root * weight[j]).abs() < 1e-14);
                }
            }
            let (mut alone, none) = (vec![1f32; 4], None::<&mut [f32]>);
            world.all_reduce_rms_norm(&mut alone, none, None::<&[f32]>, 2, 1e-12).unwrap();
            assert_eq!(alone, [1.0; 4]);
            world.finalize().unwrap();
        });
    }
}

#[test]
fn wrong_lengths_are_told_at_once() {
    ranks(2, |world| {
        let (mut own, mut residual) = rows(world.rank());
        let mut told = |count: usize, weight: &[f64], hidden: usize, epsilon: f64| {
            let result =
                world.all_reduce_rms_norm(&mut own, Some(&mut residual[..count]), Some(weight), hidden, epsilon);
            let error = result.unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArg);
            error.message
        };
        let text = told(15, &[1.0; 4], 4, 1e-3);
        assert!(text.starts_with("rows has 15 elements; expected a multiple of 4 (hidden)"), "{}", text);
        let text = told(14, &[1.0; 5], 5, 1e-3);
        assert!(text.starts_with("residual has 14 elements of F64; expected 15 of F64"), "{}", text);
        let text = told(15, &[1.0; 4], 5, 1e-3);
        assert!(text.starts_with("weight has 4 elements of F64; expected 5 of F64"), "{}", text);
        let text = told(15, &[1.0; 5], 5, 0.0);
        assert!(text.contains("epsilon is 0, expected 2.22507e-308 to 1.79769e+308"), "{}", text);
        assert_eq!((own, residual), rows(world.rank()));
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn another_epsilon_is_a_mismatch() {
    ranks(2, |world| {
        let (mut own, mut residual) = rows(world.rank());
        let epsilon = if world.rank() == 0 { 1e-5 } else { 1e-6 };
        let result = world.all_reduce_rms_norm(&mut own, Some(&mut residual), None::<&[f64]>, HIDDEN, epsilon);
        let error = result.unwrap_err();
        assert_eq!((error.code, (own, residual)), (ErrorCode::Mismatch, rows(world.rank())));
        assert!(
            error.message.contains("eps 1e-05 3x5") && error.message.contains("eps 1e-06 3x5"),
            "{}",
            error.message
        );
    });
}
