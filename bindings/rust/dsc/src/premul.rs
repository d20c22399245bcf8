//! Reduce operations that scale their inputs.

use dsc_sys as sys;

use crate::error::{check, Result};
use crate::numbers::Op;

/// An operation that multiplies every input by a number when it is read, and sums the products. For floating-point
/// types.
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let half = dsc::PremulSum::new(0.5)?;
/// let mut x = [2.0f32, 4.0];
/// world.all_reduce(&mut x, half.op())?;
/// assert_eq!(x, [1.0, 2.0].map(|x| x * world.size() as f32));
/// world.finalize()
/// # }
/// ```
#[derive(Debug)]
pub struct PremulSum {
    number: sys::dsc_op_t,
}

impl PremulSum {
    /// Makes an operation with a finite scale, which must be the same on all ranks.
    pub fn new(scale: f64) -> Result<Self> {
        let mut number = 0;
        // SAFETY: number outlives the call.
        check(unsafe { sys::dsc_op_create_premul(scale, &mut number) })?;
        Ok(PremulSum { number })
    }

    /// Returns the value for the `op` of reductions. Using it after this `PremulSum` was dropped is an error
    /// ([`InvalidArg`](crate::ErrorCode::InvalidArg)), because its number is never used again.
    pub fn op(&self) -> Op {
        Op::Unknown(self.number)
    }
}

impl Drop for PremulSum {
    fn drop(&mut self) {
        // SAFETY: the library checks the number. Operations that use it continue.
        unsafe { sys::dsc_op_destroy(self.number) };
    }
}
