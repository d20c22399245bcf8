//! Batches of operations, which are described one by one and started together.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::data::Span;
use crate::device::Stream;
use crate::error::{Error, Result};
use crate::operation::{launch_in_turn, Operation};
use crate::request::Request;
use crate::scope::Borrowed;

/// The argument of the closures of [`Comm::batch`] and [`Scope::batch`](crate::Scope::batch). Its operations start
/// together after the closure has returned.
pub struct Batch<'scope, 'env: 'scope> {
    comm: &'env Comm,
    noted: Vec<(Operation, Span, Span)>,
    scope: PhantomData<&'scope mut &'scope ()>,
}

impl<'scope, 'env> Batch<'scope, 'env> {
    pub(crate) fn new(comm: &'env Comm) -> Self {
        Batch { comm, noted: Vec::new(), scope: PhantomData }
    }

    /// Adds an operation. Its buffers are borrowed until the operations are complete. If its buffers have wrong sizes,
    /// the operation is refused and does not become part of the batch.
    pub fn add<B: Borrowed + 'scope>(&mut self, request: Request<B>) -> Result<()> {
        let Request { mut buffers, operation, spans } = request;
        let (send, recv) = spans(&mut buffers);
        operation.check(self.comm, send, recv)?;
        self.noted.push((operation, send, recv));
        Ok(())
    }

    /// Starts all operations. If the library refuses one, the others still run, because other ranks may wait for them.
    /// Returns the first error.
    ///
    /// # Safety
    ///
    /// Nothing may use the buffers until the operations are complete, or until the work object is complete, if there is
    /// one.
    pub(crate) unsafe fn start(self, stream: *mut c_void, work: *mut *mut sys::dsc_work_t) -> Result<()> {
        let comm = self.comm;
        // A call of another thread must not become a part of the batch.
        let _turn = comm.turn("batch")?;
        // SAFETY: the library checks the handle.
        comm.check(unsafe { sys::dsc_batch_begin(comm.raw()) }, "batch_begin")?;
        let mut refused: Option<Error> = None;
        for (operation, send, recv) in self.noted {
            // SAFETY: the caller guarantees that the buffers are valid.
            let noted = unsafe { launch_in_turn(comm, &operation, send, recv, ptr::null_mut(), ptr::null_mut()) };
            refused = refused.or_else(|| noted.err());
        }
        // SAFETY: the library checks the handle, and work outlives the call.
        comm.check(unsafe { sys::dsc_batch_end(comm.raw(), stream, work) }, "batch")?;
        refused.map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Batch<'_, '_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.noted.iter().map(|(operation, ..)| operation)).finish()
    }
}

impl Comm {
    /// Runs a closure that describes operations, starts them together, and waits for all of them. They do not wait for
    /// each other, so two ranks may send to each other in one batch.
    ///
    /// If the closure fails, no operation is started. If it panics, the same happens as in [`Comm::scope`].
    ///
    /// ```
    /// use dsc::request::{all_reduce, barrier};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let (mut sums, mut largest) = ([1.0f32; 4], [world.rank() as i32]);
    /// world.batch(|batch| {
    ///     batch.add(all_reduce(&mut sums, dsc::Op::Sum))?;
    ///     batch.add(all_reduce(&mut largest, dsc::Op::Max))?;
    ///     batch.add(barrier())
    /// })?;
    /// assert_eq!((sums[3], largest[0]), (world.size() as f32, world.size() as i32 - 1));
    /// world.finalize()
    /// # }
    /// ```
    ///
    /// A buffer must outlive the batch, and the closure may not touch it after it was added:
    ///
    /// ```compile_fail
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// world.batch(|batch| {
    ///     let mut x = [0.0f32; 8];
    ///     batch.add(dsc::request::all_reduce(&mut x, dsc::Op::Sum))
    /// })
    /// # }
    /// ```
    ///
    /// ```compile_fail
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let mut x = [0.0f32; 8];
    /// world.batch(|batch| {
    ///     batch.add(dsc::request::all_reduce(&mut x, dsc::Op::Sum))?;
    ///     x[0] = 1.0;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn batch<'env, F>(&'env self, body: F) -> Result<()>
    where
        F: for<'scope> FnOnce(&mut Batch<'scope, 'env>) -> Result<()>,
    {
        self.scope(|scope| scope.batch(body)?.wait())
    }

    /// Does the same as [`batch`](Comm::batch), but uses buffers on the GPU in stream order.
    pub fn batch_on<'env, F>(&'env self, stream: Stream<'_>, body: F) -> Result<()>
    where
        F: for<'scope> FnOnce(&mut Batch<'scope, 'env>) -> Result<()>,
    {
        self.scope(|scope| scope.batch_on(stream, body)?.wait())
    }
}
