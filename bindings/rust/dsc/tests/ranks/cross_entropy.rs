//! Cross entropy with a vocabulary that is divided among the ranks.

use dsc::{Comm, CrossEntropyOptions, ErrorCode};

use crate::ranks;

const TOKENS: usize = 3;

/// Returns the complete logits, and this rank's columns of them.
fn logits(world: &Comm, vocab: usize) -> (Vec<f64>, Vec<f64>) {
    let whole: Vec<f64> = (0..TOKENS * vocab).map(|i| ((i * 7) % 11) as f64 / 2.0 - 2.5).collect();
    let longer = vocab % world.size();
    let count = vocab / world.size() + usize::from(world.rank() < longer);
    let begin = vocab / world.size() * world.rank() + world.rank().min(longer);
    let own = whole.chunks(vocab).flat_map(|row| row[begin..begin + count].to_vec()).collect();
    (whole, own)
}

fn dense_loss(row: &[f64], target: i64) -> f64 {
    row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[target as usize]
}

#[test]
fn losses_are_those_of_the_whole_vocabulary() {
    for size in [1, 2, 3] {
        ranks(size, |world| {
            let (whole, mut own) = logits(&world, 7);
            let (targets, mut losses) = ([6, 0, 3], [0f64; TOKENS]);
            let options = CrossEntropyOptions::new().vocab(7);
            let entropy = world.vocab_cross_entropy(&own, &targets, &mut losses, &options).unwrap();
            for (t, row) in whole.chunks(7).enumerate() {
                assert!((losses[t] - dense_loss(row, targets[t])).abs() < 1e-12);
            }
            let mut gradients = vec![0f64; own.len()];
            entropy.backward(None::<&[f64]>, &own, &mut gradients).unwrap();
            let mut total: f64 = gradients.iter().sum(); // the gradients of each token add up to 0
            world.all_reduce(&mut total, dsc::Op::Sum).unwrap();
            assert!(total.abs() < 1e-12);
            entropy.backward_in_place(Some(&[1f64; TOKENS]), &mut own).unwrap();
            assert_eq!(own, gradients);
            world.finalize().unwrap();
        });
    }
}

#[test]
fn options_are_passed_on() {
    ranks(2, |world| {
        let (_, own) = logits(&world, 8);
        let (targets, mut plain, mut with) = ([7, -100, 1], [0f64; TOKENS], [0f64; TOKENS]);
        let options = CrossEntropyOptions::new().ignore_index(-100);
        world.vocab_cross_entropy(&own, &targets, &mut plain, &options).unwrap();
        let more = options.clone().z_loss(0.5).label_smoothing(0.1);
        world.vocab_cross_entropy(&own, &targets, &mut with, &more).unwrap();
        assert!(plain[1] == 0.0 && with[1] == 0.0 && with[0] > plain[0] && with[2] > plain[2]);
        let error = world.vocab_cross_entropy(&own, &[7, 8, 1], &mut plain, &options).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArg);
        assert!(
            error.message.contains("targets[1] is 8, expected 0 to 7, or -100 (ignore_index)"),
            "{}",
            error.message
        );
        world.finalize().unwrap();
    });
}

#[test]
fn wrong_lengths_and_types_are_told_at_once() {
    ranks(2, |world| {
        let (_, own) = logits(&world, 8);
        let (options, targets) = (CrossEntropyOptions::new(), [0; TOKENS]);
        let told = |result: dsc::Result<dsc::CrossEntropy<'_>>| result.unwrap_err().message;
        let text = told(world.vocab_cross_entropy(&own, &targets, &mut [0f32; TOKENS], &options));
        assert!(
            text.starts_with("losses has 3 elements of F32; expected 3 of F64 (3 tokens, 4 of 8 columns"),
            "{}",
            text
        );
        let text = told(world.vocab_cross_entropy(&own, &targets, &mut [0f64; 2], &options));
        assert!(text.starts_with("losses has 2 elements of F64; expected 3 of F64"), "{}", text);
        let text = told(world.vocab_cross_entropy(&own[1..], &targets, &mut [0f64; TOKENS], &options));
        assert!(text.starts_with("logits has 11 elements of F64; expected 9 of F64"), "{}", text);
        let mut losses = [0f64; TOKENS];
        let entropy = world.vocab_cross_entropy(&own, &targets, &mut losses, &options).unwrap();
        let error = entropy.backward(None::<&[f64]>, &own, &mut own.clone()[1..]).unwrap_err();
        assert!(error.message.starts_with("gradients has 11 elements of F64; expected 12"), "{}", error.message);
        let error = entropy.backward(Some(&[1f32; TOKENS]), &own, &mut own.clone()).unwrap_err();
        assert!(
            error.message.starts_with("loss_gradients has 3 elements of F32; expected 3 of F64"),
            "{}",
            error.message
        );
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn different_targets_are_a_mismatch() {
    ranks(2, |world| {
        let (_, own) = logits(&world, 8);
        let targets = [0, 1, world.rank() as i64];
        let mut losses = [9f64; TOKENS];
        let result = world.vocab_cross_entropy(&own, &targets, &mut losses, &CrossEntropyOptions::new());
        let error = result.unwrap_err();
        assert_eq!((error.code, losses), (ErrorCode::Mismatch, [9f64; TOKENS]));
    });
}
