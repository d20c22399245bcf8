//! Operations on blocks of different lengths, one per rank.

use std::ptr;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::data::{Data, DataMut, Span};
use crate::error::{Error, Result};
use crate::reduction::Reduction;
use crate::started::complete_work;

/// # Blocks of different lengths
impl Comm {
    /// Gathers the elements of every rank, in rank order. Rank r has `counts[r]` elements; the list is the same on all
    /// ranks.
    pub fn all_gather_v<S, R>(&self, send: &S, recv: &mut R, counts: &[usize]) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        let (op, from, to) = ("all_gather", send.span(), recv.span_mut());
        self.expect_blocks(op, "recv", to, counts)?;
        self.expect_own(op, "send", from, to, counts)?;
        let _turn = self.turn(op)?;
        let (counts, dtype, stream) = (counts.as_ptr(), to.dtype.number(), from.default_stream(to));
        self.run_blocks(op, from, to, |work| {
            // SAFETY: the buffers are borrowed until the call ends, and their lengths were compared with counts, one
            // per rank.
            unsafe { sys::dsc_all_gather_v(self.raw(), from.ptr, to.ptr, counts, dtype, stream, work) }
        })
    }

    /// Combines the elements of all ranks. Rank r gets a block of `counts[r]` elements of the result; the blocks are in
    /// rank order in `send`.
    pub fn reduce_scatter_v<S, R>(
        &self,
        send: &S,
        recv: &mut R,
        counts: &[usize],
        op: impl Reduction<S::Kind>,
    ) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        let (name, from, to) = ("reduce_scatter", send.span(), recv.span_mut());
        let stream = from.default_stream(to);
        self.expect_blocks(name, "send", from, counts)?;
        self.expect_own(name, "recv", to, from, counts)?;
        op.combine().expect(name, from.dtype)?;
        let (dtype, op) = (to.dtype.number(), op.combine().number());
        let _turn = self.turn(name)?;
        self.run_blocks(name, from, to, |work| {
            // SAFETY: as in all_gather_v().
            unsafe { sys::dsc_reduce_scatter_v(self.raw(), from.ptr, to.ptr, counts.as_ptr(), dtype, op, stream, work) }
        })
    }

    /// Sends a block of elements to every rank and receives one from every rank. `recv_counts[r]` equals the entry for
    /// this rank in the `send_counts` of rank r.
    pub fn all_to_all_v<S, R>(&self, send: &S, send_counts: &[usize], recv: &mut R, recv_counts: &[usize]) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        let (op, from, to) = ("all_to_all", send.span(), recv.span_mut());
        let stream = from.default_stream(to);
        self.expect_blocks(op, "send", from, send_counts)?;
        self.expect_blocks(op, "recv", to, recv_counts)?;
        self.expect_type(op, from, to)?;
        let (sent, came, dtype) = (send_counts.as_ptr(), recv_counts.as_ptr(), to.dtype.number());
        let _turn = self.turn(op)?;
        self.run_blocks(op, from, to, |work| {
            // SAFETY: as in all_gather_v().
            unsafe { sys::dsc_all_to_all_v(self.raw(), from.ptr, sent, to.ptr, came, dtype, stream, work) }
        })
    }

    /// Runs an operation and waits for it. Without a work object, the library itself waits only for operations on host
    /// memory.
    pub(crate) fn run_blocks(
        &self,
        op: &'static str,
        from: Span,
        to: Span,
        start: impl FnOnce(*mut *mut sys::dsc_work_t) -> sys::dsc_result_t,
    ) -> Result<()> {
        if !from.is_on_device() && !to.is_on_device() {
            return self.check(start(ptr::null_mut()), op);
        }
        let mut work = ptr::null_mut();
        self.check(start(&mut work), op)?;
        complete_work(self, work, op)
    }

    /// Returns an error unless there is one count per rank, and the buffer with all blocks has as many elements as the
    /// sum of the counts.
    fn expect_blocks(&self, op: &str, name: &str, whole: Span, counts: &[usize]) -> Result<()> {
        if counts.len() != self.size() {
            let text =
                format!("there are {} counts for {}; expected {}, one per rank", counts.len(), name, self.size());
            return Err(self.wrong(op, text));
        }
        let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        if sum == Some(whole.count) {
            return Ok(());
        }
        let expected = match sum {
            Some(sum) => format!("{}, the sum of its counts", sum),
            None => "the sum of its counts, which is too large for memory".into(),
        };
        Err(self.wrong(op, format!("{} has {} elements; expected {}", name, whole.count, expected)))
    }

    /// Returns an error unless this rank's buffer is as long as its block.
    fn expect_own(&self, op: &str, name: &str, own: Span, whole: Span, counts: &[usize]) -> Result<()> {
        self.expect_type(op, own, whole)?;
        let expected = counts[self.rank()];
        if own.count == expected {
            return Ok(());
        }
        Err(self.wrong(op, format!("{} has {} elements; expected {}, its count", name, own.count, expected)))
    }

    fn expect_type(&self, op: &str, one: Span, other: Span) -> Result<()> {
        if one.dtype == other.dtype {
            return Ok(());
        }
        Err(self.wrong(
            op,
            format!("the buffers have the types {:?} and {:?}; expected the same type", one.dtype, other.dtype),
        ))
    }

    fn wrong(&self, op: &str, text: String) -> Error {
        Error::invalid(format!("{}: {}", op, text)).in_op(op)
    }
}
