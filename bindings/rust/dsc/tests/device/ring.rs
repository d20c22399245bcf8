//! Rings with blocks on GPUs.

use std::time::Duration;

use dsc::{ErrorCode, Ring};

use crate::{known, ranks, read};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn blocks_and_sums_go_around_on_a_stream() {
    ranks(2, |rank| {
        let (own, me) = (rank.stream(), rank.world.rank());
        let stream = known(&own);
        let mut ring = Ring::new(&rank.world, 7 * 4, 7 * 8).unwrap();
        for counts in [[5usize, 7], [0, 7]] {
            let (mut blocks, mut sums) = (rank.buffer(&own, &[me as f32; 7]), rank.buffer(&own, &[f64::NAN; 7]));
            let (block, mut sum) = (blocks.slice(0..counts[me]).unwrap(), sums.slice(0..counts[me]).unwrap());
            let added = rank.buffer(&own, &[1.0 + me as f64; 7]);
            let mut seen = Vec::new();
            // SAFETY: block and sum exist until synchronize() has waited.
            let mut pass = unsafe { ring.pass_on(&block, Some(&counts), stream) }.unwrap();
            while let Some(step) = pass.step().unwrap() {
                assert!(step.grad.is_null() && step.len == counts[step.source]);
                assert_eq!(read(&own, step.data, step.len), vec![step.source as f32; step.len]);
                seen.push(step.source);
            }
            assert_eq!(seen, [me, 1 - me]);
            // SAFETY: as above.
            let mut pass = unsafe { ring.backward_on(&block, &mut sum, Some(&counts), stream) }.unwrap();
            while let Some(step) = pass.step().unwrap() {
                // SAFETY: the gradients have step.len elements until the following step, and added stays valid.
                unsafe { own.copy(step.grad as u64, added.as_ptr() as u64, step.len * 8) };
            }
            assert!(ring.synchronize(LONG).unwrap());
            assert_eq!(read(&own, sum.as_ptr(), counts[me]), vec![3.0; counts[me]]);
        }
    });
}

#[test]
fn what_does_not_fit_is_refused_alone() {
    ranks(2, |rank| {
        let own = rank.stream();
        let mut ring = Ring::new(&rank.world, 16, 16).unwrap();
        let (block, mut other) = (rank.buffer(&own, &[1.0f32; 4]), rank.buffer(&own, &[1.0f32; 3]));
        // SAFETY: the call is refused, so no pass begins.
        let refused = unsafe { ring.pass_on(&[1.0f32; 4], None, known(&own)) }.unwrap_err();
        assert!(refused.to_string().contains("block is in host memory; expected memory of a GPU"), "{}", refused);
        // SAFETY: as above.
        let refused = unsafe { ring.backward_on(&block, &mut other, None, known(&own)) }.unwrap_err();
        assert!(refused.to_string().contains("grad has 3 elements; expected 4, like the block"), "{}", refused);
        assert_eq!(refused.code, ErrorCode::InvalidArg);
    });
}
