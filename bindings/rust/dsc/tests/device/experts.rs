//! Exchanges of tokens of experts in GPU memory.

use dsc::{ErrorCode, MoeOptions, MoePayload};

use crate::{ranks, read, write};

const HIDDEN: usize = 4;
const TOKENS: usize = 6;
const MOST: usize = 2 * TOKENS * HIDDEN; // the largest number of elements in the rows of a rank

#[test]
fn results_are_those_of_the_host() {
    ranks(2, |rank| {
        let (world, stream) = (&rank.world, rank.stream());
        let tokens: Vec<f32> = (0..TOKENS * HIDDEN).map(|i| (i * 7 % 11) as f32 - world.rank() as f32).collect();
        let experts: Vec<i32> = (0..TOKENS).map(|token| ((token + world.rank()) % 4) as i32 - 1).collect();
        let weights: Vec<f32> = (0..TOKENS).map(|token| token as f32 / 8.0).collect();
        let mut plan = world.moe_plan(&experts, None, &MoeOptions::new(3, 1)).unwrap();
        let len = plan.rows() * HIDDEN;
        let (mut rows, mut out) = (vec![0f32; len], vec![0f32; tokens.len()]);
        let (mut returned, mut grad_rows) = (vec![0f32; tokens.len()], vec![0f32; len]);
        let (mut grad_weights, mut grad_tokens) = (vec![0f32; TOKENS], vec![0f32; tokens.len()]);
        plan.dispatch(&tokens, HIDDEN, MoePayload::Plain, &mut rows).unwrap();
        plan.combine(&rows, Some(&weights), HIDDEN, &mut out, Some(&mut returned)).unwrap();
        let of_weights = Some((&returned, &mut grad_weights));
        plan.combine_backward(&tokens, Some(&weights), HIDDEN, &mut grad_rows, of_weights).unwrap();
        plan.dispatch_backward(&grad_rows, HIDDEN, &mut grad_tokens).unwrap();

        let mut there: Vec<_> = (0..8).map(|_| rank.buffer(&stream, &[5f32; MOST])).collect();
        let mut parts = there.iter_mut();
        let mut part = |len: usize| parts.next().unwrap().slice(0..len).unwrap();
        let (sent, factors) = (part(tokens.len()), part(TOKENS));
        write(&stream, sent.as_ptr(), &tokens);
        write(&stream, factors.as_ptr(), &weights);
        let (mut came, mut summed, mut kept) = (part(len), part(tokens.len()), part(tokens.len()));
        let (mut back, mut products, mut grads) = (part(len), part(TOKENS), part(tokens.len()));
        plan.dispatch(&sent, HIDDEN, MoePayload::Plain, &mut came).unwrap();
        plan.combine(&came, Some(&factors), HIDDEN, &mut summed, Some(&mut kept)).unwrap();
        plan.combine_backward(&sent, Some(&factors), HIDDEN, &mut back, Some((&kept, &mut products))).unwrap();
        plan.dispatch_backward(&back, HIDDEN, &mut grads).unwrap();
        let found = [&came, &summed, &kept, &back, &products, &grads];
        let expected = [&rows, &out, &returned, &grad_rows, &grad_weights, &grad_tokens];
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(read(&stream, found.as_ptr(), found.len()), *expected);
        }

        let error = plan.dispatch(&tokens, HIDDEN, MoePayload::Plain, &mut came).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArg);
        let error = plan.dispatch(&sent, HIDDEN, MoePayload::F8E4M3, &mut came).unwrap_err();
        assert_eq!(error.code, ErrorCode::Unsupported);
        plan.dispatch_backward(&back, HIDDEN, &mut grads).unwrap();
    });
}
