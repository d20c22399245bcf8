//! The single entry to the library for all operations: lengths are checked, then the C function is called.

use std::ffi::c_void;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::number;
use crate::data::Span;
use crate::error::{Error, Result};
use crate::reduction::Combine;
use crate::tensor_map::Step;

/// An operation without its buffers.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    AllReduce(Combine),
    Broadcast { root: usize },
    AllGather,
    AllGatherInPlace,
    ReduceScatter(Combine),
    ReduceScatterInPlace(Combine),
    Reduce { op: Combine, root: usize },
    Gather { root: usize },
    Scatter { root: usize },
    AllToAll,
    Barrier,
    Send { peer: usize },
    Recv { peer: usize },
    TensorMap(Box<Step>),
}

impl Operation {
    pub(crate) fn name(&self) -> &'static str {
        match *self {
            Operation::AllReduce(_) => "all_reduce",
            Operation::Broadcast { .. } => "broadcast",
            Operation::AllGather | Operation::AllGatherInPlace => "all_gather",
            Operation::ReduceScatter(_) | Operation::ReduceScatterInPlace(_) => "reduce_scatter",
            Operation::Reduce { .. } => "reduce",
            Operation::Gather { .. } => "gather",
            Operation::Scatter { .. } => "scatter",
            Operation::AllToAll => "all_to_all",
            Operation::Barrier => "barrier",
            Operation::Send { .. } => "send",
            Operation::Recv { .. } => "recv",
            Operation::TensorMap(_) => "tensor_map",
        }
    }

    /// The reduce operation, if there is one.
    fn combine(&self) -> Option<Combine> {
        match *self {
            Operation::AllReduce(op) | Operation::ReduceScatter(op) => Some(op),
            Operation::ReduceScatterInPlace(op) | Operation::Reduce { op, .. } => Some(op),
            _ => None,
        }
    }

    /// Checks the lengths of the buffers, and returns the spans for the C interface. For operations in place, one span
    /// may be only this rank's part of the buffer.
    fn fit(&self, comm: &Comm, send: Span, recv: Span) -> Result<(Span, Span)> {
        let (size, rank) = (comm.size(), comm.rank());
        if let Some(combine) = self.combine() {
            combine.expect(self.name(), send.dtype)?;
        }
        let (send, recv) = match *self {
            Operation::AllGatherInPlace => (self.own_part(recv, size, rank)?, recv),
            Operation::ReduceScatterInPlace(_) => (send, self.own_part(send, size, rank)?),
            _ => (send, recv),
        };
        match *self {
            Operation::TensorMap(ref step) => step.check(comm, send, recv)?,
            Operation::AllReduce(_) | Operation::Broadcast { .. } => self.expect(recv, "recv", send, "send", 1)?,
            Operation::AllGather => self.expect(recv, "recv", send, "send", size)?,
            Operation::ReduceScatter(_) => self.expect(send, "send", recv, "recv", size)?,
            Operation::Gather { root } if root == rank => self.expect(recv, "recv", send, "send", size)?,
            Operation::Scatter { root } if root == rank => self.expect(send, "send", recv, "recv", size)?,
            Operation::AllToAll => {
                self.expect(recv, "recv", send, "send", 1)?;
                self.own_part(send, size, rank)?;
            }
            _ => {}
        }
        Ok((send, recv))
    }

    /// Returns an error if the buffers do not fit the operation. Does not start the operation.
    pub(crate) fn check(&self, comm: &Comm, send: Span, recv: Span) -> Result<()> {
        self.fit(comm, send, recv).map(drop).map_err(|error| error.in_op(self.name()))
    }

    /// Returns this rank's part of a buffer that has `size` equal parts.
    fn own_part(&self, whole: Span, size: usize, rank: usize) -> Result<Span> {
        if whole.count % size != 0 {
            let text = format!(
                "the buffer has {} elements; expected a multiple of {}, the number of ranks",
                whole.count, size
            );
            return Err(Error::invalid(format!("{}: {}", self.name(), text)));
        }
        let count = whole.count / size;
        Ok(whole.part(rank * count, count))
    }

    /// Returns an error unless the larger buffer has `times` as many elements as the other buffer, and the same type.
    fn expect(&self, large: Span, large_name: &str, small: Span, small_name: &str, times: usize) -> Result<()> {
        if large.dtype != small.dtype {
            let text =
                format!("{} has type {:?}; expected {:?}, like {}", large_name, large.dtype, small.dtype, small_name);
            return Err(Error::invalid(format!("{}: {}", self.name(), text)));
        }
        let expected = small.count.checked_mul(times);
        if expected == Some(large.count) {
            return Ok(());
        }
        let expected = expected.map_or("a number that is too large for memory".into(), |count| count.to_string());
        let why = match times {
            1 => format!("like {}", small_name),
            _ => format!("{} elements of {} for each of {} ranks", small.count, small_name, times),
        };
        let text = format!("{} has {} elements; expected {}, {}", large_name, large.count, expected, why);
        Err(Error::invalid(format!("{}: {}", self.name(), text)))
    }
}

/// Starts an operation in stream order. The stream is NULL for host memory. Without a work object, the call also waits
/// for the end of an operation on host memory.
///
/// # Safety
///
/// The buffers must be valid, recv for writing, and nothing else may use them until the operation is complete.
pub(crate) unsafe fn launch(
    comm: &Comm,
    operation: &Operation,
    send: Span,
    recv: Span,
    stream: *mut c_void,
    work: *mut *mut sys::dsc_work_t,
) -> Result<()> {
    let _turn = comm.turn(operation.name())?;
    // SAFETY: guaranteed by the caller.
    unsafe { launch_in_turn(comm, operation, send, recv, stream, work) }
}

/// The part of launch() after it has locked the communicator with `turn`.
///
/// # Safety
///
/// The same as for launch(). Between the begin and the end of a batch, the operation is complete when the work object
/// of the end is complete.
pub(crate) unsafe fn launch_in_turn(
    comm: &Comm,
    operation: &Operation,
    send: Span,
    recv: Span,
    stream: *mut c_void,
    work: *mut *mut sys::dsc_work_t,
) -> Result<()> {
    let (send, recv) = operation.fit(comm, send, recv).map_err(|error| error.in_op(operation.name()))?;
    let c = comm.raw();
    let (from, to, dtype) = (send.ptr, recv.ptr, recv.dtype.number());
    // SAFETY: the caller guarantees that the buffers are valid. fit() has compared their lengths with the counts.
    let result = unsafe {
        match *operation {
            Operation::TensorMap(ref step) => step.launch(comm, send, recv, stream, work),
            Operation::AllReduce(op) => sys::dsc_all_reduce(c, from, to, recv.count, dtype, op.number(), stream, work),
            Operation::Broadcast { root } => {
                sys::dsc_broadcast(c, from, to, recv.count, dtype, number("root", root)?, stream, work)
            }
            Operation::AllGather | Operation::AllGatherInPlace => {
                sys::dsc_all_gather(c, from, to, send.count, dtype, stream, work)
            }
            Operation::ReduceScatter(op) | Operation::ReduceScatterInPlace(op) => {
                sys::dsc_reduce_scatter(c, from, to, recv.count, dtype, op.number(), stream, work)
            }
            Operation::Reduce { op, root } => {
                sys::dsc_reduce(c, from, to, send.count, dtype, op.number(), number("root", root)?, stream, work)
            }
            Operation::Gather { root } => {
                let dtype = send.dtype.number(); // recv is used only on the root
                sys::dsc_gather(c, from, to, send.count, dtype, number("root", root)?, stream, work)
            }
            Operation::Scatter { root } => {
                sys::dsc_scatter(c, from, to, recv.count, dtype, number("root", root)?, stream, work)
            }
            Operation::AllToAll => sys::dsc_all_to_all(c, from, to, send.count / comm.size(), dtype, stream, work),
            Operation::Barrier => sys::dsc_barrier(c, stream, work),
            Operation::Send { peer } => {
                sys::dsc_send(c, from, send.count, send.dtype.number(), number("peer", peer)?, stream, work)
            }
            Operation::Recv { peer } => sys::dsc_recv(c, to, recv.count, dtype, number("peer", peer)?, stream, work),
        }
    };
    comm.check(result, operation.name())
}
