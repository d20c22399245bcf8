//! Running totals of operations.

use std::time::Duration;

use dsc_sys as sys;

use crate::convert::{list, sized};
use crate::error::{text, Result};

/// Running totals of one operation in one size class.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpStats {
    /// Name of the operation, such as "all_reduce".
    pub op: String,
    /// The size class: the smallest power of two that is at least the bytes of a call; 0 for calls without data.
    pub bytes_class: u64,
    /// The number of completed calls.
    pub count: u64,
    /// The sum of the bytes of all calls. A call counts the larger of its two buffers.
    pub bytes: u64,
    /// The total time until the other ranks had arrived.
    pub waiting: Duration,
    /// The total time from the arrival of the other ranks until completion.
    pub moving: Duration,
}

/// Reads totals from a function that takes a buffer, its capacity and a pointer for their number.
pub(crate) fn read_stats(
    read: impl FnMut(*mut sys::dsc_op_stats_t, usize, &mut usize) -> sys::dsc_result_t,
) -> Result<Vec<OpStats>> {
    Ok(list(0, sized!(sys::dsc_op_stats_t), read)?.iter().map(OpStats::from_record).collect())
}

impl OpStats {
    fn from_record(record: &sys::dsc_op_stats_t) -> Self {
        OpStats {
            op: text(&record.operation),
            bytes_class: record.bytes_class,
            count: record.count,
            bytes: record.bytes,
            waiting: Duration::from_nanos(record.waiting_ns),
            moving: Duration::from_nanos(record.moving_ns),
        }
    }
}
