//! Exchanges of tensor, sequence and context parallelism, each with a forward and a backward step.

use std::ffi::c_void;
use std::mem::size_of;
use std::ptr;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::data::{Data, DataMut, Span};
use crate::error::{check, Error, Result};
use crate::numbers::{Dtype, Mapping};
use crate::operation::Operation;
use crate::request::{pair, Request};

const OP: &str = "tensor_map";

/// An exchange of parts of a tensor that is divided among the ranks, in both directions.
///
/// The whole tensor is `[outer, dim, inner]` in row-major order, and `dim` is divided among the ranks. If `dim` is the
/// first dimension, `outer` is 1; if it is the last one, `inner` is 1. [`Mapping`] defines the inputs and outputs.
///
/// ```
/// use dsc::{Mapping, TensorMap};
///
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let (tokens, columns) = (4, 3 * world.size());
/// let map = TensorMap::new(Mapping::GatherReduce, tokens, columns, 1);
/// let x = vec![1.0f32; tokens * 3];
/// let mut whole = vec![0.0f32; tokens * columns];
/// map.forward(&world, &x, &mut whole)?; // gathers the columns of all ranks
/// let mut gradient = vec![0.0f32; tokens * 3];
/// map.backward(&world, &whole, &mut gradient)?; // this rank's columns of the sum over the ranks
/// assert_eq!(gradient[0], world.size() as f32);
/// world.finalize()
/// # }
/// ```
///
/// A step can also run asynchronously: [`forward_request`](TensorMap::forward_request) describes it for
/// [`Scope::start`](crate::Scope::start), [`Comm::start`] and batches.
///
/// ```
/// use dsc::{Mapping, TensorMap};
///
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let map = TensorMap::new(Mapping::GatherReduce, 4, 6 * world.size(), 1);
/// let (x, mut whole) = ([1.0f32; 4 * 6], vec![0.0f32; 4 * 6 * world.size()]);
/// world.scope(|scope| {
///     let (first, second) = (map.clone().chunk(0, 2), map.clone().chunk(1, 2));
///     let work = scope.start(first.forward_request(&x, &mut whole))?;
///     let (x, whole) = work.wait()?; // the first two of the four rows of all ranks
///     scope.start(second.forward_request(x, whole))?;
///     Ok(()) // the end of the scope waits
/// })?;
/// assert_eq!(whole, vec![1.0; whole.len()]);
/// world.finalize()
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "dsc_tensor_map_forward")]
pub struct TensorMap {
    mapping: Mapping,
    outer: usize,
    dim: usize,
    inner: usize,
    parts: Option<Vec<usize>>,
    other_parts: Option<Vec<usize>>,
    chunk: Option<(usize, usize)>,
}

/// The contents of a buffer.
#[derive(Clone, Copy)]
enum Holds {
    Whole,
    Part,
    PartOfSequence,
    Sent,
    Received,
}

impl TensorMap {
    /// A mapping with equal parts. `dim` must be a multiple of the number of ranks, and so must `outer` if a sequence
    /// is divided.
    pub fn new(mapping: Mapping, outer: usize, dim: usize, inner: usize) -> Self {
        TensorMap { mapping, outer, dim, inner, parts: None, other_parts: None, chunk: None }
    }

    /// A mapping with unequal parts: rank r has `parts[r]` of the divided dimension. For [`Mapping::AllToAll`]: the
    /// sizes that this rank sends to each rank in the forward direction.
    pub fn uneven(mapping: Mapping, outer: usize, parts: &[usize], inner: usize) -> Self {
        let dim = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(*part));
        TensorMap { mapping, outer, dim, inner, parts: Some(parts.to_vec()), other_parts: None, chunk: None }
    }

    /// Sets how an uneven mapping divides the sequence, which is the first dimension. `outer` is then the product of
    /// the dimensions between it and the other divided dimension. For [`Mapping::AllToAll`]: the sizes that this rank
    /// receives from each rank in the forward direction.
    #[must_use]
    pub fn other_parts(mut self, parts: &[usize]) -> Self {
        self.other_parts = Some(parts.to_vec());
        self
    }

    /// Runs only this chunk of a step. A chunk is a range of the rows of `outer` or, if that is 1, of every rank's
    /// part, as [`split_range`] divides them. The buffers are the whole buffers, but only the chunk is read and
    /// written. It needs equal parts. It is not supported for `AllToAll`, `SequenceToHidden` and `HiddenToSequence`.
    #[must_use]
    pub fn chunk(mut self, number: usize, of: usize) -> Self {
        self.chunk = Some((number, of));
        self
    }

    /// Runs the step for activations.
    pub fn forward<S, R>(&self, comm: &Comm, send: &S, recv: &mut R) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.step(comm, true, send.span(), recv.span_mut())
    }

    /// Runs the step for gradients.
    pub fn backward<S, R>(&self, comm: &Comm, send: &S, recv: &mut R) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.step(comm, false, send.span(), recv.span_mut())
    }

    /// Describes the step for activations, which can be started later.
    pub fn forward_request<S: Data, R: DataMut<Kind = S::Kind>>(&self, send: S, recv: R) -> Request<(S, R)> {
        self.request(true, send, recv)
    }

    /// Describes the step for gradients, which can be started later.
    pub fn backward_request<S: Data, R: DataMut<Kind = S::Kind>>(&self, send: S, recv: R) -> Request<(S, R)> {
        self.request(false, send, recv)
    }

    fn request<S: Data, R: DataMut<Kind = S::Kind>>(&self, is_forward: bool, send: S, recv: R) -> Request<(S, R)> {
        pair(send, recv, Operation::TensorMap(Box::new(Step { map: self.clone(), is_forward })))
    }

    fn step(&self, comm: &Comm, is_forward: bool, from: Span, to: Span) -> Result<()> {
        self.check(comm, is_forward, from, to)?;
        let _turn = comm.turn(OP)?;
        let (dtype, stream) = (to.dtype, from.default_stream(to));
        comm.run_blocks(OP, from, to, |work| {
            // SAFETY: the buffers were checked, and are borrowed until the call ends.
            unsafe { self.launch(comm, is_forward, from.ptr, to.ptr, dtype, stream, work) }
        })
    }

    /// Checks that lists and buffers have the right sizes.
    fn check(&self, comm: &Comm, is_forward: bool, from: Span, to: Span) -> Result<()> {
        self.check_lists(comm)?;
        let (goes_in, comes_out) = self.holds(is_forward);
        self.expect(comm, "send", from, goes_in)?;
        self.expect(comm, "recv", to, comes_out)?;
        if from.dtype == to.dtype {
            return Ok(());
        }
        Err(wrong(format!("the buffers have the types {:?} and {:?}; expected the same type", from.dtype, to.dtype)))
    }

    /// Calls the library, which does not keep the lists.
    ///
    /// # Safety
    ///
    /// check() must have accepted the lists and buffers. The buffers must be valid until the operation is complete.
    #[allow(clippy::too_many_arguments)]
    unsafe fn launch(
        &self,
        comm: &Comm,
        is_forward: bool,
        from: *const c_void,
        to: *mut c_void,
        dtype: Dtype,
        stream: *mut c_void,
        work: *mut *mut sys::dsc_work_t,
    ) -> sys::dsc_result_t {
        let call = if is_forward { sys::dsc_tensor_map_forward } else { sys::dsc_tensor_map_backward };
        // SAFETY: guaranteed by the caller. The lists have one size per rank.
        unsafe { call(comm.raw(), &self.options(), from, to, dtype.number(), stream, work) }
    }

    /// Returns the C options, which point to the lists of this struct.
    fn options(&self) -> sys::dsc_tensor_map_options_t {
        let list = |parts: &Option<Vec<usize>>| parts.as_ref().map_or(ptr::null(), |parts| parts.as_ptr());
        let (chunk, chunks) = self.chunk.unwrap_or((0, 1));
        sys::dsc_tensor_map_options_t {
            struct_size: size_of::<sys::dsc_tensor_map_options_t>(),
            parts: list(&self.parts),
            other_parts: list(&self.other_parts),
            outer: self.outer,
            dim: self.dim,
            inner: self.inner,
            chunk,
            chunks,
            mapping: self.mapping.number(),
            reserved: 0,
        }
    }

    fn divides_sequence(&self) -> bool {
        matches!(self.mapping, Mapping::SequenceToHidden | Mapping::HiddenToSequence)
    }

    fn check_lists(&self, comm: &Comm) -> Result<()> {
        for (name, list) in [("parts", &self.parts), ("other_parts", &self.other_parts)] {
            if let Some(list) = list.as_ref().filter(|list| list.len() != comm.size()) {
                return Err(wrong(format!(
                    "{} has {} sizes; expected {}, one per rank",
                    name,
                    list.len(),
                    comm.size()
                )));
            }
        }
        if self.parts.is_some() && self.chunk.is_some() {
            return Err(wrong("chunk is given together with a list of parts; expected only one of them, because chunks need equal parts".to_owned()));
        }
        let takes_two = self.divides_sequence() || self.mapping == Mapping::AllToAll;
        if self.other_parts.is_some() != (takes_two && self.parts.is_some()) {
            let need = if self.other_parts.is_some() {
                "are given; expected them only for mappings with two lists of parts"
            } else {
                "are missing; expected them together with parts"
            };
            return Err(wrong(format!("other_parts {}", need)));
        }
        Ok(())
    }

    /// Returns the contents of the input and of the output.
    fn holds(&self, is_forward: bool) -> (Holds, Holds) {
        let (goes_in, comes_out) = match self.mapping {
            Mapping::Scatter | Mapping::ReduceScatter => (Holds::Whole, Holds::Part),
            Mapping::Gather | Mapping::GatherReduce => (Holds::Part, Holds::Whole),
            Mapping::AllToAll => (Holds::Sent, Holds::Received),
            Mapping::SequenceToHidden => (Holds::PartOfSequence, Holds::Part),
            Mapping::HiddenToSequence => (Holds::Part, Holds::PartOfSequence),
            _ => (Holds::Whole, Holds::Whole),
        };
        if is_forward {
            (goes_in, comes_out)
        } else {
            (comes_out, goes_in)
        }
    }

    /// Checks that the buffer has as many elements as the library uses. The library itself refuses sizes that cannot be
    /// divided.
    fn expect(&self, comm: &Comm, name: &str, buffer: Span, holds: Holds) -> Result<()> {
        let part =
            |list: &Option<Vec<usize>>, whole: usize| list.as_ref().map_or(whole / comm.size(), |l| l[comm.rank()]);
        let sum = |list: &Option<Vec<usize>>, whole: usize| {
            list.as_ref().map_or(Some(whole), |l| l.iter().try_fold(0usize, |sum, part| sum.checked_add(*part)))
        };
        let (mut rows, mut columns) = (self.outer, sum(&self.parts, self.dim));
        if self.divides_sequence() && self.parts.is_some() {
            let sequence = match holds {
                Holds::PartOfSequence => Some(part(&self.other_parts, 0)),
                _ => sum(&self.other_parts, 0),
            };
            rows = sequence
                .and_then(|s| s.checked_mul(rows))
                .ok_or_else(|| wrong("the product of the sizes is too large".to_owned()))?;
        } else if let Holds::PartOfSequence = holds {
            rows /= comm.size();
        }
        match holds {
            Holds::Part => columns = Some(part(&self.parts, self.dim)),
            Holds::Received => columns = sum(&self.other_parts, self.dim),
            _ => {}
        }
        let count = columns.and_then(|c| c.checked_mul(rows)).and_then(|c| c.checked_mul(self.inner));
        if count == Some(buffer.count) {
            return Ok(());
        }
        let wanted = count.map_or("a number that is too large for memory".to_owned(), |count| count.to_string());
        Err(wrong(format!("{} has {} elements; expected {}", name, buffer.count, wanted)))
    }
}

/// A mapping in one direction, as an operation that can be started later.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    map: TensorMap,
    is_forward: bool,
}

impl Step {
    pub(crate) fn check(&self, comm: &Comm, from: Span, to: Span) -> Result<()> {
        self.map.check(comm, self.is_forward, from, to)
    }

    /// Starts the mapping on buffers that check() has accepted.
    ///
    /// # Safety
    ///
    /// The buffers must be valid until the operation is complete.
    pub(crate) unsafe fn launch(
        &self,
        comm: &Comm,
        from: Span,
        to: Span,
        stream: *mut c_void,
        work: *mut *mut sys::dsc_work_t,
    ) -> sys::dsc_result_t {
        // SAFETY: guaranteed by the caller.
        unsafe { self.map.launch(comm, self.is_forward, from.ptr, to.ptr, to.dtype, stream, work) }
    }
}

fn wrong(text: String) -> Error {
    Error::invalid(format!("{}: {}", OP, text)).in_op(OP)
}

/// Returns part `part` of the numbers 0 to `count` - 1, divided as evenly as possible. The first `count % parts` parts
/// are longer by one.
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// assert_eq!(dsc::split_range(10, 4, 1)?, 3..6);
/// # Ok(())
/// # }
/// ```
pub fn split_range(count: usize, parts: usize, part: usize) -> Result<std::ops::Range<usize>> {
    let (mut begin, mut length) = (0, 0);
    // SAFETY: both pointers for results are valid.
    check(unsafe { sys::dsc_tensor_map_part(count, parts, part, &mut begin, &mut length) })?;
    Ok(begin..begin + length)
}
