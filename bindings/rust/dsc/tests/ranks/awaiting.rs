//! Works are futures, for any runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use dsc::{request, Comm, ErrorCode, InitOptions, Op, Work};

use crate::{ranks, ranks_with};

/// The smallest runtime: the thread of its only task sleeps until it is woken.
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

impl Sleeper {
    fn new() -> Arc<Self> {
        Arc::new(Sleeper { thread: thread::current(), wakes: AtomicUsize::new(0) })
    }

    /// Sleeps until it has been woken.
    fn sleep(&self) {
        while self.wakes.load(Ordering::Relaxed) == 0 {
            thread::park();
        }
    }
}

fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let waker = Sleeper::new().into();
    loop {
        if let Poll::Ready(result) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        thread::park();
    }
}

/// Starts a sum. Rank 1 joins only after rank 0 has polled the result, which was not ready.
fn late_sum<W: Wake + Send + Sync + 'static>(world: &Comm, asked: &AtomicBool, waker: &Arc<W>) -> Work<Vec<f32>> {
    let start = || world.start(request::all_reduce(vec![world.rank() as f32; 1000], Op::Sum)).unwrap();
    if world.rank() == 1 {
        while !asked.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1)); // if rank 0 panics, the deadline of the world ends this loop
            assert!(world.failure().unwrap().is_none());
        }
        return start();
    }
    let mut work = start();
    assert!(Pin::new(&mut work).poll(&mut Context::from_waker(&waker.clone().into())).is_pending());
    asked.store(true, Ordering::Release);
    work
}

/// Checks that the sum is ready after one wake.
fn is_woken_once(options: InitOptions) {
    let asked = AtomicBool::new(false);
    ranks_with(options, 2, |world| {
        let sleeper = Sleeper::new();
        let work = late_sum(&world, &asked, &sleeper);
        if world.rank() == 0 {
            sleeper.sleep();
        }
        assert_eq!(block_on(work).unwrap(), [1.0; 1000]);
        assert_eq!(sleeper.wakes.load(Ordering::Relaxed), 1 - world.rank());
        world.finalize().unwrap();
    });
}

#[test]
fn awaiting_gives_the_buffers_back() {
    is_woken_once(InitOptions::new());
}

#[test]
fn without_a_progress_thread_those_who_await_move_it_on() {
    is_woken_once(InitOptions::new().progress_thread(false));
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
        assert_eq!(block_on(Box::pin(sums(works))).unwrap(), 40.0);
        world.finalize().unwrap();
    });
}

#[test]
fn a_failure_is_what_awaiting_gives() {
    ranks(2, |world| {
        let work = world.start(request::all_reduce(vec![0f32; 4 + world.rank()], Op::Sum)).unwrap();
        assert_eq!(block_on(work).unwrap_err().code, ErrorCode::Mismatch);
    });
}

#[test]
fn a_scoped_work_is_a_future_too() {
    ranks(2, |world| {
        let mut x = [world.rank() as i32; 3];
        let sum = world.scope(|scope| Ok(block_on(scope.all_reduce(&mut x, Op::Sum)?)?[2])).unwrap();
        assert_eq!(sum, 1);
        world.finalize().unwrap();
    });
}

#[test]
fn a_task_that_gives_up_leaves_the_operation_alone() {
    let asked = AtomicBool::new(false);
    ranks(2, |world| {
        drop(late_sum(&world, &asked, &Sleeper::new()));
        let work = world.start(request::all_reduce(vec![1.0f32; 1000], Op::Sum)).unwrap();
        assert_eq!(block_on(work).unwrap(), [2.0; 1000]);
        world.finalize().unwrap();
    });
}

#[test]
fn the_last_waker_that_asked_is_woken() {
    let asked = AtomicBool::new(false);
    ranks(2, |world| {
        let work = late_sum(&world, &asked, &Sleeper::new());
        assert_eq!(block_on(work).unwrap(), [1.0; 1000]); // polls with another waker than before
        world.finalize().unwrap();
    });
}

/// A waker that panics, which would end the thread that wakes it if the panic were not caught.
struct Panicking(Arc<Sleeper>);

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        self.0.clone().wake();
        panic!("a waker that panics, as this test wants it");
    }
}

#[test]
fn a_waker_that_panics_takes_nobody_with_it() {
    let (first, second) = (AtomicBool::new(false), AtomicBool::new(false));
    ranks(2, |world| {
        let sleeper = Sleeper::new();
        let work = late_sum(&world, &first, &Arc::new(Panicking(sleeper.clone())));
        if world.rank() == 0 {
            sleeper.sleep();
        }
        assert_eq!(block_on(work).unwrap(), [1.0; 1000]);
        assert_eq!(block_on(late_sum(&world, &second, &Sleeper::new())).unwrap(), [1.0; 1000]);
        world.finalize().unwrap();
    });
}
