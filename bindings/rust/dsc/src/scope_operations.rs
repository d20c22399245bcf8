//! The operations of a scope, with the same names as on a communicator.

use crate::data::{Data, DataMut};
use crate::error::Result;
use crate::reduction::Reduction;
use crate::request;
use crate::scope::{Scope, ScopedWork};

/// An operation that runs on one borrowed buffer.
type InPlace<'scope, B> = Result<ScopedWork<'scope, &'scope mut B>>;
/// An operation that runs on two borrowed buffers.
type Pair<'scope, S, R> = Result<ScopedWork<'scope, (&'scope S, &'scope mut R)>>;

/// # Operations
///
/// Each method starts an operation and returns immediately. The methods of [`Comm`](crate::Comm) with the same names
/// also wait. For other [`request`](crate::request)s, use [`start`](Scope::start).
impl<'scope> Scope<'scope, '_> {
    /// Starts to combine the elements of all ranks, in place; see [`Comm::all_reduce`](crate::Comm::all_reduce).
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let mut x = [world.rank() as f32; 8];
    /// world.scope(|scope| {
    ///     scope.all_reduce(&mut x, dsc::Op::Max)?;
    ///     Ok(()) // the end of the scope waits, and returns a failure if there is one
    /// })?;
    /// assert_eq!(x[7], world.size() as f32 - 1.0);
    /// world.finalize()
    /// # }
    /// ```
    pub fn all_reduce<B: DataMut + ?Sized>(
        &'scope self,
        data: &'scope mut B,
        op: impl Reduction<B::Kind>,
    ) -> InPlace<'scope, B> {
        self.start(request::all_reduce(data, op))
    }

    /// See [`Comm::all_reduce_into`](crate::Comm::all_reduce_into).
    pub fn all_reduce_into<S, R>(
        &'scope self,
        send: &'scope S,
        recv: &'scope mut R,
        op: impl Reduction<S::Kind>,
    ) -> Pair<'scope, S, R>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.start(request::all_reduce_into(send, recv, op))
    }

    /// See [`Comm::broadcast`](crate::Comm::broadcast).
    pub fn broadcast<B: DataMut + ?Sized>(&'scope self, data: &'scope mut B, root: usize) -> InPlace<'scope, B> {
        self.start(request::broadcast(data, root))
    }

    /// See [`Comm::all_gather`](crate::Comm::all_gather).
    pub fn all_gather<S, R>(&'scope self, send: &'scope S, recv: &'scope mut R) -> Pair<'scope, S, R>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.start(request::all_gather(send, recv))
    }

    /// See [`Comm::reduce_scatter`](crate::Comm::reduce_scatter).
    pub fn reduce_scatter<S, R>(
        &'scope self,
        send: &'scope S,
        recv: &'scope mut R,
        op: impl Reduction<S::Kind>,
    ) -> Pair<'scope, S, R>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.start(request::reduce_scatter(send, recv, op))
    }

    /// See [`Comm::reduce`](crate::Comm::reduce).
    pub fn reduce<B: DataMut + ?Sized>(
        &'scope self,
        data: &'scope mut B,
        op: impl Reduction<B::Kind>,
        root: usize,
    ) -> InPlace<'scope, B> {
        self.start(request::reduce(data, op, root))
    }

    /// See [`Comm::all_to_all`](crate::Comm::all_to_all).
    pub fn all_to_all<S, R>(&'scope self, send: &'scope S, recv: &'scope mut R) -> Pair<'scope, S, R>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.start(request::all_to_all(send, recv))
    }

    /// See [`Comm::send`](crate::Comm::send).
    pub fn send<B: Data + ?Sized>(&'scope self, data: &'scope B, peer: usize) -> Result<ScopedWork<'scope, &'scope B>> {
        self.start(request::send(data, peer))
    }

    /// See [`Comm::recv`](crate::Comm::recv).
    pub fn recv<B: DataMut + ?Sized>(&'scope self, data: &'scope mut B, peer: usize) -> InPlace<'scope, B> {
        self.start(request::recv(data, peer))
    }

    /// See [`Comm::barrier`](crate::Comm::barrier).
    pub fn barrier(&'scope self) -> Result<ScopedWork<'scope, ()>> {
        self.start(request::barrier())
    }
}
