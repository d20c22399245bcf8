//! Works are futures, in whatever runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use dsc::{request, Comm, ErrorCode, InitOptions, Op, Owned, Work};

use crate::{ranks, ranks_with};

/// The smallest runtime: the thread of one task sleeps until it is woken.
struct Sleeper {
    thread: Thread,
    wakes: AtomicUsize,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.thread.unpark();
    }
}

fn sleeper() -> (Arc<Sleeper>, Waker) {
    let sleeper = Arc::new(Sleeper { thread: thread::current(), wakes: AtomicUsize::new(0) });
    (sleeper.clone(), sleeper.into())
}

/// Returns the result and how often the task was woken.
fn block_on<F: Future + Unpin>(mut future: F) -> (F::Output, usize) {
    let (sleeper, waker) = sleeper();
    loop {
        if let Poll::Ready(result) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return (result, sleeper.wakes.load(Ordering::Relaxed));
        }
        thread::park();
    }
}

/// Rank 1 comes when rank 0 is sure to have asked.
fn late_sum(world: &Comm) -> Work<Vec<f32>> {
    if world.rank() == 1 {
        thread::sleep(Duration::from_millis(100));
    }
    world.start(request::all_reduce(vec![world.rank() as f32; 1000], Op::Sum)).unwrap()
}

#[test]
fn awaiting_gives_the_buffers_back() {
    ranks(2, |world| {
        let (buffer, wakes) = block_on(late_sum(&world));
        assert_eq!(buffer.unwrap(), [1.0; 1000]);
        assert!(wakes <= 1, "woken {} times", wakes); // one that is complete at once needs nobody
        world.finalize().unwrap();
    });
}

#[test]
fn without_a_progress_thread_those_who_await_move_it_on() {
    ranks_with(InitOptions::new().progress_thread(false), 2, |world| {
        assert_eq!(block_on(late_sum(&world)).0.unwrap(), [1.0; 1000]);
        world.finalize().unwrap();
    });
}

#[test]
fn async_functions_await_many() {
    async fn sums(works: Vec<Work<Vec<f32>>>) -> dsc::Result<f32> {
        let mut sum = 0.0;
        for work in works {
            sum += work.await?[999];
        }
        Ok(sum)
    }
    ranks(2, |world| {
        let works = (0..20).map(|_| world.start(request::all_reduce(vec![1f32; 1000], Op::Sum)).unwrap()).collect();
        assert_eq!(block_on(Box::pin(sums(works))).0.unwrap(), 40.0);
        world.finalize().unwrap();
    });
}

#[test]
fn a_failure_is_what_awaiting_gives() {
    ranks(2, |world| {
        let work = world.start(request::all_reduce(vec![0f32; 4 + world.rank()], Op::Sum)).unwrap();
        assert_eq!(block_on(work).0.unwrap_err().code, ErrorCode::Mismatch);
    });
}

#[test]
fn a_scoped_work_is_a_future_too() {
    ranks(2, |world| {
        let mut x = [world.rank() as i32; 3];
        let sum = world.scope(|scope| Ok(block_on(scope.all_reduce(&mut x, Op::Sum)?).0?[2])).unwrap();
        assert_eq!(sum, 1);
        world.finalize().unwrap();
    });
}

#[test]
fn a_task_that_gives_up_leaves_the_operation_alone() {
    fn polled_once<B: Owned>(mut work: Work<B>) {
        let (_, waker) = sleeper();
        let _ = Pin::new(&mut work).poll(&mut Context::from_waker(&waker));
    }
    ranks(2, |world| {
        polled_once(late_sum(&world));
        assert_eq!(block_on(late_sum(&world)).0.unwrap(), [1.0; 1000]);
        world.finalize().unwrap();
    });
}

#[test]
fn the_last_waker_that_asked_is_woken() {
    ranks(2, |world| {
        let mut work = late_sum(&world);
        let (first, waker) = sleeper();
        if Pin::new(&mut work).poll(&mut Context::from_waker(&waker)).is_pending() {
            assert_eq!(block_on(work).0.unwrap(), [1.0; 1000]); // by a waker of its own
        }
        assert!(first.wakes.load(Ordering::Relaxed) <= 1);
        world.finalize().unwrap();
    });
}
