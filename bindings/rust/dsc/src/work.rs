//! Asynchronous operations that own their buffers.

use std::any::Any;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::fmt;
use std::future::Future;
use std::os::unix::io::BorrowedFd;
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::awaiting::poll_completion;
use crate::comm::Comm;
use crate::data::{Data, Element, Raw, Sealed};
use crate::device::{DeviceBuffer, DeviceSlice, Stream};
use crate::error::Result;
use crate::memory::SharedBuffer;
use crate::request::Request;
use crate::started::{start, Held, Started};

/// Types of buffers for [`Comm::start`]: `Vec`, [`SharedBuffer`], [`DeviceBuffer`], a [`Raw`] of them, pairs of them,
/// or no buffer.
///
/// The memory of such a buffer stays in place when the buffer is moved, and no other buffer shares it.
pub trait Owned: Send + 'static + sealed_pair::SealedBuffers {}

pub(crate) mod sealed_pair {
    /// Only this crate can implement a trait that requires this one.
    pub trait SealedBuffers {}
    impl SealedBuffers for () {}
    impl<B: super::Sealed> SealedBuffers for B {}
    impl<S: super::Sealed, R: super::Sealed> SealedBuffers for (S, R) {}
}

impl Owned for () {}
impl<T: Element> Owned for Vec<T> {}
impl<T: Element> Owned for SharedBuffer<T> {}
impl<T: Element> Owned for DeviceBuffer<T> {}
impl<T: Element> Owned for DeviceSlice<'static, T> {}
impl<B: Owned + Data<Kind = u8>> Owned for Raw<B> {}
impl<S: Owned + Sealed, R: Owned + Sealed> Owned for (S, R) {}

impl Comm {
    /// Starts an operation that owns its buffers until [`Work::wait`] returns them. If an operation cannot be started,
    /// its buffers are dropped.
    ///
    /// ```
    /// use dsc::{request, Op};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let work = world.start(request::all_reduce(vec![1.0f32; 1000], Op::Sum))?;
    /// let harmonic: f64 = (1..1000).map(|i| 1.0 / f64::from(i)).sum(); // computes meanwhile
    /// let sums = work.wait()?;
    /// assert_eq!(sums[999], world.size() as f32);
    /// # assert!(harmonic > 7.0);
    /// world.finalize()
    /// # }
    /// ```
    pub fn start<B: Owned>(&self, request: Request<B>) -> Result<Work<B>> {
        self.start_raw(request, ptr::null_mut())
    }

    /// Does the same as [`start`](Comm::start) with buffers on the GPU, ordered after the work that is on a stream.
    pub fn start_on<B: Owned>(&self, request: Request<B>, stream: Stream<'_>) -> Result<Work<B>> {
        self.start_raw(request, stream.as_raw())
    }

    fn start_raw<B: Owned>(&self, request: Request<B>, stream: *mut c_void) -> Result<Work<B>> {
        reap();
        // SAFETY: owned buffers stay in place when they are moved. A Work keeps them until the operation is complete,
        // or passes them to LEFT. A forgotten Work never frees them.
        let (started, held) = unsafe { start(self, request, stream)? };
        Ok(Work { started, held: Some(held) })
    }
}

/// An asynchronous operation that owns its buffers; see [`Comm::start`].
/// For borrowed buffers, use [`Comm::scope`]. Both are sound even if a handle is dropped or forgotten. The buffers of a
/// `Work` are moved into it, so safe code cannot access them while the library writes. If a `Work` is dropped before
/// its end, the operation finishes and the buffers are freed afterwards. If it is forgotten, they leak.
///
/// Any thread may test and wait; `Work` is [`Send`] and [`Sync`]. It is also a [`Future`], for any runtime:
/// `work.await` gives the same result as [`wait`](Work::wait), and a thread of this crate, `dsc-await`, wakes the task.
#[must_use = "wait() returns the buffers"]
pub struct Work<B: Owned> {
    started: Arc<Started>,
    /// The buffers. `None` after wait(), or after the poll() that returned them.
    held: Option<Held<B>>,
}

impl<B: Owned> Work<B> {
    /// Whether the operation has completed, with success or not; never blocks.
    pub fn test(&self) -> Result<bool> {
        self.started.test()
    }

    /// Waits, but at most `timeout`. Returns `false` on a time-out; the operation then continues.
    pub fn wait_for(&self, timeout: Duration) -> Result<bool> {
        self.started.wait_for(timeout)
    }

    /// Waits until the operation has completed, and returns the buffers. After a failure they are freed, because their
    /// contents are unspecified.
    pub fn wait(mut self) -> Result<B> {
        self.started.wait()?;
        Ok(self.buffers())
    }

    fn buffers(&mut self) -> B {
        self.held.take().expect("a work is not awaited again after it gave its buffers back").into_inner()
    }

    /// Makes a stream of the GPU wait until the operation has completed, so that later work on it sees the results. For
    /// host memory, this thread waits.
    pub fn wait_on(&self, stream: Stream<'_>) -> Result<()> {
        self.started.wait_on(stream)
    }

    /// A descriptor that becomes readable when the operation completes, for event loops. It may only be polled.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>> {
        self.started.event_fd()
    }
}

/// Buffers stay in place when the work is moved.
impl<B: Owned> Unpin for Work<B> {}

impl<B: Owned> Future for Work<B> {
    type Output = Result<B>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_completion(&self.started, context).map(|result| result.map(|()| self.buffers()))
    }
}

impl<B: Owned> fmt::Debug for Work<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Work").field("completed", &self.test()).finish()
    }
}

/// An operation that was dropped while it was running, with its buffers, and the thread that dropped it.
type Left = (Arc<Started>, Box<dyn Any + Send>, ThreadId);

/// A call stops after it has found this many dropped operations still running, to bound its cost.
const MISSES: usize = 2;

static LEFT: Mutex<Option<VecDeque<Left>>> = Mutex::new(None);

impl<B: Owned> Drop for Work<B> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            if !matches!(self.started.test(), Ok(true)) {
                let left: Left = (self.started.clone(), Box::new(held), thread::current().id());
                let mut all = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
                all.get_or_insert_with(VecDeque::new).push_back(left);
            }
        }
        reap();
    }
}

/// Frees the buffers of dropped operations that have completed. It stops after it has found MISSES operations still
/// running.
fn reap() {
    let mut completed = Vec::new();
    {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        let mut misses = 0;
        while let Some(oldest) = left.as_mut().and_then(VecDeque::pop_front) {
            if matches!(oldest.0.test(), Ok(true)) {
                completed.push(oldest);
                continue;
            }
            left.get_or_insert_with(VecDeque::new).push_back(oldest);
            misses += 1;
            if misses == MISSES {
                break;
            }
        }
    }
    // The buffers are freed without the lock, because freeing GPU memory waits for all work on that GPU. If the GPU
    // belongs to the rank of another thread, its work may wait for this thread, so a new thread frees these buffers.
    let me = thread::current().id();
    let (own, others): (Vec<Left>, Vec<Left>) = completed.into_iter().partition(|left| left.2 == me);
    drop(own);
    if !others.is_empty() {
        drop(thread::Builder::new().name("dsc-left".into()).spawn(move || drop(others)));
    }
}
