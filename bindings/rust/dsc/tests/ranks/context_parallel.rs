//! The exchange of sequence and heads, the ring of blocks, and orders of a sequence.

use dsc::{ErrorCode, Ring, SequenceHeads, SequenceOrder};

use crate::ranks;

/// Returns the value of the element (token, head) in a sequence of a batch.
fn element(batch: usize, token: usize, head: usize) -> f32 {
    (batch * 1000 + token * 10 + head) as f32
}

#[test]
fn tokens_become_heads_and_come_back() {
    ranks(3, |world| {
        let (tokens, heads, rank) = ([1, 0, 3], [2, 1, 0], world.rank());
        let exchange = SequenceHeads::new(2, 4, 3, 1).sequence_parts(&tokens).head_parts(&heads);
        let start = |list: &[usize]| list[..rank].iter().sum::<usize>();
        let (first, head) = (start(&tokens), start(&heads));
        let part = |tokens: std::ops::Range<usize>, heads: std::ops::Range<usize>| -> Vec<f32> {
            let pairs = (0..2).flat_map(|b| tokens.clone().map(move |t| (b, t)));
            pairs.flat_map(|(b, t)| heads.clone().map(move |h| element(b, t, h))).collect()
        };
        let x = part(first..first + tokens[rank], 0..3);
        let mut by_heads = vec![0.0f32; 2 * 4 * heads[rank]];
        exchange.forward(&world, &x, &mut by_heads).unwrap();
        assert_eq!(by_heads, part(0..4, head..head + heads[rank]));
        let mut back = vec![0.0f32; x.len()];
        exchange.backward(&world, &by_heads, &mut back).unwrap();
        assert_eq!(back, x);
        world.finalize().unwrap();
    });
}

#[test]
fn blocks_come_by_and_their_gradients_come_home() {
    ranks(3, |world| {
        let (counts, rank) = ([2, 0, 5], world.rank());
        let mut ring = Ring::new(&world, 5 * 4, 5 * 8).unwrap();
        let block: Vec<f32> = vec![rank as f32; counts[rank]];
        for _ in 0..2 {
            let mut sources = Vec::new();
            let mut pass = ring.pass(&block, Some(&counts)).unwrap();
            while let Some(shown) = pass.step().unwrap() {
                assert_eq!(shown.data, vec![shown.source as f32; counts[shown.source]]);
                sources.push(shown.source);
            }
            assert!(pass.step().unwrap().is_none());
            assert_eq!(sources, [rank, (rank + 2) % 3, (rank + 1) % 3]);
            let mut pass = ring.backward::<f32, f64>(&block, Some(&counts)).unwrap();
            while let Some(shown) = pass.step().unwrap() {
                shown.grad.iter_mut().for_each(|grad| *grad += (10 * shown.source + rank) as f64);
            }
            assert_eq!(pass.into_sum().unwrap(), vec![(30 * rank + 3) as f64; counts[rank]]);
        }
        // All ranks drop this pass after the same step.
        let mut left = ring.pass(&[1i64, 2], None).unwrap();
        assert_eq!(left.step().unwrap().unwrap().data, [1, 2]);
        let early = ring.backward::<i32, i32>(&[7], None).unwrap();
        assert_eq!(early.into_sum().unwrap_err().code, ErrorCode::State);
        drop(ring);
        world.finalize().unwrap();
    });
}

#[test]
fn what_does_not_fit_is_refused_before_anything_happens() {
    ranks(2, |world| {
        let mut ring = Ring::new(&world, 16, 0).unwrap();
        let refused = |error: dsc::Error, words: &str| {
            assert_eq!(error.code, ErrorCode::InvalidArg);
            assert!(error.to_string().contains(words), "{}", error);
        };
        refused(ring.pass(&[0.0f32; 5], None).unwrap_err(), "20 bytes, expected at most 16");
        refused(ring.pass(&[0.0f32; 2], Some(&[2])).unwrap_err(), "counts has 1 sizes; expected 2, one per rank");
        refused(ring.pass(&[0.0f32; 2], Some(&[1, 1])).unwrap_err(), "count is 2 and counts");
        refused(ring.backward::<f32, f32>(&[0.0; 2], None).unwrap_err(), "expected at most 0, the ring's grad_bytes");
        let exchange = |sequence, heads, send: usize, recv: usize| {
            let (x, mut out) = (vec![0.0f32; send], vec![0.0f32; recv]);
            SequenceHeads::new(1, sequence, heads, 1).forward(&world, &x, &mut out).unwrap_err()
        };
        refused(exchange(4, 2, 3, 4), "send has 3 elements; expected 4");
        refused(exchange(4, 2, 4, 5), "recv has 5 elements; expected 4");
        refused(exchange(4, 3, 6, 4), "heads is 3, expected a multiple of the number of ranks (2)");
        let uneven = SequenceHeads::new(1, 4, 2, 1).head_parts(&[1, 0]);
        refused(
            uneven.forward(&world, &[0.0f32; 4], &mut [0.0f32; 4][..4 - 4 * world.rank()]).unwrap_err(),
            "the sum of head_parts",
        );
        drop(ring);
        world.finalize().unwrap();
    });
}

#[test]
fn zigzag_is_the_same_work_for_all() {
    for step in 1..4 {
        for rank in 0..4 {
            let work = SequenceOrder::Zigzag.causal_work(16, 4, rank, (rank + 4 - step) % 4).unwrap();
            assert_eq!((work.queries.len() * work.keys.len(), work.is_diagonal), (8, false));
        }
    }
    let held = SequenceOrder::Contiguous.ranges(10, 4, 1).unwrap();
    assert_eq!((held[0].clone(), held[1].len()), (3..6, 0));
    let error = SequenceOrder::Zigzag.ranges(10, 4, 4).unwrap_err();
    assert!(error.to_string().contains("rank is 4, expected 0 to 3"));
}
