//! An operation in progress.

use std::ffi::c_void;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::unix::io::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dsc_sys as sys;

use crate::batch::Batch;
use crate::comm::Comm;
use crate::convert::{milliseconds, sized};
use crate::data::Span;
use crate::device::Stream;
use crate::error::{check, Error, Result};
use crate::handles::WorkHandle;
use crate::numbers::ErrorCode;
use crate::operation::{launch, Operation};
use crate::request::Request;

const UNTIL_IT_ENDS: i32 = -1;

/// A work object. For errors it also has the name of its communicator.
pub(crate) struct Started {
    handle: WorkHandle,
    group: Arc<str>,
    op: &'static str,
    /// Whether a thread of the library advances the operation.
    pub(crate) has_progress_thread: bool,
    /// Whether the program has got the failure of the operation.
    told: AtomicBool,
}

impl Started {
    fn raw(&self) -> *mut sys::dsc_work_t {
        self.handle.0.as_ptr()
    }

    /// Whether the operation has ended, with success or not, so that its buffers are no longer in use.
    pub(crate) fn test(&self) -> Result<bool> {
        let mut completed = 0;
        // SAFETY: the library checks the handle, and completed outlives the call.
        check(unsafe { sys::dsc_work_test(self.raw(), &mut completed) })?;
        Ok(completed != 0)
    }

    pub(crate) fn wait_for(&self, timeout: Duration) -> Result<bool> {
        Ok(self.synchronize(milliseconds(timeout))? == sys::DSC_OK)
    }

    pub(crate) fn wait(&self) -> Result<()> {
        while self.synchronize(UNTIL_IT_ENDS)? != sys::DSC_OK {}
        Ok(())
    }

    /// Notes that the program gets this result of the operation, and returns it.
    pub(crate) fn told<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.told.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Returns the failure of the operation, if the program has not got it yet.
    pub(crate) fn untold_failure(&self) -> Option<Error> {
        if self.told.load(Ordering::Relaxed) {
            return None;
        }
        self.failure()
    }

    fn synchronize(&self, timeout_ms: i32) -> Result<sys::dsc_result_t> {
        // SAFETY: the library checks the handle.
        let result = unsafe { sys::dsc_work_synchronize(self.raw(), timeout_ms) };
        check(result).map_err(|error| self.failure().unwrap_or(error))?;
        Ok(result)
    }

    /// Makes a stream wait for the operation. For an operation on host memory, this thread waits.
    pub(crate) fn wait_on(&self, stream: Stream<'_>) -> Result<()> {
        loop {
            // SAFETY: the library checks the handle. The stream is valid.
            let result = unsafe { sys::dsc_work_wait(self.raw(), UNTIL_IT_ENDS, stream.as_raw()) };
            check(result).map_err(|error| self.failure().unwrap_or(error))?;
            if result == sys::DSC_OK {
                return Ok(());
            }
        }
    }

    /// Returns the failure of the operation, if it has ended with one.
    fn failure(&self) -> Option<Error> {
        let mut info = sized!(sys::dsc_error_info_t);
        // SAFETY: the library checks the handle; info has the size that it says, and outlives the call.
        let result = unsafe { sys::dsc_work_error_info(self.raw(), &mut info) };
        let known = result == sys::DSC_OK && info.code < 0;
        known.then(|| Error::from_info(&info).in_op(self.op).in_group(&self.group))
    }

    /// Returns when the buffers are no longer in use, even after errors.
    pub(crate) fn settle(&self) {
        while let Err(error) = self.wait() {
            // After fork(), the child has its own copies of the buffers, which no other process uses. An operation in a
            // CUDA graph runs only when its owner launches the graph. The library forgets only operations that have
            // ended.
            if matches!(error.code, ErrorCode::Forked | ErrorCode::State) || self.test().unwrap_or(true) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn event_fd(&self) -> Result<BorrowedFd<'_>> {
        let mut descriptor = -1;
        // SAFETY: the library checks the handle, and descriptor outlives the call.
        check(unsafe { sys::dsc_work_eventfd(self.raw(), &mut descriptor) })?;
        // SAFETY: the descriptor stays open until the work object is destroyed, which the borrow of self prevents.
        Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }
}

/// Starts an operation and keeps its buffers.
///
/// # Safety
///
/// The memory of the buffers must stay in place when the buffers are moved. Until the operation is complete, the
/// buffers must be kept, or nothing else may use their memory.
pub(crate) unsafe fn start<B>(
    comm: &Comm,
    request: Request<B>,
    stream: *mut c_void,
) -> Result<(Arc<Started>, Held<B>)> {
    let Request { buffers, operation, spans } = request;
    start_call(comm, operation.name(), buffers, |buffers, work| {
        let (send, recv) = spans(buffers);
        let stream = if stream.is_null() { send.default_stream(recv) } else { stream };
        // SAFETY: the caller keeps the buffers until the operation is complete.
        unsafe { launch(comm, &operation, send, recv, stream, work) }
    })
}

/// Calls the library with buffers that stay in place, and takes ownership of the new work object.
pub(crate) fn start_call<B>(
    comm: &Comm,
    op: &'static str,
    buffers: B,
    call: impl FnOnce(&mut B, *mut *mut sys::dsc_work_t) -> Result<()>,
) -> Result<(Arc<Started>, Held<B>)> {
    let mut held = Held::new(buffers);
    let mut work = ptr::null_mut();
    // SAFETY: the object was just created with a value.
    call(unsafe { held.0.assume_init_mut() }, &mut work)?;
    Ok((adopt(comm, work, op)?, held))
}

/// Runs an operation on GPU memory on the default stream, and waits for its end.
///
/// # Safety
///
/// The requirements of launch() apply.
pub(crate) unsafe fn complete(comm: &Comm, operation: &Operation, send: Span, recv: Span) -> Result<()> {
    let mut work = ptr::null_mut();
    // SAFETY: guaranteed by the caller.
    unsafe { launch(comm, operation, send, recv, send.default_stream(recv), &mut work)? };
    complete_work(comm, work, operation.name())
}

/// Waits for the end of an operation whose work object is used only for that.
pub(crate) fn complete_work(comm: &Comm, work: *mut sys::dsc_work_t, op: &'static str) -> Result<()> {
    let started = adopt(comm, work, op)?;
    started.settle();
    started.wait()
}

/// Takes ownership of a new work object.
fn adopt(comm: &Comm, work: *mut sys::dsc_work_t, op: &'static str) -> Result<Arc<Started>> {
    let handle = NonNull::new(work).ok_or_else(|| {
        Error::new(ErrorCode::Internal, "the library returned neither a work object nor an error".into())
    })?;
    let (group, has_progress_thread) = (comm.shared.name.clone(), comm.shared.has_progress_thread);
    let told = AtomicBool::new(false);
    Ok(Arc::new(Started { handle: WorkHandle(handle), group, op, has_progress_thread, told }))
}

/// Starts a batch. Returns the operations that were started, and the error if any was refused.
///
/// # Safety
///
/// Nothing may use the buffers until the operations are complete.
pub(crate) unsafe fn start_batch(
    comm: &Comm,
    batch: Batch<'_, '_>,
    stream: *mut c_void,
) -> (Option<Arc<Started>>, Result<()>) {
    let mut work = ptr::null_mut();
    // SAFETY: guaranteed by the caller.
    let refused = unsafe { batch.start(stream, &mut work) };
    if work.is_null() {
        let missing =
            || Err(Error::new(ErrorCode::Internal, "the library returned neither a work object nor an error".into()));
        return (None, refused.and_then(|()| missing()));
    }
    match adopt(comm, work, "batch") {
        Ok(started) => (Some(started), refused),
        Err(error) => (None, Err(error)),
    }
}

/// The buffers of a running operation. They may be moved, but the compiler must not assume anything about their memory,
/// which the library writes. Moving a plain `&mut` would claim exclusive access to the memory.
pub(crate) struct Held<B>(MaybeUninit<B>);

impl<B> Held<B> {
    pub(crate) fn new(buffers: B) -> Self {
        Held(MaybeUninit::new(buffers))
    }

    pub(crate) fn into_inner(self) -> B {
        let this = ManuallyDrop::new(self);
        // SAFETY: it holds a value until it is dropped. The value is read only once, because this object is never
        // dropped.
        unsafe { ptr::read(this.0.as_ptr()) }
    }
}

impl<B> Drop for Held<B> {
    fn drop(&mut self) {
        // SAFETY: it holds a value until now.
        unsafe { self.0.assume_init_drop() }
    }
}
