//! Groups, queries and running totals.

use std::time::Duration;

use dsc::{Backend, ErrorCode, GroupOptions, Op};

use crate::ranks;

#[test]
fn split_by_color_and_key() {
    ranks(4, |world| {
        let rank = world.rank();
        let color = if rank == 3 { None } else { Some(rank % 2) };
        let group = world.split(color, -(rank as i32)).unwrap();
        assert_eq!(group.is_none(), rank == 3);
        if let Some(group) = group {
            // the higher rank has the lower key, so it comes first
            let members = if rank % 2 == 0 { vec![2, 0] } else { vec![1] };
            assert_eq!((group.size(), group.rank()), (members.len(), members.iter().position(|r| *r == rank).unwrap()));
            let found: Vec<usize> = (0..group.size()).map(|r| group.global_rank(r).unwrap()).collect();
            assert_eq!(found, members);
            assert_eq!(group.group_rank(3).unwrap(), None);
            assert_eq!(group.group_rank(rank).unwrap(), Some(group.rank()));
            let mut sum = rank as u32;
            group.all_reduce(&mut sum, Op::Sum).unwrap();
            assert_eq!(sum, members.iter().sum::<usize>() as u32);
            group.finalize().unwrap();
        }
        world.finalize().unwrap();
    });
}

#[test]
fn groups_by_list_have_names_and_time_outs() {
    ranks(3, |world| {
        let options = GroupOptions::new().name("ends").timeout(Duration::from_millis(300));
        let group = world.create_group_with(&[2, 0], &options).unwrap();
        assert_eq!(group.is_some(), world.rank() != 1);
        if let Some(group) = group {
            assert_eq!((group.name(), group.rank()), ("ends", usize::from(world.rank() == 0)));
            if world.rank() == 0 {
                // rank 2 of the world, which is rank 0 of the group, never calls it
                let error = group.barrier().unwrap_err();
                assert_eq!((error.code, error.rank, &*error.ranks), (ErrorCode::Timeout, Some(0), &[0][..]));
                assert_eq!((error.group.as_deref(), error.op.as_deref()), (Some("ends"), Some("barrier")));
                assert_eq!(error.sequence, Some(1));
                assert_eq!(group.failure().unwrap().unwrap().code, ErrorCode::Timeout);
            }
            world.barrier().unwrap_or_else(|error| panic!("the world is not concerned: {}", error));
        } else {
            world.barrier().unwrap();
        }
        let error = world.create_group(&[0, 0]).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArg);
        let error = world.create_group_with(&[0], &GroupOptions::new().name("a\0b")).unwrap_err();
        assert!(error.message.contains("expected text without zero bytes"), "{}", error);
        world.finalize().unwrap();
    });
}

#[test]
fn queries_and_totals() {
    ranks(2, |world| {
        assert_eq!((world.name(), world.size(), world.backend().unwrap()), ("world", 2, Backend::Host));
        assert_eq!((world.local_rank().unwrap(), world.local_size().unwrap()), (world.rank(), 2));
        let half = world.split(Some(world.rank()), 0).unwrap().unwrap();
        assert_eq!((half.size(), half.world_size().unwrap()), (1, 2));
        assert_ne!(world.id().unwrap(), half.id().unwrap());
        assert_eq!(world.source().unwrap(), "options");
        assert!(!world.start_report().unwrap().is_empty() && !world.tuning().unwrap().is_empty());
        assert!(world.has_progress_thread() && world.master_addr().is_ok() && world.master_port().is_ok());
        drop(half);
        assert_eq!(format!("{:?}", world), format!("Comm(\"world\", rank {} of 2)", world.rank()));
        world.all_reduce(&mut [0f32; 16], Op::Sum).unwrap();
        world.all_reduce(&mut [0f32; 16], Op::Sum).unwrap();
        let stats = world.stats().unwrap();
        let sums = stats.iter().find(|totals| totals.op == "all_reduce").unwrap();
        assert_eq!((sums.count, sums.bytes, sums.bytes_class), (2, 128, 64));
        world.finalize().unwrap();
    });
}
