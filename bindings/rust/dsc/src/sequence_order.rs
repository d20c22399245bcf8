//! Planning for causal attention: the tokens that a rank holds, and the part of the attention that it computes.

use std::mem::size_of;
use std::ops::Range;

use dsc_sys as sys;

use crate::convert::number;
use crate::error::{check, Result};

/// How ranks divide a sequence. With a causal mask, the zig-zag order gives all ranks the same work.
///
/// ```
/// use dsc::SequenceOrder;
///
/// # fn main() -> dsc::Result<()> {
/// assert_eq!(SequenceOrder::Zigzag.ranges(12, 3, 1)?, [2..4, 8..10]);
/// let work = SequenceOrder::Zigzag.causal_work(12, 3, 1, 2)?; // rank 1 with the keys of rank 2
/// assert_eq!((work.queries, work.keys, work.is_diagonal), (2..4, 0..4, false));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceOrder {
    /// Rank r of n holds part r of n parts.
    Contiguous,
    /// Rank r of n holds chunks r and 2 n - 1 - r of 2 n chunks, one after the other.
    Zigzag,
}

/// A part of a causal attention: which queries of a rank see which keys of a block. Queries are positions among the
/// tokens of the rank, and keys are positions among the tokens of the block's rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CausalWork {
    /// This rank's queries that see any of the keys; may be empty.
    pub queries: Range<usize>,
    /// The keys that these queries see.
    pub keys: Range<usize>,
    /// If true, query i sees the keys up to i. If false, all of these queries see all of these keys.
    pub is_diagonal: bool,
}

impl SequenceOrder {
    fn number(self) -> sys::dsc_sequence_order_t {
        match self {
            SequenceOrder::Contiguous => sys::DSC_SEQUENCE_ORDER_CONTIGUOUS,
            SequenceOrder::Zigzag => sys::DSC_SEQUENCE_ORDER_ZIGZAG,
        }
    }

    /// Returns the two ranges of a sequence that a rank holds, in the order in which it holds them. The second range
    /// may be empty.
    #[doc(alias = "dsc_sequence_ranges")]
    pub fn ranges(self, count: usize, ranks: usize, rank: usize) -> Result<[Range<usize>; 2]> {
        let (mut begins, mut lengths) = ([0; 2], [0; 2]);
        let (ranks, rank) = (number("ranks", ranks)?, number("rank", rank)?);
        // SAFETY: both outputs have two entries.
        check(unsafe {
            sys::dsc_sequence_ranges(self.number(), count, ranks, rank, begins.as_mut_ptr(), lengths.as_mut_ptr())
        })?;
        Ok([begins[0]..begins[0] + lengths[0], begins[1]..begins[1] + lengths[1]])
    }

    /// Returns the part of a causal attention that a rank computes with the keys of rank `source`.
    #[doc(alias = "dsc_sequence_causal_range")]
    pub fn causal_work(self, count: usize, ranks: usize, rank: usize, source: usize) -> Result<CausalWork> {
        let mut work = sys::dsc_sequence_causal_range_t {
            struct_size: size_of::<sys::dsc_sequence_causal_range_t>(),
            query_begin: 0,
            query_count: 0,
            key_begin: 0,
            key_count: 0,
            is_diagonal: 0,
            reserved: 0,
        };
        let (ranks, rank, source) = (number("ranks", ranks)?, number("rank", rank)?, number("source", source)?);
        // SAFETY: the output outlives the call.
        check(unsafe { sys::dsc_sequence_causal_range(self.number(), count, ranks, rank, source, &mut work) })?;
        Ok(CausalWork {
            queries: work.query_begin..work.query_begin + work.query_count,
            keys: work.key_begin..work.key_begin + work.key_count,
            is_diagonal: work.is_diagonal != 0,
        })
    }
}
