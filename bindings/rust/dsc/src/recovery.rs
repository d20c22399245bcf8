//! After a failure: agreement among the surviving ranks, and a new communicator for them.

use std::ptr;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{list, natural};
use crate::error::{Error, Result};
use crate::group::GroupOptions;
use crate::numbers::ErrorCode;

impl Comm {
    /// Combines flags of all surviving ranks by bitwise AND. It also works on a communicator that has failed.
    ///
    /// Collective among the surviving ranks. All ranks that get a value get the same one, even if ranks die during the
    /// call. If a surviving rank does not call it, all ranks get [`ErrorCode::Timeout`](crate::ErrorCode::Timeout).
    pub fn agree(&self, flags: i32) -> Result<i32> {
        let mut agreed = 0;
        // SAFETY: the library checks the handle, and agreed outlives the call.
        let result = unsafe { sys::dsc_comm_agree(self.raw(), flags, &mut agreed) };
        self.check(result, "agree")?;
        Ok(agreed)
    }

    /// Makes a working communicator of the surviving ranks, in their old order.
    ///
    /// Collective among the surviving ranks. It works with or without an earlier failure. Keep the world's `Comm` for
    /// its [`finalize`](Comm::finalize), which waits for the ranks of the new communicator as long as that exists.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// world.abort()?; // has the same effect as the death of a rank
    /// let survivors = world.shrink()?;
    /// assert!(survivors.barrier().is_ok() && world.missing()?.is_empty());
    /// world.finalize()
    /// # }
    /// ```
    pub fn shrink(&self) -> Result<Comm> {
        self.shrink_with(&GroupOptions::new())
    }

    /// Does the same as [`shrink`](Comm::shrink), with options.
    pub fn shrink_with(&self, options: &GroupOptions) -> Result<Comm> {
        let mut shrunk = ptr::null_mut();
        let result = options.with_raw(|raw| {
            // SAFETY: the options and shrunk outlive the call, which keeps no pointer.
            unsafe { sys::dsc_comm_shrink(self.raw(), raw, &mut shrunk) }
        })?;
        self.check(result, "shrink")?;
        Comm::from_group(shrunk)?
            .ok_or_else(|| Error::new(ErrorCode::Internal, "the library returned neither a group nor an error".into()))
    }

    /// Returns the ranks that were missing in the latest [`agree`](Comm::agree) or [`shrink`](Comm::shrink); the same
    /// on all ranks.
    pub fn missing(&self) -> Result<Vec<usize>> {
        let ranks = list(0, 0, |ranks, capacity, n_ranks| {
            // SAFETY: the library checks the handle; ranks has capacity entries, and n_ranks outlives the call.
            unsafe { sys::dsc_comm_missing(self.raw(), ranks, capacity, n_ranks) }
        })?;
        Ok(ranks.into_iter().map(natural).collect())
    }
}
