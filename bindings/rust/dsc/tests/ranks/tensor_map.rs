//! Mappings of a divided tensor: forward, backward, unequal parts, and buffers of wrong sizes.

use dsc::{ErrorCode, Mapping, TensorMap};

use crate::ranks;

#[test]
fn columns_are_gathered_and_their_gradients_summed() {
    ranks(3, |world| {
        let rank = world.rank() as f32;
        let map = TensorMap::new(Mapping::GatherReduce, 2, 6, 1);
        let mut whole = [0.0f32; 12];
        map.forward(&world, &[rank, rank + 10.0, rank + 20.0, rank + 30.0], &mut whole).unwrap();
        assert_eq!(whole, [0.0, 10.0, 1.0, 11.0, 2.0, 12.0, 20.0, 30.0, 21.0, 31.0, 22.0, 32.0]);
        let mut gradient = [0.0f32; 4];
        map.backward(&world, &whole, &mut gradient).unwrap();
        assert_eq!(gradient, [rank * 3.0, (rank + 10.0) * 3.0, (rank + 20.0) * 3.0, (rank + 30.0) * 3.0]);
        world.finalize().unwrap();
    });
}

#[test]
fn unequal_parts_come_back_as_they_were() {
    ranks(3, |world| {
        let rank = world.rank();
        let (heads, sequence) = ([1, 0, 3], [2, 4, 1]);
        let map = TensorMap::uneven(Mapping::SequenceToHidden, 2, &heads, 5).other_parts(&sequence);
        let x: Vec<i64> = (0..sequence[rank] * 2 * 4 * 5).map(|i| (i + 1000 * rank) as i64).collect();
        let mut hidden = vec![0i64; 7 * 2 * heads[rank] * 5];
        map.forward(&world, &x, &mut hidden).unwrap();
        let mut back = vec![0i64; x.len()];
        map.backward(&world, &hidden, &mut back).unwrap();
        assert_eq!(back, x);
        let exchange = TensorMap::uneven(Mapping::AllToAll, 1, &[rank, rank, rank], 1).other_parts(&[0, 1, 2]);
        let mut came = [9u8; 3];
        exchange.forward(&world, &vec![rank as u8; 3 * rank], &mut came).unwrap();
        assert_eq!(came, [1, 2, 2]);
        world.finalize().unwrap();
    });
}

#[test]
fn chunks_add_up_to_the_whole() {
    ranks(3, |world| {
        let part: Vec<f64> = (0..5).map(|i| (10 * world.rank() + i) as f64).collect();
        let map = TensorMap::new(Mapping::GatherReduce, 1, 15, 1);
        let (mut whole, mut chunks) = ([0.0f64; 15], [0.0f64; 15]);
        map.forward(&world, &part, &mut whole).unwrap();
        for number in 0..2 {
            map.clone().chunk(number, 2).forward(&world, &part, &mut chunks).unwrap();
            assert_eq!(chunks[4] != 0.0, number == 1); // only the second chunk has the last elements of each part
        }
        assert_eq!(chunks, whole);
        world.finalize().unwrap();
    });
}

#[test]
fn steps_run_beside_the_program() {
    ranks(3, |world| {
        let rank = world.rank() as f32;
        let map = TensorMap::new(Mapping::GatherReduce, 1, 6, 1);
        let (x, mut whole) = ([rank, rank + 10.0], [0.0f32; 6]);
        world
            .scope(|scope| {
                let (_, whole) = scope.start(map.forward_request(&x, &mut whole))?.wait()?;
                assert_eq!(*whole, [0.0, 10.0, 1.0, 11.0, 2.0, 12.0]);
                let gradient = world.start(map.backward_request(whole.to_vec(), vec![0.0f32; 2]))?.wait()?.1;
                assert_eq!(gradient, [rank * 3.0, (rank + 10.0) * 3.0]);
                Ok(())
            })
            .unwrap();
        let uneven = TensorMap::uneven(Mapping::Gather, 1, &[1, 2, 3], 1);
        let (part, mut all) = (vec![world.rank() as i64; world.rank() + 1], [9i64; 6]);
        world.batch(|batch| batch.add(uneven.forward_request(&part, &mut all))).unwrap();
        assert_eq!(all, [0, 1, 1, 2, 2, 2]);
        let error = world.start(map.forward_request(vec![0.0f32; 3], vec![0.0f32; 6])).unwrap_err();
        assert_eq!((error.code, error.op.as_deref()), (ErrorCode::InvalidArg, Some("tensor_map")));
        assert!(error.message.contains("send has 3 elements; expected 2"), "{}", error);
        world.finalize().unwrap();
    });
}

#[test]
fn what_does_not_fit_is_refused_before_anything_happens() {
    ranks(2, |world| {
        let refused = |map: TensorMap, send: usize, recv: usize, words: &str| {
            let error = map.forward(&world, &vec![0.0f32; send], &mut vec![0.0f32; recv]).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArg);
            assert!(error.to_string().contains(words), "{}", error);
        };
        let gather = || TensorMap::new(Mapping::Gather, 2, 4, 1);
        refused(gather(), 4, 7, "recv has 7 elements; expected 8");
        refused(gather(), 8, 8, "send has 8 elements; expected 4");
        let uneven = "TensorMap::forward: dim is 5, expected a multiple of the number of ranks (2); \
                      for parts of other sizes, use TensorMap::uneven()";
        refused(TensorMap::new(Mapping::Gather, 1, 5, 1), 2, 5, uneven);
        refused(
            TensorMap::uneven(Mapping::Gather, 1, &[1, 2, 3], 1),
            1,
            6,
            "parts has 3 sizes; expected 2, one per rank",
        );
        refused(gather().chunk(2, 2), 4, 8, "chunk is 2, expected 0 to 1");
        let pairs = TensorMap::new(Mapping::AllToAll, 2, 4, 1).chunk(0, 2);
        refused(
            pairs,
            8,
            8,
            "chunks is 2, expected 1 if mapping is AllToAll, which exchanges parts between pairs of ranks",
        );
        refused(
            TensorMap::uneven(Mapping::Gather, 1, &[1, 2], 1).chunk(0, 1),
            1,
            3,
            "chunk is given together with a list of parts",
        );
        refused(
            gather().other_parts(&[1, 1]),
            4,
            8,
            "other_parts are given; expected them only for mappings with two lists of parts",
        );
        refused(TensorMap::uneven(Mapping::AllToAll, 1, &[1, 1], 1), 2, 2, "other_parts are missing");
        let mut whole = [0.0f32; 8];
        gather().forward(&world, &[1.0f32; 4], &mut whole).unwrap();
        assert_eq!(whole, [1.0; 8]);
        world.finalize().unwrap();
    });
}

#[test]
fn ranges_are_divided_evenly() {
    assert_eq!(
        (0..4).map(|part| dsc::split_range(10, 4, part).unwrap()).collect::<Vec<_>>(),
        [0..3, 3..6, 6..8, 8..10]
    );
    assert!(dsc::split_range(10, 4, 4).unwrap_err().to_string().contains("part is 4, expected 0 to 3"));
}
