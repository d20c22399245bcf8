//! Reduce operations that are functions of the caller's.

use std::ffi::c_void;
use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

use dsc_sys as sys;

use crate::data::Element;
use crate::error::{check, Result};
use crate::numbers::Op;

const PANICKED: i32 = 1;
const OTHER_TYPE: i32 = 2;

/// A function of the caller's as a reduce operation, for elements of one type.
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let hypot = dsc::UserOp::new(1, |earlier: &mut [f64], later: &[f64]| {
///     for (x, y) in earlier.iter_mut().zip(later) {
///         *x = x.hypot(*y);
///     }
/// })?;
/// let mut x = [3.0f64; 4];
/// world.all_reduce(&mut x, hypot.op())?;
/// assert_eq!(x, [(9.0 * world.size() as f64).sqrt(); 4]);
/// world.finalize()
/// # }
/// ```
///
/// A function that borrows is refused, for operations may run with it after this is gone:
///
/// ```compile_fail
/// let limit = 3.0f64;
/// dsc::UserOp::new(1, |earlier: &mut [f64], _: &[f64]| earlier.iter_mut().for_each(|x| *x = x.min(*(&limit))));
/// ```
#[derive(Debug)]
pub struct UserOp {
    number: sys::dsc_op_t,
}

impl UserOp {
    /// Makes it of a function that gets what the ranks before have come to, and the elements of the next rank, and leaves
    /// the combination of both in the first.
    ///
    /// It is called for pieces of the buffers, on any rank and on any thread, several at once, and must give the same
    /// bits for the same inputs everywhere. Calls into this crate fail inside
    /// ([`Reentrant`](crate::ErrorCode::Reentrant)). If it panics, or the buffers are of another type than `T`, the
    /// operation fails ([`Callback`](crate::ErrorCode::Callback)) and the communicator is revoked on all ranks; the panic
    /// goes no further.
    ///
    /// `id` says what the function does: ranks whose ids differ get [`Mismatch`](crate::ErrorCode::Mismatch). What the
    /// function owns is kept until the process ends, for operations may still run with it.
    pub fn new<T, F>(id: u64, function: F) -> Result<Self>
    where
        T: Element,
        F: Fn(&mut [T], &[T]) + Send + Sync + 'static,
    {
        let context: *mut F = Box::into_raw(Box::new(function));
        let mut number = 0;
        // SAFETY: call::<T, F> takes what context points to, which lives from now on; number outlives the call.
        let made = check(unsafe { sys::dsc_op_create_user(Some(call::<T, F>), context.cast(), id, 1, &mut number) });
        if let Err(error) = made {
            // SAFETY: the library has not taken it.
            drop(unsafe { Box::from_raw(context) });
            return Err(error);
        }
        Ok(UserOp { number })
    }

    /// For the `op` of reductions. Used after this is dropped, it is an error
    /// ([`InvalidArg`](crate::ErrorCode::InvalidArg)); its number is never used again.
    pub fn op(&self) -> Op {
        Op::Unknown(self.number)
    }
}

impl Drop for UserOp {
    fn drop(&mut self) {
        // SAFETY: the library checks the number; what runs with it goes on, and so its function is not freed.
        unsafe { sys::dsc_op_destroy(self.number) };
    }
}

/// What the library calls.
unsafe extern "C" fn call<T, F>(
    later: *const c_void,
    earlier: *mut c_void,
    count: usize,
    dtype: i32,
    f: *mut c_void,
) -> i32
where
    T: Element,
    F: Fn(&mut [T], &[T]) + Send + Sync + 'static,
{
    if dtype != T::DTYPE.number() {
        return OTHER_TYPE;
    }
    // SAFETY: the library gives back what UserOp::new() gave it, and shares it only.
    let function = unsafe { &*f.cast::<F>() };
    // SAFETY: both are aligned arrays of so many elements of this type, that nobody else touches during the call.
    let (earlier, later) = unsafe {
        (slice::from_raw_parts_mut(earlier.cast::<T>(), count), slice::from_raw_parts(later.cast::<T>(), count))
    };
    match catch_unwind(AssertUnwindSafe(|| function(earlier, later))) {
        Ok(()) => 0,
        Err(panic) => {
            mem::forget(panic); // it might panic when dropped, and nothing may leave this function
            PANICKED
        }
    }
}
