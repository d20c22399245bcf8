//! Results and argument checks of the blocking operations.

use dsc::{Comm, Dtype, Element, ErrorCode, Op, Raw};

use crate::ranks;

const RANKS: usize = 3;

fn sums<T: Element + From<u8> + PartialEq + std::fmt::Debug>(world: &Comm) {
    let mut x = [T::from(world.rank() as u8), T::from(1)];
    world.all_reduce(&mut x, Op::Sum).unwrap();
    assert_eq!(x, [T::from(3), T::from(3)]);
}

#[test]
fn all_reduce_of_every_element_type() {
    ranks(RANKS, |world| {
        sums::<u8>(&world);
        sums::<i32>(&world);
        sums::<u32>(&world);
        sums::<i64>(&world);
        sums::<u64>(&world);
        sums::<f32>(&world);
        sums::<f64>(&world);
        let mut small = -(world.rank() as i8);
        world.all_reduce(&mut small, Op::Min).unwrap();
        assert_eq!(small, -2);
        world.finalize().unwrap();
    });
}

#[test]
fn buffers_of_every_form() {
    ranks(RANKS, |world| {
        let rank = world.rank() as f64;
        let mut vector = vec![rank; 5];
        let mut shared = world.shared_buffer::<f64>(5).unwrap();
        shared.fill(rank);
        let mut array = [[rank; 5]; 2];
        world.all_reduce(&mut vector, Op::Sum).unwrap();
        world.all_reduce(&mut vector[1..3], Op::Sum).unwrap();
        world.all_reduce(&mut shared, Op::Sum).unwrap();
        world.all_reduce_into(&array[0].clone(), &mut array[1], Op::Avg).unwrap();
        assert_eq!(vector, [3.0, 9.0, 9.0, 3.0, 3.0]);
        assert_eq!(&shared[..], [3.0; 5]);
        assert_eq!(array, [[rank; 5], [1.0; 5]]);
        let slice: &mut [f64] = &mut vector;
        world.broadcast(slice, 1).unwrap();
        world.broadcast(slice, 1).unwrap(); // a mutable reference can be passed without losing it
        world.finalize().unwrap();
    });
}

#[test]
fn gather_and_scatter() {
    ranks(RANKS, |world| {
        let rank = world.rank() as i32;
        let mut all = [0; 2 * RANKS];
        world.all_gather(&[rank, 10 * rank], &mut all).unwrap();
        assert_eq!(all, [0, 0, 1, 10, 2, 20]);
        let mut part = [0; 2];
        world.reduce_scatter(&all, &mut part, Op::Max).unwrap();
        assert_eq!(part, [rank, 10 * rank]);
        world.finalize().unwrap();
    });
}

#[test]
fn gather_and_scatter_in_place() {
    ranks(RANKS, |world| {
        let rank = world.rank();
        let mut all = [-1; 2 * RANKS];
        all[2 * rank..2 * rank + 2].fill(rank as i64);
        world.all_gather_in_place(&mut all).unwrap();
        assert_eq!(all, [0, 0, 1, 1, 2, 2]);
        world.reduce_scatter_in_place(&mut all, Op::Sum).unwrap();
        let mut expected = [0, 0, 1, 1, 2, 2];
        expected[2 * rank..2 * rank + 2].fill(3 * rank as i64); // the other parts are unchanged
        assert_eq!(all, expected);
        world.finalize().unwrap();
    });
}

#[test]
fn broadcast_into_ignores_send_elsewhere() {
    ranks(RANKS, |world| {
        let (send, mut recv) = ([world.rank() as u32; 4], [9; 4]);
        world.broadcast_into(&send, &mut recv, 2).unwrap();
        assert_eq!((send, recv), ([world.rank() as u32; 4], [2; 4]));
        world.finalize().unwrap();
    });
}

#[test]
fn messages_go_around() {
    ranks(RANKS, |world| {
        let rank = world.rank();
        let mut x = [rank as u64; 100];
        if rank == 0 {
            world.send(&x, 1).unwrap();
            world.recv(&mut x, RANKS - 1).unwrap();
            assert_eq!(x, [2; 100]);
        } else {
            let mut came = vec![0u64; 100];
            world.recv(&mut came, rank - 1).unwrap();
            assert_eq!(came, [rank as u64 - 1; 100]);
            world.send(&x, (rank + 1) % RANKS).unwrap();
        }
        world.finalize().unwrap();
    });
}

#[test]
fn bytes_with_a_type() {
    ranks(2, |world| {
        let one_and_two = [0x3f80u16, 0x4000].map(u16::to_ne_bytes).concat();
        let mut data = Raw::new(one_and_two.clone(), Dtype::Bf16).unwrap();
        world.all_reduce(&mut data, Op::Sum).unwrap();
        assert_eq!(data.into_inner(), [0x4000u16, 0x4080].map(u16::to_ne_bytes).concat());

        let send = Raw::new(&one_and_two, Dtype::Bf16).unwrap();
        let mut bytes = [0u8; 8];
        let mut recv = Raw::new(&mut bytes, Dtype::F16).unwrap();
        let error = world.all_gather(&send, &mut recv).unwrap_err();
        assert_eq!(error.message, "all_gather: recv has type F16; expected Bf16, like send");
        world.finalize().unwrap();
    });
}

#[test]
fn no_elements_at_all() {
    ranks(2, |world| {
        let mut nothing: [f32; 0] = [];
        world.all_reduce(&mut nothing, Op::Sum).unwrap();
        world.all_gather_in_place(&mut Vec::<i32>::new()).unwrap();
        let mut empty = world.shared_buffer::<f32>(0).unwrap();
        world.all_reduce(&mut empty, Op::Sum).unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn lengths_are_checked_before_anything_happens() {
    ranks(RANKS, |world| {
        let (mut seven, two) = ([0f32; 7], [0f32; 2]);
        let wrong = [
            (
                world.all_gather(&two, &mut seven),
                "all_gather: recv has 7 elements; expected 6, 2 elements of send for each of 3 ranks",
            ),
            (
                world.reduce_scatter(&two, &mut seven, Op::Sum),
                "reduce_scatter: send has 2 elements; expected 21, 7 elements of recv for each of 3 ranks",
            ),
            (
                world.all_reduce_into(&two, &mut seven, Op::Sum),
                "all_reduce: recv has 7 elements; expected 2, like send",
            ),
            (
                world.all_gather_in_place(&mut seven),
                "all_gather: the buffer has 7 elements; expected a multiple of 3, the number of ranks",
            ),
        ];
        for (result, message) in wrong {
            let error = result.unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (ErrorCode::InvalidArg, message));
        }
        let error = world.broadcast(&mut seven, RANKS).unwrap_err();
        assert_eq!((error.code, error.op.as_deref()), (ErrorCode::InvalidArg, Some("broadcast")));
        assert_eq!(error.message, "broadcast: root is 3, expected 0 to 2");
        let error = world.all_reduce(&mut 1, Op::Avg).unwrap_err();
        assert_eq!((error.code, error.group.as_deref()), (ErrorCode::Unsupported, Some("world")));
        world.barrier().unwrap(); // the refused calls had no effect on other ranks
        world.finalize().unwrap();
    });
}
