//! Operations with owned buffers.

use std::mem;
use std::os::raw::{c_int, c_short, c_ulong};
use std::os::unix::io::AsRawFd;
use std::thread;
use std::time::Duration;

use dsc::{request, Dtype, ErrorCode, InitOptions, Op, Raw};

use crate::{ranks, ranks_with};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn buffers_come_back_in_any_order() {
    ranks(3, |world| {
        let buffers: Vec<Vec<f32>> = (0..4).map(|i| vec![(world.rank() + i) as f32; 1000]).collect();
        let places: Vec<*const f32> = buffers.iter().map(|buffer| buffer.as_ptr()).collect();
        let works: Vec<_> =
            buffers.into_iter().map(|buffer| world.start(request::all_reduce(buffer, Op::Sum)).unwrap()).collect();
        for (i, work) in works.into_iter().enumerate().rev() {
            let buffer = work.wait().unwrap();
            assert_eq!(buffer, vec![(3 + 3 * i) as f32; 1000]);
            assert_eq!(buffer.as_ptr(), places[i]); // the memory is still the same
        }
        world.finalize().unwrap();
    });
}

#[test]
fn every_request() {
    ranks(2, |world| {
        let rank = world.rank() as i32;
        let (_, all) = world.start(request::all_gather(vec![rank], vec![0; 2])).unwrap().wait().unwrap();
        assert_eq!(all, [0, 1]);
        let (_, part) = world.start(request::reduce_scatter(vec![1, 2], vec![0], Op::Sum)).unwrap().wait().unwrap();
        assert_eq!(part, [2 * (rank + 1)]);
        let all = world.start(request::all_gather_in_place(vec![rank; 2])).unwrap().wait().unwrap();
        assert_eq!(all, [0, 1]);
        let own = world.start(request::reduce_scatter_in_place(vec![5, 6], Op::Sum)).unwrap().wait().unwrap();
        assert_eq!(own[rank as usize], 10 + 2 * rank);
        let told = world.start(request::broadcast(vec![rank], 1)).unwrap().wait().unwrap();
        let (_, copied) = world.start(request::broadcast_into(vec![rank], told, 0)).unwrap().wait().unwrap();
        assert_eq!(copied, [0]);
        let (sent, sum) = world.start(request::all_reduce_into(vec![rank], copied, Op::Sum)).unwrap().wait().unwrap();
        assert_eq!((sent, sum), (vec![rank], vec![1]));
        let peer = 1 - world.rank();
        let coming = world.start(request::recv(vec![0u8; 3], peer)).unwrap();
        world.start(request::send(vec![rank as u8; 3], peer)).unwrap().wait().unwrap();
        assert_eq!(coming.wait().unwrap(), [peer as u8; 3]);
        let raw = Raw::new(vec![1u8; 4], Dtype::Bool).unwrap();
        assert_eq!(world.start(request::broadcast(raw, 0)).unwrap().wait().unwrap().into_inner(), [1; 4]);
        let shared = world.shared_buffer::<f64>(4096).unwrap();
        assert_eq!(world.start(request::all_reduce(shared, Op::Sum)).unwrap().wait().unwrap()[4095], 0.0);
        world.start(request::barrier()).unwrap().wait().unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn asking_and_waiting_from_another_thread() {
    ranks(2, |world| {
        if world.rank() == 0 {
            let work = world.start(request::all_reduce(vec![1i64; 10], Op::Sum)).unwrap();
            assert!(!work.test().unwrap());
            assert!(!work.wait_for(Duration::from_millis(10)).unwrap()); // the operation continues
            world.send(&1u8, 1).unwrap(); // the other rank joins only now
            let sums = thread::spawn(move || {
                assert!(work.wait_for(LONG).unwrap());
                work.wait().unwrap()
            });
            assert_eq!(sums.join().unwrap(), [2; 10]);
        } else {
            world.recv(&mut 0u8, 0).unwrap();
            world.all_reduce(&mut [1i64; 10], Op::Sum).unwrap();
        }
        world.finalize().unwrap();
    });
}

#[test]
fn dropped_and_forgotten_works_go_on() {
    ranks(2, |world| {
        if world.rank() == 0 {
            drop(world.start(request::all_reduce(vec![1i32; 100_000], Op::Sum)).unwrap());
            mem::forget(world.start(request::all_reduce(vec![1i32; 100_000], Op::Sum)).unwrap());
            world.send(&1u8, 1).unwrap();
        } else {
            world.recv(&mut 0u8, 0).unwrap();
            for _ in 0..2 {
                let mut x = vec![1i32; 100_000];
                world.all_reduce(&mut x, Op::Sum).unwrap();
                assert!(x.iter().all(|x| *x == 2));
            }
        }
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn a_failure_arrives_by_wait() {
    ranks(2, |world| {
        if world.rank() == 0 {
            let work = world.start(request::all_reduce(vec![1f32; 10], Op::Sum)).unwrap();
            world.abort().unwrap();
            let error = work.wait().unwrap_err();
            assert_eq!((error.code, error.op.as_deref()), (ErrorCode::Revoked, Some("all_reduce")));
            assert_eq!(error.group.as_deref(), Some("world"));
        } else {
            assert_eq!(world.recv(&mut 0u8, 0).unwrap_err().code, ErrorCode::Revoked);
        }
    });
}

/// One entry of the list for poll().
#[repr(C)]
struct PollFd {
    descriptor: c_int,
    wanted: c_short,
    found: c_short,
}

extern "C" {
    fn poll(entries: *mut PollFd, count: c_ulong, timeout_ms: c_int) -> c_int;
}

#[test]
fn the_descriptor_tells_of_the_end() {
    const POLLIN: c_short = 1;
    ranks(2, |world| {
        let work = world.start(request::barrier()).unwrap();
        let mut entry = PollFd { descriptor: work.event_fd().unwrap().as_raw_fd(), wanted: POLLIN, found: 0 };
        // SAFETY: there is one entry, which outlives the call.
        assert_eq!(unsafe { poll(&mut entry, 1, 20_000) }, 1);
        assert_eq!(entry.found, POLLIN);
        assert!(work.test().unwrap());
        work.wait().unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn a_world_without_a_thread_is_driven_by_hand() {
    ranks_with(InitOptions::new().progress_thread(false), 2, |world| {
        assert!(!world.has_progress_thread());
        assert!(world.progress(LONG).unwrap()); // no operation is left
        let work = world.start(request::all_reduce(vec![1i64; 100_000], Op::Sum)).unwrap();
        let watch = world.watch();
        while !watch.progress(Duration::from_millis(1)).unwrap() {}
        assert!(work.test().unwrap());
        assert_eq!(work.wait().unwrap(), vec![2; 100_000]);
        world.finalize().unwrap();
        assert!(watch.progress(LONG).unwrap());
    });
}
