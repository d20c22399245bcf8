//! Descriptions of operations, which [`Scope::start`] or [`Comm::start`] start.
//!
//! A request holds its buffers: references for a scope, or owned buffers for [`Comm::start`]. The methods of [`Comm`]
//! with the same names start the operation and wait for it.
//!
//! [`Scope::start`]: crate::Scope::start
//! [`Comm::start`]: crate::Comm::start
//! [`Comm`]: crate::Comm

use std::fmt;

use crate::data::{Data, DataMut, Span};
use crate::operation::Operation;
use crate::reduction::Reduction;

/// An operation with its buffers that has not been started.
#[must_use = "a request does nothing until it is started"]
pub struct Request<B> {
    pub(crate) buffers: B,
    pub(crate) operation: Operation,
    /// Returns the buffer to send from and the buffer to receive into.
    pub(crate) spans: fn(&mut B) -> (Span, Span),
}

impl<B> fmt::Debug for Request<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Request({:?})", self.operation)
    }
}

fn in_place<B: DataMut>(buffers: B, operation: Operation) -> Request<B> {
    let spans = |buffer: &mut B| {
        let span = buffer.span_mut();
        (span, span)
    };
    Request { buffers, operation, spans }
}

pub(crate) fn pair<S: Data, R: DataMut<Kind = S::Kind>>(send: S, recv: R, operation: Operation) -> Request<(S, R)> {
    Request { buffers: (send, recv), operation, spans: |(send, recv)| (send.span(), recv.span_mut()) }
}

/// Combines the elements of all ranks, in place; see [`Comm::all_reduce`](crate::Comm::all_reduce).
pub fn all_reduce<B: DataMut>(data: B, op: impl Reduction<B::Kind>) -> Request<B> {
    in_place(data, Operation::AllReduce(op.combine()))
}

/// Combines the elements of all ranks; see [`Comm::all_reduce_into`](crate::Comm::all_reduce_into).
pub fn all_reduce_into<S: Data, R: DataMut<Kind = S::Kind>>(
    send: S,
    recv: R,
    op: impl Reduction<S::Kind>,
) -> Request<(S, R)> {
    pair(send, recv, Operation::AllReduce(op.combine()))
}

/// Copies the root's elements to all ranks, in place; see [`Comm::broadcast`](crate::Comm::broadcast).
pub fn broadcast<B: DataMut>(data: B, root: usize) -> Request<B> {
    in_place(data, Operation::Broadcast { root })
}

/// Copies the root's elements to all ranks; see [`Comm::broadcast_into`](crate::Comm::broadcast_into).
pub fn broadcast_into<S: Data, R: DataMut<Kind = S::Kind>>(send: S, recv: R, root: usize) -> Request<(S, R)> {
    pair(send, recv, Operation::Broadcast { root })
}

/// Gathers the elements of all ranks; see [`Comm::all_gather`](crate::Comm::all_gather).
pub fn all_gather<S: Data, R: DataMut<Kind = S::Kind>>(send: S, recv: R) -> Request<(S, R)> {
    pair(send, recv, Operation::AllGather)
}

/// Gathers the parts of all ranks, in place; see [`Comm::all_gather_in_place`](crate::Comm::all_gather_in_place).
pub fn all_gather_in_place<B: DataMut>(data: B) -> Request<B> {
    in_place(data, Operation::AllGatherInPlace)
}

/// Combines elements and gives each rank a part; see [`Comm::reduce_scatter`](crate::Comm::reduce_scatter).
pub fn reduce_scatter<S: Data, R: DataMut<Kind = S::Kind>>(
    send: S,
    recv: R,
    op: impl Reduction<S::Kind>,
) -> Request<(S, R)> {
    pair(send, recv, Operation::ReduceScatter(op.combine()))
}

/// Combines elements and puts each rank's part in place; see
/// [`Comm::reduce_scatter_in_place`](crate::Comm::reduce_scatter_in_place).
pub fn reduce_scatter_in_place<B: DataMut>(data: B, op: impl Reduction<B::Kind>) -> Request<B> {
    in_place(data, Operation::ReduceScatterInPlace(op.combine()))
}

/// Combines the elements of all ranks, in place on the root; see [`Comm::reduce`](crate::Comm::reduce).
pub fn reduce<B: DataMut>(data: B, op: impl Reduction<B::Kind>, root: usize) -> Request<B> {
    in_place(data, Operation::Reduce { op: op.combine(), root })
}

/// Gathers the elements of all ranks on the root; see [`Comm::gather`](crate::Comm::gather).
pub fn gather<S: Data, R: DataMut<Kind = S::Kind>>(send: S, recv: R, root: usize) -> Request<(S, R)> {
    pair(send, recv, Operation::Gather { root })
}

/// Sends to each rank a part of the root's elements; see [`Comm::scatter`](crate::Comm::scatter).
pub fn scatter<S: Data, R: DataMut<Kind = S::Kind>>(send: S, recv: R, root: usize) -> Request<(S, R)> {
    pair(send, recv, Operation::Scatter { root })
}

/// Exchanges equal parts among all ranks; see [`Comm::all_to_all`](crate::Comm::all_to_all).
pub fn all_to_all<S: Data, R: DataMut<Kind = S::Kind>>(send: S, recv: R) -> Request<(S, R)> {
    pair(send, recv, Operation::AllToAll)
}

/// Exchanges equal parts in place; see [`Comm::all_to_all_in_place`](crate::Comm::all_to_all_in_place).
pub fn all_to_all_in_place<B: DataMut>(data: B) -> Request<B> {
    in_place(data, Operation::AllToAll)
}

/// Waits until all ranks have called it; see [`Comm::barrier`](crate::Comm::barrier).
pub fn barrier() -> Request<()> {
    Request { buffers: (), operation: Operation::Barrier, spans: |_| (Span::none(), Span::none()) }
}

/// Sends to one rank; see [`Comm::send`](crate::Comm::send).
pub fn send<B: Data>(data: B, peer: usize) -> Request<B> {
    Request { buffers: data, operation: Operation::Send { peer }, spans: |data| (data.span(), Span::none()) }
}

/// Receives from one rank; see [`Comm::recv`](crate::Comm::recv).
pub fn recv<B: DataMut>(data: B, peer: usize) -> Request<B> {
    in_place(data, Operation::Recv { peer })
}
