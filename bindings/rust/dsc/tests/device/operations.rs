//! Operations on GPU memory.

use std::time::Duration;

use dsc::request::{all_gather, all_reduce, barrier, broadcast, recv, send};
use dsc::{Backend, DeviceSlice, Dtype, ErrorCode, GroupOptions, Op, Raw};

use crate::{known, ranks, read};

const N: usize = 1000;

#[test]
fn every_way_to_run_an_operation() {
    ranks(2, |rank| {
        let (world, own) = (&rank.world, rank.stream());
        assert_eq!((world.backend().unwrap(), world.device().unwrap()), (Backend::Device, Some(world.rank() as u32)));
        let stream = known(&own);
        let mut x = rank.buffer(&own, &[world.rank() as f32 + 1.0; N]);
        assert_eq!((x.len(), x.is_empty(), x.device()), (N, false, world.rank() as u32));
        world.all_reduce(&mut x, Op::Sum).unwrap(); // waits for the end of the operation
        assert_eq!(read(&own, x.as_ptr(), N), [3.0; N]);

        let scoped = world.scope(|scope| -> dsc::Result<bool> {
            let sum = scope.start_on(all_reduce(&mut x, Op::Sum), stream)?;
            sum.wait_on(stream)?;
            sum.wait_for(Duration::from_secs(20))
        });
        assert!(scoped.unwrap());
        assert_eq!(read(&own, x.as_ptr(), N), [6.0; N]);

        let work = world.start_on(all_reduce(x, Op::Max), stream).unwrap();
        work.wait_on(stream).unwrap();
        let mut x = work.wait().unwrap();
        // SAFETY: read() waits for the stream, and the buffer stays valid until then.
        unsafe { world.enqueue(all_reduce(&mut x, Op::Sum), stream) }.unwrap();
        assert_eq!(read(&own, x.as_ptr(), N), [12.0; N]);

        let dropped = world.start_on(all_reduce(x, Op::Sum), stream).unwrap();
        drop(dropped); // the buffer is freed after the operation has ended
        world.barrier().unwrap();
        world.start_on(barrier(), stream).unwrap().wait().unwrap();
        assert_eq!(world.failure().unwrap(), None);
    });
}

#[test]
fn parts_groups_and_other_types() {
    ranks(2, |rank| {
        let (world, own) = (&rank.world, rank.stream());
        let (me, stream) = (world.rank(), known(&own));
        let mut x = rank.buffer(&own, &(0..6).map(|i| (10 * me + i) as i32).collect::<Vec<_>>());
        world.broadcast(&mut x.slice(0..2).unwrap(), 1).unwrap();
        let mut part = x.slice(4..6).unwrap();
        let last = part.slice(1..2).unwrap();
        world.scope(|scope| scope.start(all_reduce(last, Op::Sum)).map(drop)).unwrap();
        assert_eq!(read(&own, x.as_ptr(), 6)[..2], [10, 11]);
        assert_eq!(read(&own, x.as_ptr(), 6)[5], 20);

        let (mut out, mut came) = (rank.buffer(&own, &[0i32; 12]), rank.buffer(&own, &[0i32; 6]));
        let mut summed = rank.buffer(&own, &[1i64; 3]);
        world
            .batch_on(stream, |batch| {
                batch.add(all_gather(&x, &mut out))?;
                batch.add(broadcast(&mut summed, 0))?;
                batch.add(send(&x, 1 - me))?;
                batch.add(recv(&mut came, 1 - me))
            })
            .unwrap();
        assert_eq!(read(&own, out.as_ptr(), 12)[6..8], [10, 11]);
        assert_eq!(read(&own, came.as_ptr(), 6)[2], 10 * (1 - me) as i32 + 2);

        let halves = [0x3f80u16.to_ne_bytes(), 0x4000u16.to_ne_bytes()].concat(); // 1 and 2 in bfloat16
        let mut bytes = rank.buffer(&own, &halves);
        world.all_reduce(&mut Raw::new(&mut bytes, Dtype::Bf16).unwrap(), Op::Sum).unwrap();
        assert_eq!(read(&own, bytes.as_ptr(), 4), [0x4000u16.to_ne_bytes(), 0x4080u16.to_ne_bytes()].concat());

        // SAFETY: the memory is that of x, which is not used at the same time.
        let mut foreign = unsafe { DeviceSlice::from_raw(x.as_ptr(), 1, x.device()) };
        world.all_reduce(&mut foreign, Op::Min).unwrap();
        assert_eq!((foreign.len(), read(&own, foreign.as_ptr(), 1)), (1, vec![10]));
    });
}

#[test]
fn blocks_of_different_lengths() {
    ranks(2, |rank| {
        let (world, own, me) = (&rank.world, rank.stream(), rank.world.rank());
        let counts = [1, 2];
        let mut parts = rank.buffer(&own, &[me as f32 + 1.0; 2]); // the number of bytes is equal on all ranks
        let mut part = parts.slice(0..counts[me]).unwrap();
        let mut whole = rank.buffer(&own, &[0.0f32; 3]);
        world.all_gather_v(&part, &mut whole, &counts).unwrap();
        assert_eq!(read(&own, whole.as_ptr(), 3), [1.0, 2.0, 2.0]);
        world.reduce_scatter_v(&whole, &mut part, &counts, Op::Sum).unwrap();
        assert_eq!(read(&own, part.as_ptr(), counts[me]), vec![2.0 * (me as f32 + 1.0); counts[me]]);
        let mut room = rank.buffer(&own, &[0.0f32; 4]);
        let mut came = room.slice(0..2 * counts[me]).unwrap();
        world.all_to_all_v(&whole, &counts, &mut came, &[counts[me]; 2]).unwrap();
        let expected = [vec![1.0], vec![2.0, 2.0]][me].repeat(2);
        assert_eq!(read(&own, came.as_ptr(), 2 * counts[me]), expected);
    });
}

#[test]
fn who_has_nothing_takes_part_on_the_device() {
    ranks(2, |rank| {
        let (world, own, me) = (&rank.world, rank.stream(), rank.world.rank());
        let counts = [[2, 0], [0, 0]][me];
        let (mut data, mut room) = (rank.buffer(&own, &[3i32, 4]), rank.buffer(&own, &[0i32; 2]));
        let (send, mut came) = (data.slice(0..counts[0]).unwrap(), room.slice(0..counts[0]).unwrap());
        world.all_to_all_v(&send, &counts, &mut came, &counts).unwrap();
        assert_eq!(read(&own, came.as_ptr(), counts[0]), [3, 4][..counts[0]]);
        world.all_reduce(&mut room.slice(0..0).unwrap(), Op::Sum).unwrap();
    });
}

#[test]
fn settings_of_groups() {
    ranks(2, |rank| {
        let options = GroupOptions::new().nccl_min_ctas(1).nccl_max_ctas(4).stream_priority(-1).nccl_net_name("Socket");
        let own = rank.stream();
        let half = rank.world.split_with(Some(0), 0, &options).unwrap().unwrap();
        let mut x = rank.buffer(&own, &[1u8; 9]);
        half.all_reduce(&mut x, Op::Sum).unwrap();
        assert_eq!(read(&own, x.as_ptr(), 9), [2; 9]);
        let error =
            rank.world.split_with(Some(0), 0, &GroupOptions::new().nccl_min_ctas(5).nccl_max_ctas(4)).unwrap_err();
        assert!(error.code == ErrorCode::InvalidArg && error.message.contains("nccl.min_ctas"), "{}", error);
        let error = rank.world.split_with(Some(0), 0, &GroupOptions::new().nccl_net_name("a\0b")).unwrap_err();
        assert!(error.message.starts_with("nccl.net_name is"), "{}", error);
    });
}

#[test]
fn wrong_places_are_refused() {
    ranks(2, |rank| {
        let (world, own) = (&rank.world, rank.stream());
        let mut x = rank.buffer(&own, &[1.0f32; 4]);
        let error = x.slice(2..5).unwrap_err();
        assert_eq!(error.message, "slice: the range is 2..5; expected a range within 4 elements");
        let error = world.all_reduce_into(&[1.0f32; 4], &mut x, Op::Sum).unwrap_err();
        assert!(matches!(error.code, ErrorCode::InvalidArg), "{}", error);
        world.barrier().unwrap();
    });
}
