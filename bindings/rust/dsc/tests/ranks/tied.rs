//! Tied layers.

use dsc::{Comm, ErrorCode, Tensor, TiedKey, TiedLayers, TiedOptions};

use crate::ranks;

/// Makes tied layers on a rank that is the given stage of its pipeline.
fn tie(
    world: &Comm,
    stage: usize,
    stages: &[usize],
    weight: &mut [f32],
    options: &TiedOptions,
) -> dsc::Result<TiedLayers> {
    let mut own = [1.5f64; 3];
    let alone = TiedKey::new("alone", &[0]);
    let alone = if stage == 0 { alone.weights(vec![Tensor::new(&mut own)]) } else { alone };
    let embed = TiedKey::new("embed", stages).weights(vec![Tensor::new(weight)]);
    TiedLayers::new(world, vec![embed, alone], options)
}

#[test]
fn weights_are_copied_and_gradients_summed() {
    ranks(2, |world| {
        let mut weight = vec![world.rank() as f32 + 7.0; 5];
        let mut tied = tie(&world, world.rank(), &[1, 0], &mut weight, &TiedOptions::new()).unwrap();
        assert_eq!(weight, [7.0; 5]);
        let (mut grad, mut own) = (vec![world.rank() as f32 + 1.0; 5], [4.0f64; 3]);
        let mut grads = vec![Tensor::new(&mut grad)];
        if world.rank() == 0 {
            grads.push(Tensor::new(&mut own));
        }
        tied.reduce(&mut grads).unwrap();
        drop(grads);
        assert_eq!((grad[0], grad[4], own[2]), (3.0, 3.0, 4.0));
        assert_eq!(tied.owner("embed").unwrap(), (0, world.rank() == 0));
        assert_eq!(tied.owner("x").unwrap_err().code, ErrorCode::InvalidArg);
        world.barrier().unwrap();
        drop(tied);
        world.finalize().unwrap();
    });
}

#[test]
fn pipelines_are_apart() {
    ranks(4, |world| {
        let options = TiedOptions::new().pipelines(&[vec![0, 1], vec![3, 2]]).sync(false);
        let mut weight = vec![world.rank() as f32; 5];
        let stage = [0, 1, 1, 0][world.rank()];
        let mut tied = tie(&world, stage, &[0, 1], &mut weight, &options).unwrap();
        assert_eq!(weight[0], world.rank() as f32);
        let mut own = [4.0f64; 3];
        let mut grads = vec![Tensor::new(&mut weight)];
        if stage == 0 {
            grads.push(Tensor::new(&mut own));
        }
        tied.reduce(&mut grads).unwrap();
        drop(grads);
        assert_eq!(weight[1], if world.rank() < 2 { 1.0 } else { 5.0 });
        world.barrier().unwrap();
        drop(tied);
        world.finalize().unwrap();
    });
}

#[test]
fn ranks_that_disagree_are_told() {
    ranks(2, |world| {
        let mut weight = vec![1.0; 5 + world.rank()];
        let error = tie(&world, world.rank(), &[0, 1], &mut weight, &TiedOptions::new()).unwrap_err();
        assert_eq!(error.code, ErrorCode::Mismatch);
        assert!(error.message.contains("f32, 5 elements on rank 0 and f32, 6 elements on rank 1"), "{}", error);
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}
