//! The exchange of tokens for mixture-of-experts layers.

use dsc::{Comm, ErrorCode, MoeDrop, MoeOptions, MoePayload};

use crate::ranks;

const HIDDEN: usize = 3;
const EXPERTS: usize = 3;

/// Returns the tokens of a rank, with their experts and weights. The values are small integers and quarters, so that
/// sums are exact.
fn layer(rank: usize) -> (Vec<f64>, Vec<i32>, Vec<f64>) {
    let count = rank + 2;
    let tokens = (0..count * HIDDEN).map(|i| ((i * 5 + rank) % 9) as f64 - 4.0).collect();
    let experts = (0..count * 2).map(|i| (i + rank) as i32 % (EXPERTS as i32 + 1) - 1).collect();
    let weights = (0..count * 2).map(|i| (i % 4 + 1) as f64 / 4.0).collect();
    (tokens, experts, weights)
}

fn factor(expert: i32) -> f64 {
    f64::from(expert) + 2.0
}

fn check_layer(world: &Comm, options: &MoeOptions) {
    let (tokens, experts, weights) = layer(world.rank());
    let mut plan = world.moe_plan(&experts, None, options).unwrap();
    let mut rows = vec![0f64; plan.rows() * HIDDEN];
    plan.dispatch(&tokens, HIDDEN, MoePayload::Plain, &mut rows).unwrap();
    let mut scales = Vec::new();
    for (expert, count) in plan.experts().zip(plan.expert_rows().unwrap()) {
        scales.extend(vec![factor(expert as i32); count * HIDDEN]);
    }
    assert_eq!(scales.len(), rows.len());
    for (row, scale) in rows.iter_mut().zip(&scales) {
        *row *= scale;
    }
    let (mut out, mut returned) = (vec![0f64; tokens.len()], vec![0f64; experts.len() * HIDDEN]);
    plan.combine(&rows, Some(&weights), HIDDEN, &mut out, Some(&mut returned)).unwrap();
    let scale = |slot: usize| if experts[slot] < 0 { 0.0 } else { factor(experts[slot]) };
    for (i, found) in out.iter().enumerate() {
        let token = i / HIDDEN;
        let sum: f64 = [2 * token, 2 * token + 1].iter().map(|slot| weights[*slot] * scale(*slot)).sum();
        assert_eq!(*found, sum * tokens[i]);
    }

    let (mut grad_rows, mut grad_weights) = (vec![0f64; rows.len()], vec![0f64; weights.len()]);
    let of_weights = Some((&returned, &mut grad_weights));
    plan.combine_backward(&tokens, Some(&weights), HIDDEN, &mut grad_rows, of_weights).unwrap();
    for (row, scale) in grad_rows.iter_mut().zip(&scales) {
        *row *= scale;
    }
    let mut grad_tokens = vec![0f64; tokens.len()];
    plan.dispatch_backward(&grad_rows, HIDDEN, &mut grad_tokens).unwrap();
    assert_eq!(grad_tokens, out); // the gradients of the loss sum(out * tokens), because the layer is linear
    for (slot, found) in grad_weights.iter().enumerate() {
        let token = &tokens[slot / 2 * HIDDEN..][..HIDDEN];
        assert_eq!(*found, token.iter().map(|x| x * x * scale(slot)).sum::<f64>());
    }
    let placed = plan.positions().unwrap();
    assert!(placed.iter().zip(&experts).all(|(at, expert)| at.is_some() == (*expert >= 0)));
    assert_eq!((plan.sent(), plan.dropped()), (placed.iter().flatten().count(), 0));
    assert_eq!(plan.source_rows().unwrap().iter().sum::<usize>(), rows.len() / HIDDEN);
}

#[test]
fn layers_are_those_of_one_process() {
    for size in [1, 2, 4] {
        ranks(size, |world| {
            check_layer(&world, &MoeOptions::new(EXPERTS, 2));
            check_layer(&world, &MoeOptions::new(EXPERTS, 2).capacity(100, MoeDrop::Latest));
            world.finalize().unwrap();
        });
    }
}

#[test]
fn capacity_drops_the_lightest() {
    ranks(2, |world| {
        let options = MoeOptions::new(2, 1).capacity(2, MoeDrop::Lightest).padded(true);
        let mut plan = world.moe_plan(&[0, 0, 0, 1], Some(&[0.5, 0.25, 1.0, 1.0]), &options).unwrap();
        assert_eq!((plan.rows(), plan.sent(), plan.dropped()), (4, 3, 1));
        let mut rows = [9f32; 4];
        plan.dispatch(&[1f32, 2., 3., 4.], 1, MoePayload::F8E4M3, &mut rows).unwrap();
        let expected = if world.rank() == 0 { [1., 3., 1., 3.] } else { [4., 0., 4., 0.] };
        assert_eq!(rows, expected);
        let mut out = [9f32; 4];
        plan.combine(&rows, None::<&[f32]>, 1, &mut out, None::<&mut [f32]>).unwrap();
        assert_eq!(out, [1., 0., 3., 4.]);
        drop(plan);
        world.finalize().unwrap();
    });
}

/// Returns the results of all exchanges of a layer, made with blocking or asynchronous calls.
fn exchanged(world: &Comm, beside: bool) -> [Vec<f64>; 5] {
    let (tokens, experts, weights) = layer(world.rank());
    let mut plan = world.moe_plan(&experts, None, &MoeOptions::new(EXPERTS, 2)).unwrap();
    let of_slots = vec![0f64; experts.len() * HIDDEN];
    let (mut rows, mut out, mut returned) = (vec![0f64; plan.rows() * HIDDEN], vec![0f64; tokens.len()], of_slots);
    let (mut row_gradients, mut weight_gradients) = (rows.clone(), vec![0f64; weights.len()]);
    let mut gradients = out.clone();
    if !beside {
        plan.dispatch(&tokens, HIDDEN, MoePayload::Plain, &mut rows).unwrap();
        plan.combine(&rows, Some(&weights), HIDDEN, &mut out, Some(&mut returned)).unwrap();
        let of_weights = Some((&returned, &mut weight_gradients));
        plan.combine_backward(&out, Some(&weights), HIDDEN, &mut row_gradients, of_weights).unwrap();
        plan.dispatch_backward(&row_gradients, HIDDEN, &mut gradients).unwrap();
        return [rows, out, row_gradients, weight_gradients, gradients];
    }
    world
        .scope(|scope| {
            let (_, rows) = plan.start_dispatch(scope, &tokens, HIDDEN, MoePayload::Plain, &mut rows)?.wait()?;
            let kept = Some(&mut returned);
            let (out, kept) = plan.start_combine(scope, &*rows, Some(&weights), HIDDEN, &mut out, kept)?.wait()?;
            let of_weights = kept.map(|kept| (&*kept, &mut weight_gradients));
            let work =
                plan.start_combine_backward(scope, &*out, Some(&weights), HIDDEN, &mut row_gradients, of_weights)?;
            let (row_gradients, _) = work.wait()?;
            plan.start_dispatch_backward(scope, &*row_gradients, HIDDEN, &mut gradients)?;
            drop(plan); // the call continues, and the end of the scope waits for it
            Ok(())
        })
        .unwrap();
    [rows, out, row_gradients, weight_gradients, gradients]
}

#[test]
fn exchanges_beside_the_program_give_the_same() {
    for size in [1, 3] {
        ranks(size, |world| {
            assert_eq!(exchanged(&world, true), exchanged(&world, false));
            world.finalize().unwrap();
        });
    }
}

#[test]
fn a_plan_has_one_exchange_in_progress() {
    ranks(2, |world| {
        let group = world.split(Some(0), 0).unwrap().unwrap();
        let mut plan = world.moe_plan(&[0, 1], None, &MoeOptions::new(2, 1)).unwrap();
        let (mut rows, mut more) = (vec![0f32; plan.rows()], vec![0f32; plan.rows()]);
        world
            .scope(|scope| {
                let work = plan.start_dispatch(scope, &[1f32, 2.], 1, MoePayload::Plain, &mut rows)?;
                let error = plan.dispatch(&[1f32, 2.], 1, MoePayload::Plain, &mut more).unwrap_err();
                assert_eq!((error.code, error.op.as_deref()), (ErrorCode::State, Some("moe_dispatch")));
                work.wait()?;
                plan.dispatch(&[1f32, 2.], 1, MoePayload::Plain, &mut more)
            })
            .unwrap();
        assert_eq!(rows, more);
        let text = group
            .scope(|scope| plan.start_dispatch(scope, &[1f32, 2.], 1, MoePayload::Plain, &mut rows).map(drop))
            .unwrap_err()
            .message;
        assert!(text.contains("expected the group of the plan, \"world\""), "{}", text);
        drop((plan, group));
        world.finalize().unwrap();
    });
}

#[test]
fn wrong_arguments_are_named() {
    ranks(1, |world| {
        let options = MoeOptions::new(2, 2);
        let refused = |experts: &[i32], text: &str| {
            let error = world.moe_plan(experts, None, &options).unwrap_err();
            assert!(error.code == ErrorCode::InvalidArg && error.message.contains(text), "{}", error.message);
        };
        refused(&[0, 1, 0], "experts has 3 numbers; expected a multiple of 2");
        refused(&[0, 1, 0, 2], "experts[1][1] is 2, expected 0 to 1, or -1 for no expert");
        let mut plan = world.moe_plan(&[0, 1], None, &options).unwrap();
        let error = plan.dispatch(&[0f32; 3], 2, MoePayload::Plain, &mut [0f32; 4]).unwrap_err();
        assert!(error.message.contains("tokens has 3 elements; expected 1 rows of 2"), "{}", error.message);
        let weights = Some(&[1f64; 2]);
        let error = plan.combine(&[0f32; 4], weights, 2, &mut [0f32; 2], None::<&mut [f32]>).unwrap_err();
        assert!(error.message.contains("weights has type F64; expected F32"), "{}", error.message);
        drop(plan);
        world.finalize().unwrap();
    });
}
