//! Broadcast of named arrays from one rank.

use dsc::{ErrorCode, NamedArray};

use crate::ranks;

fn array<T: Clone>(name: &str, shape: &[usize], value: T) -> NamedArray<T> {
    NamedArray { name: name.into(), shape: shape.to_vec(), data: vec![value; shape.iter().product()] }
}

#[test]
fn a_batch_reaches_all_ranks() {
    for size in [1, 2, 4] {
        ranks(size, |world| {
            let root = size - 1;
            let batch = [array("text", &[3, 400], 7i64), array("mask", &[2, 0], 8), array("one", &[], 9)];
            let mut given = if world.rank() == root { batch.to_vec() } else { Vec::new() };
            given.reverse(); // the keys determine the order
            assert_eq!(world.broadcast_data(&["text", "mask", "one"], given, root).unwrap(), batch);
            assert_eq!(world.broadcast_data::<f32>(&[], Vec::new(), 0).unwrap(), []);
            world.finalize().unwrap();
        });
    }
}

#[test]
fn what_is_wrong_on_the_root_is_told_to_all() {
    ranks(3, |world| {
        let given = |shape: &[usize], length| {
            let wrong = NamedArray { name: "a".into(), shape: shape.to_vec(), data: vec![0f32; length] };
            if world.rank() == 1 {
                vec![wrong]
            } else {
                Vec::new()
            }
        };
        for (keys, shape, length, text) in [
            (&["a", "b"][..], &[2][..], 2, "rank 1: key 'b' has no tensor, expected a tensor of f32"),
            (
                &["a"][..],
                &[2, 3][..],
                5,
                "rank 1: a (index 0): f32 [2, 3], 5 elements, expected as many elements as the shape has",
            ),
            (&["a"][..], &[1; 17][..], 1, "rank 1: key 'a' has 17 dimensions, expected at most 16"),
        ] {
            let error = world.broadcast_data(keys, given(shape, length), 1).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArg);
            assert!(error.message.contains(text), "{}", error.message);
        }
        assert_eq!(world.broadcast_data(&["a"], given(&[2], 2), 1).unwrap()[0].data, [0.0; 2]);
        world.finalize().unwrap();
    });
}

#[test]
fn different_keys_are_named() {
    ranks(2, |world| {
        let keys = if world.rank() == 0 { ["a", "b"] } else { ["a", "c"] };
        let error = world.broadcast_data::<u8>(&keys, Vec::new(), 0).unwrap_err();
        assert_eq!(error.code, ErrorCode::Mismatch);
        assert!(error.message.contains("key 1 is 'b' on rank 0 and 'c' on rank 1"), "{}", error.message);
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}
