//! Wakes the tasks that await operations.
//!
//! A program that awaits has an additional thread, `dsc-await`. It polls the descriptors of all awaited operations. It
//! does not belong to a runtime, so a work can be awaited in any runtime.

use std::io::{Read, Write};
use std::mem;
use std::os::raw::{c_int, c_short, c_ulong};
use std::os::unix::io::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::numbers::ErrorCode;
use crate::started::Started;

const READABLE: c_short = 1; // POLLIN
const UNTIL_READABLE: c_int = -1;
/// The interval in which operations of a world without a progress thread are advanced.
const DRIVE_MS: c_int = 1;

#[repr(C)]
struct PollFd {
    fd: RawFd,
    events: c_short,
    revents: c_short,
}

extern "C" {
    fn poll(descriptors: *mut PollFd, count: c_ulong, timeout_ms: c_int) -> c_int;
}

/// The state that the thread and the awaiting tasks share.
struct Reactor {
    awaited: Mutex<Vec<(Arc<Started>, Waker)>>,
    /// Writing a byte here wakes the thread from its poll.
    interrupt: UnixStream,
}

static REACTOR: Mutex<Option<Arc<Reactor>>> = Mutex::new(None);

/// Returns whether an operation has completed. If it has not, the task is woken when the operation completes.
pub(crate) fn poll_completion(started: &Arc<Started>, context: &Context<'_>) -> Poll<Result<()>> {
    match started.test() {
        Ok(true) => Poll::Ready(started.told(started.wait())),
        Ok(false) => match wake_when_complete(started, context.waker()) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        },
        Err(error) => Poll::Ready(Err(error)),
    }
}

fn wake_when_complete(started: &Arc<Started>, waker: &Waker) -> Result<()> {
    started.event_fd()?; // created here, where a failure can be returned
    let reactor = reactor().map_err(|error| {
        Error::new(ErrorCode::System, format!("await: cannot start the thread that wakes tasks: {}", error))
    })?;
    drop(reactor.await_with(started, waker.clone()));
    let _ = (&reactor.interrupt).write(&[0]); // if the pipe is full, the thread will wake anyway
    Ok(())
}

/// Returns the reactor. The first call starts the thread, which runs until the process ends.
fn reactor() -> std::io::Result<Arc<Reactor>> {
    let mut known = locked(&REACTOR);
    if let Some(reactor) = &*known {
        return Ok(reactor.clone());
    }
    let (interrupt, interrupted) = UnixStream::pair()?;
    interrupt.set_nonblocking(true)?;
    interrupted.set_nonblocking(true)?;
    let reactor = Arc::new(Reactor { awaited: Mutex::new(Vec::new()), interrupt });
    let running = reactor.clone();
    thread::Builder::new().name("dsc-await".into()).spawn(move || running.run(interrupted))?;
    *known = Some(reactor.clone());
    Ok(reactor)
}

impl Reactor {
    fn run(&self, mut interrupted: UnixStream) {
        loop {
            let (mut descriptors, timeout_ms) = self.descriptors(&interrupted);
            // SAFETY: the length is right. The descriptors stay open: `awaited` holds their works, and only this thread
            // removes works from it.
            if unsafe { poll(descriptors.as_mut_ptr(), descriptors.len() as c_ulong, timeout_ms) } < 0 {
                thread::sleep(Duration::from_millis(1)); // a signal arrived, or there are too many descriptors
            }
            while matches!(interrupted.read(&mut [0; 64]), Ok(1..)) {}
            for waker in self.completed() {
                // The panic hook has already reported the panic of a waker. The other tasks must still be woken.
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
        }
    }

    /// Stores the waker of the latest poll and returns the previous one. Wakers contain code of the program, so they
    /// are neither cloned nor dropped while the lock is held.
    fn await_with(&self, started: &Arc<Started>, waker: Waker) -> Option<Waker> {
        let mut awaited = locked(&self.awaited);
        match awaited.iter_mut().find(|(known, _)| Arc::ptr_eq(known, started)) {
            Some((_, known)) => Some(mem::replace(known, waker)),
            None => {
                awaited.push((started.clone(), waker));
                None
            }
        }
    }

    fn descriptors(&self, interrupted: &UnixStream) -> (Vec<PollFd>, c_int) {
        let readable = |fd| PollFd { fd, events: READABLE, revents: 0 };
        let awaited = locked(&self.awaited);
        let works = awaited.iter().filter_map(|(started, _)| Some(readable(started.event_fd().ok()?.as_raw_fd())));
        let descriptors = std::iter::once(readable(interrupted.as_raw_fd())).chain(works).collect();
        let driven = awaited.iter().all(|(started, _)| started.has_progress_thread);
        (descriptors, if driven { UNTIL_READABLE } else { DRIVE_MS })
    }

    /// Removes the tasks whose operations have completed. They are woken after the lock is released, because a waker
    /// may poll immediately.
    fn completed(&self) -> Vec<Waker> {
        let mut awaited = locked(&self.awaited);
        let (running, completed) = awaited.drain(..).partition(|(started, _)| matches!(started.test(), Ok(false)));
        *awaited = running;
        drop(awaited);
        let completed: Vec<(Arc<Started>, Waker)> = completed;
        completed.into_iter().map(|(_, waker)| waker).collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
