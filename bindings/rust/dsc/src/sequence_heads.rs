//! The exchange of sequence and heads before and after an attention, as in DeepSpeed-Ulysses.

use std::mem::size_of;
use std::ptr;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::data::{Data, DataMut, Span};
use crate::error::{Error, Result};

const OP: &str = "sequence_to_heads";

/// Exchanges this rank's tokens of all heads for all tokens of this rank's heads, and back.
///
/// Forward changes `[batch, sequence / n, heads, head_dim]` to `[batch, sequence, heads / n, head_dim]`; backward does
/// the reverse. Each is the gradient of the other. Use forward for queries, keys and values before the attention, and
/// backward for its result.
///
/// ```
/// use dsc::SequenceHeads;
///
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let n = world.size();
/// let heads = SequenceHeads::new(2, 3 * n, 4 * n, 8);
/// let q = vec![1.0f32; 2 * 3 * (4 * n) * 8];
/// let mut by_heads = vec![0.0f32; q.len()];
/// heads.forward(&world, &q, &mut by_heads)?; // all tokens of some heads
/// let mut back = vec![0.0f32; q.len()];
/// heads.backward(&world, &by_heads, &mut back)?;
/// assert_eq!(back, q);
/// world.finalize()
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "dsc_sequence_to_heads")]
pub struct SequenceHeads {
    sizes: [usize; 4],
    sequence_parts: Option<Vec<usize>>,
    head_parts: Option<Vec<usize>>,
}

impl SequenceHeads {
    /// An exchange of equal parts: `sequence` and `heads` must be multiples of the number of ranks.
    pub fn new(batch: usize, sequence: usize, heads: usize, head_dim: usize) -> Self {
        SequenceHeads { sizes: [batch, sequence, heads, head_dim], sequence_parts: None, head_parts: None }
    }

    /// Sets the number of tokens of each rank, the same list on all ranks. A number may be 0.
    #[must_use]
    pub fn sequence_parts(mut self, parts: &[usize]) -> Self {
        self.sequence_parts = Some(parts.to_vec());
        self
    }

    /// Sets the number of heads of each rank, the same list on all ranks. A number may be 0, for example if there are
    /// fewer heads of keys than ranks.
    #[must_use]
    pub fn head_parts(mut self, parts: &[usize]) -> Self {
        self.head_parts = Some(parts.to_vec());
        self
    }

    /// Exchanges this rank's tokens of all heads for all tokens of this rank's heads.
    pub fn forward<S, R>(&self, comm: &Comm, send: &S, recv: &mut R) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.exchange(comm, true, send.span(), recv.span_mut())
    }

    /// Exchanges all tokens of this rank's heads for this rank's tokens of all heads.
    pub fn backward<S, R>(&self, comm: &Comm, send: &S, recv: &mut R) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.exchange(comm, false, send.span(), recv.span_mut())
    }

    fn exchange(&self, comm: &Comm, is_forward: bool, from: Span, to: Span) -> Result<()> {
        for (name, list) in [("sequence_parts", &self.sequence_parts), ("head_parts", &self.head_parts)] {
            if let Some(list) = list.as_ref().filter(|list| list.len() != comm.size()) {
                let text = format!("{} has {} sizes; expected {}, one per rank", name, list.len(), comm.size());
                return Err(wrong(text));
            }
        }
        expect("send", from, self.count(comm, is_forward))?;
        expect("recv", to, self.count(comm, !is_forward))?;
        if from.dtype != to.dtype {
            return Err(wrong(format!(
                "the buffers have the types {:?} and {:?}; expected the same type",
                from.dtype, to.dtype
            )));
        }
        let _turn = comm.turn(OP)?;
        let options = self.options();
        let (dtype, stream) = (to.dtype.number(), from.default_stream(to));
        let call = if is_forward { sys::dsc_sequence_to_heads } else { sys::dsc_heads_to_sequence };
        comm.run_blocks(OP, from, to, |work| {
            // SAFETY: the buffers are borrowed until the call ends, and have the sizes that the options require. The
            // lists have one size per rank. The library checks the rest.
            unsafe { call(comm.raw(), &options, from.ptr, to.ptr, dtype, stream, work) }
        })
    }

    /// Returns the C options, which point to the lists of this struct.
    fn options(&self) -> sys::dsc_sequence_heads_options_t {
        let list = |parts: &Option<Vec<usize>>| parts.as_ref().map_or(ptr::null(), |parts| parts.as_ptr());
        let [batch, sequence, heads, head_dim] = self.sizes;
        sys::dsc_sequence_heads_options_t {
            struct_size: size_of::<sys::dsc_sequence_heads_options_t>(),
            sequence_parts: list(&self.sequence_parts),
            head_parts: list(&self.head_parts),
            batch,
            sequence,
            heads,
            head_dim,
        }
    }

    /// Returns the number of elements in a buffer of this rank's tokens, or of this rank's heads. `None`: the number is
    /// too large.
    fn count(&self, comm: &Comm, by_sequence: bool) -> Option<usize> {
        let part =
            |list: &Option<Vec<usize>>, whole: usize| list.as_ref().map_or(whole / comm.size(), |l| l[comm.rank()]);
        let [batch, mut sequence, mut heads, head_dim] = self.sizes;
        if by_sequence {
            sequence = part(&self.sequence_parts, sequence);
        } else {
            heads = part(&self.head_parts, heads);
        }
        batch.checked_mul(sequence)?.checked_mul(heads)?.checked_mul(head_dim)
    }
}

/// Checks that the buffer has as many elements as the library uses. The library itself refuses sizes that cannot be
/// divided.
fn expect(name: &str, buffer: Span, count: Option<usize>) -> Result<()> {
    if count == Some(buffer.count) {
        return Ok(());
    }
    let wanted = count.map_or("a number that is too large for memory".to_owned(), |count| count.to_string());
    Err(wrong(format!("{} has {} elements; expected {}", name, buffer.count, wanted)))
}

fn wrong(text: String) -> Error {
    Error::invalid(format!("{}: {}", OP, text)).in_op(OP)
}
