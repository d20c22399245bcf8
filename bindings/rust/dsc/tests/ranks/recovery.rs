//! Recovery after a failure. A rank that leaves simulates a crash.

use std::time::Duration;

use dsc::{ErrorCode, GroupOptions, Op};

use crate::ranks;

#[test]
fn agree_is_the_and_of_all() {
    let agreed = ranks(3, |world| {
        let flags = world.agree(if world.rank() == 1 { 0b011 } else { 0b110 }).unwrap();
        assert!(world.missing().unwrap().is_empty());
        world.finalize().unwrap();
        flags
    });
    assert_eq!(agreed, [0b010; 3]);
}

#[test]
fn shrink_leaves_out_who_has_left() {
    ranks(3, |world| {
        let group = world.split(Some(0), 0).unwrap().unwrap();
        if world.rank() == 0 {
            drop(group);
        } else {
            assert_eq!(group.barrier().unwrap_err().code, ErrorCode::PeerLeft);
            let options = GroupOptions::new().name("two").timeout(Duration::from_secs(20));
            let two = group.shrink_with(&options).unwrap();
            assert_eq!((group.missing().unwrap(), two.name(), two.size()), (vec![0], "two", 2));
            let mut sum = world.rank() as u32;
            two.all_reduce(&mut sum, Op::Sum).unwrap();
            assert_eq!(sum, 3);
            two.finalize().unwrap();
        }
        world.finalize().unwrap();
    });
}

#[test]
fn who_does_not_come_is_named() {
    ranks(2, |world| {
        if world.rank() == 0 {
            world.set_timeout(Duration::from_millis(200)).unwrap();
            assert_eq!(world.timeout().unwrap(), Duration::from_millis(200));
            let error = world.agree(1).unwrap_err();
            assert_eq!((error.code, error.rank, &*error.ranks), (ErrorCode::Timeout, Some(1), &[1][..]));
            assert_eq!((error.group.as_deref(), error.op.as_deref()), (Some("world"), Some("agree")));
            world.set_timeout(Duration::from_secs(30)).unwrap();
        } else {
            while world.barrier().is_ok() {}
        }
        assert_eq!(world.agree(5).unwrap(), 5);
        world.finalize().unwrap();
    });
}
