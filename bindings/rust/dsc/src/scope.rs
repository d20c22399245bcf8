//! Asynchronous operations on borrowed buffers.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::os::unix::io::BorrowedFd;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dsc_sys as sys;

use crate::awaiting::poll_completion;
use crate::batch::Batch;
use crate::comm::Comm;
use crate::data::{Data, Element, Raw, Sealed};
use crate::device::{DeviceSlice, Stream};
use crate::error::Result;
use crate::request::Request;
use crate::started::{start, start_batch, start_call, Held, Started};
use crate::work::sealed_pair::SealedBuffers;

/// Types of buffers for [`Scope::start`]: references, a [`Raw`] of a reference, pairs of them, or no buffer. The
/// two result buffers of a call of a [`MoePlan`](crate::MoePlan) are also such a type; the second one is optional.
pub trait Borrowed: SealedBuffers {}

impl Borrowed for () {}
impl<D: Data + ?Sized> Borrowed for &D {}
impl<D: Data + ?Sized> Borrowed for &mut D {}
impl<B: Borrowed + Data<Kind = u8>> Borrowed for Raw<B> {}
impl<T: Element> Borrowed for DeviceSlice<'_, T> {}
impl<B: Borrowed + Sealed> Borrowed for Option<B> {}
impl<S: Borrowed + Sealed, R: Borrowed + Sealed> Borrowed for (S, R) {}

impl Comm {
    /// Runs a closure that may start operations on borrowed buffers. When it returns, all these operations are
    /// complete. If an operation failed and the closure did not wait for it, the scope returns the first such failure,
    /// unless the closure itself returns an error.
    ///
    /// The scope waits, not the handles. So, like [`std::thread::scope`], it is sound even if handles are dropped or
    /// forgotten: safe code cannot access buffers while the library writes them.
    ///
    /// If the closure panics, the scope first aborts the communicator on all ranks, so that it does not wait long.
    ///
    /// ```
    /// use dsc::{request, Op};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let mut weights = vec![2.0f64; 100];
    /// let (left, right) = weights.split_at_mut(50);
    /// let first = world.scope(|scope| {
    ///     let left = scope.all_reduce(left, Op::Avg)?;
    ///     scope.start(request::broadcast(right, 0))?; // start() accepts any request
    ///     Ok(left.wait()?[0]) // wait() returns the buffer inside the scope
    /// })?;
    /// assert_eq!((first, weights[99]), (2.0, 2.0)); // the end of the scope has waited for the rest
    /// world.finalize()
    /// # }
    /// ```
    ///
    /// A buffer that does not outlive the scope does not compile:
    ///
    /// ```compile_fail
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// world.scope(|scope| {
    ///     let mut x = [0.0f32; 8];
    ///     scope.start(dsc::request::all_reduce(&mut x, dsc::Op::Sum)).map(drop)
    /// })
    /// # }
    /// ```
    ///
    /// Neither does access to a buffer while the library may write it:
    ///
    /// ```compile_fail
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let mut x = [0.0f32; 8];
    /// world.scope(|scope| {
    ///     std::mem::forget(scope.start(dsc::request::all_reduce(&mut x, dsc::Op::Sum)));
    ///     x[0] = 1.0;
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn scope<'env, F, R>(&'env self, body: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    {
        let scope = Scope { comm: self, started: RefCell::new(VecDeque::new()), scope: PhantomData, env: PhantomData };
        let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
        if result.is_err() {
            let _ = self.abort(); // it may have failed already
        }
        let mut failure = None;
        for started in scope.started.take() {
            started.settle();
            failure = failure.or_else(|| started.untold_failure());
        }
        let value = result.unwrap_or_else(|panic| resume_unwind(panic))?;
        failure.map_or(Ok(value), Err)
    }
}

/// The argument of the closure of [`Comm::scope`]: it starts operations on borrowed buffers.
///
/// The lifetimes are invariant, as those of [`std::thread::Scope`], so that neither can be shortened.
pub struct Scope<'scope, 'env: 'scope> {
    comm: &'env Comm,
    /// The operations that may still run, oldest first.
    started: RefCell<VecDeque<Arc<Started>>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts an operation. Its buffers are borrowed until the scope ends.
    pub fn start<B: Borrowed + 'scope>(&'scope self, request: Request<B>) -> Result<ScopedWork<'scope, B>> {
        self.start_raw(request, ptr::null_mut())
    }

    /// Does the same as [`start`](Scope::start) with buffers on the GPU, ordered after the work that is on a stream.
    pub fn start_on<B: Borrowed + 'scope>(
        &'scope self,
        request: Request<B>,
        stream: Stream<'_>,
    ) -> Result<ScopedWork<'scope, B>> {
        self.start_raw(request, stream.as_raw())
    }

    fn start_raw<B: Borrowed + 'scope>(
        &'scope self,
        request: Request<B>,
        stream: *mut c_void,
    ) -> Result<ScopedWork<'scope, B>> {
        self.forget_completed();
        // SAFETY: borrowed memory stays in place. Its borrow lasts until 'scope ends, and Comm::scope waits for the
        // operation before that.
        Ok(self.keep(unsafe { start(self.comm, request, stream)? }))
    }

    /// Starts an operation by a call of the library that returns a work object, without a request.
    pub(crate) fn start_call<B: Borrowed + 'scope>(
        &'scope self,
        op: &'static str,
        buffers: B,
        call: impl FnOnce(&mut B, *mut *mut sys::dsc_work_t) -> Result<()>,
    ) -> Result<ScopedWork<'scope, B>> {
        self.forget_completed();
        Ok(self.keep(start_call(self.comm, op, buffers, call)?))
    }

    /// Adds an operation to those for which the end of the scope waits.
    fn keep<B: Borrowed + 'scope>(&'scope self, (started, held): (Arc<Started>, Held<B>)) -> ScopedWork<'scope, B> {
        self.started.borrow_mut().push_back(started.clone());
        ScopedWork { started, held: Some(held), scope: PhantomData }
    }

    /// The communicator of the scope's operations.
    pub(crate) fn comm(&self) -> &'env Comm {
        self.comm
    }

    /// Runs a closure that describes operations, and starts them together; see [`Comm::batch`]. The returned work is
    /// complete when all of them are complete. Its failure is the first failure among them.
    pub fn batch<F>(&'scope self, body: F) -> Result<ScopedWork<'scope, ()>>
    where
        F: FnOnce(&mut Batch<'scope, 'env>) -> Result<()>,
    {
        self.batch_raw(ptr::null_mut(), body)
    }

    /// Does the same as [`batch`](Scope::batch), but uses buffers on the GPU in stream order.
    pub fn batch_on<F>(&'scope self, stream: Stream<'_>, body: F) -> Result<ScopedWork<'scope, ()>>
    where
        F: FnOnce(&mut Batch<'scope, 'env>) -> Result<()>,
    {
        self.batch_raw(stream.as_raw(), body)
    }

    fn batch_raw<F>(&'scope self, stream: *mut c_void, body: F) -> Result<ScopedWork<'scope, ()>>
    where
        F: FnOnce(&mut Batch<'scope, 'env>) -> Result<()>,
    {
        self.forget_completed();
        let mut batch = Batch::new(self.comm);
        body(&mut batch)?;
        // SAFETY: as in start(): the batch contains buffers that are borrowed until 'scope ends.
        let (started, refused) = unsafe { start_batch(self.comm, batch, stream) };
        self.started.borrow_mut().extend(started.clone());
        refused?;
        match started {
            Some(started) => Ok(ScopedWork { started, held: Some(Held::new(())), scope: PhantomData }),
            None => unreachable!("nothing was refused"),
        }
    }

    /// Removes completed operations, so that the list stays short when a scope starts many. Most operations complete in
    /// their order. Failed ones are kept, because the end of the scope returns their failure.
    fn forget_completed(&self) {
        let succeeded = |work: &Arc<Started>| matches!(work.test(), Ok(true)) && work.untold_failure().is_none();
        let mut started = self.started.borrow_mut();
        while started.front().map_or(false, succeeded) {
            started.pop_front();
        }
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Scope({:?})", self.comm)
    }
}

/// An operation of a [`Scope`]. It may be dropped: the scope waits for the operation.
///
/// Any thread may test and wait. It is also a [`Future`], for a `block_on` inside the scope.
pub struct ScopedWork<'scope, B: Borrowed> {
    started: Arc<Started>,
    /// The buffers. `None` after wait(), or after the poll() that returned them.
    held: Option<Held<B>>,
    scope: PhantomData<&'scope ()>,
}

impl<B: Borrowed> ScopedWork<'_, B> {
    /// Whether the operation has completed, with success or not; never blocks.
    pub fn test(&self) -> Result<bool> {
        self.started.test()
    }

    /// Waits, but at most `timeout`. Returns `false` on a time-out; the operation then continues.
    pub fn wait_for(&self, timeout: Duration) -> Result<bool> {
        self.started.told(self.started.wait_for(timeout))
    }

    /// Makes a stream of the GPU wait until the operation has completed, so that later work on it sees the results. For
    /// host memory, this thread waits.
    pub fn wait_on(&self, stream: Stream<'_>) -> Result<()> {
        self.started.told(self.started.wait_on(stream))
    }

    /// Waits until the operation has completed, and returns the buffers for the rest of the scope.
    pub fn wait(mut self) -> Result<B> {
        self.started.told(self.started.wait())?;
        Ok(self.buffers())
    }

    fn buffers(&mut self) -> B {
        self.held.take().expect("a work is not awaited again after it gave its buffers back").into_inner()
    }

    /// A descriptor that becomes readable when the operation completes, for event loops. It may only be polled.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>> {
        self.started.event_fd()
    }
}

/// Buffers stay in place when the work is moved.
impl<B: Borrowed> Unpin for ScopedWork<'_, B> {}

impl<B: Borrowed> Future for ScopedWork<'_, B> {
    type Output = Result<B>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_completion(&self.started, context).map(|result| result.map(|()| self.buffers()))
    }
}

impl<B: Borrowed> fmt::Debug for ScopedWork<'_, B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ScopedWork").field("completed", &self.test()).finish()
    }
}
