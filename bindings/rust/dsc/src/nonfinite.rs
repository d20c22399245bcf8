//! NaN and infinity among the inputs of reductions.

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::sized;
use crate::error::{check, text, Result};
use crate::numbers::NonFiniteCheck;

/// Inputs of reductions that were NaN or infinite since counting started; the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NonFiniteInputs {
    /// The number of elements that were NaN or infinite, in the inputs of all ranks.
    pub elements: u64,
    /// The number of reductions with an input that was NaN or infinite.
    pub operations: u64,
    /// The first input that was NaN or infinite; `None` if there was none.
    pub first: Option<NonFiniteInput>,
}

/// The first input that was NaN or infinite.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NonFiniteInput {
    /// Name of the operation, such as "all_reduce".
    pub operation: String,
    /// The operation's number in the communicator, from 1.
    pub sequence: u64,
    /// The lowest rank with an input that was NaN or infinite in this operation.
    pub rank: usize,
    /// The index of the first element in that rank's buffer that was NaN or infinite.
    pub index: u64,
}

impl Comm {
    /// Sets what happens from now on when an input of a reduction is NaN or infinite. Use the same value on all ranks.
    ///
    /// It also applies to groups and reducers made from now on. The default is [`NonFiniteCheck::Off`].
    pub fn set_nonfinite_check(&self, what: NonFiniteCheck) -> Result<()> {
        // SAFETY: the library checks the handle and the number.
        check(unsafe { sys::dsc_comm_set_nonfinite_check(self.raw(), what.number()) })
    }

    /// Returns which inputs of reductions were NaN or infinite; `clear` restarts the counting.
    pub fn nonfinite(&self, clear: bool) -> Result<NonFiniteInputs> {
        let mut info = sized!(sys::dsc_nonfinite_info_t);
        // SAFETY: info has the size that it says, and outlives the call.
        check(unsafe { sys::dsc_comm_nonfinite_info(self.raw(), clear.into(), &mut info) })?;
        let operation = text(&info.operation);
        let (sequence, index) = (info.sequence, info.index);
        let first = usize::try_from(info.rank).ok().map(|rank| NonFiniteInput { operation, sequence, rank, index });
        Ok(NonFiniteInputs { elements: info.elements, operations: info.operations, first })
    }
}
