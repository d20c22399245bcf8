//! User-defined reduce operations.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

use dsc_sys as sys;

use crate::callback_error::{text_of, write_error};
use crate::data::Element;
use crate::error::{check, Result};
use crate::numbers::{Dtype, Op};
use crate::reduction::TypedOp;

const FAILED: i32 = 1;

/// A user-defined function as a reduce operation, for elements of type `T`.
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
/// Buffers of another element type do not compile:
///
/// ```compile_fail,E0277
/// # fn reduce(world: &dsc::Comm, first: &dsc::UserOp<f32>) -> dsc::Result<()> {
/// let mut x = [3.0f64; 4];
/// world.all_reduce(&mut x, first.op())
/// # }
/// ```
///
/// A function that borrows does not compile either, because operations may still run after the borrow ends:
///
/// ```compile_fail
/// let limit = 3.0f64;
/// dsc::UserOp::new(1, |earlier: &mut [f64], _: &[f64]| earlier.iter_mut().for_each(|x| *x = x.min(*(&limit))));
/// ```
#[derive(Debug)]
pub struct UserOp<T: Element> {
    number: sys::dsc_op_t,
    elements: PhantomData<fn(T)>,
}

impl<T: Element> UserOp<T> {
    /// Makes an operation of a function. The function gets the result of the earlier ranks and the elements of the next
    /// rank; it writes their combination into the first.
    ///
    /// It is called for pieces of the buffers, on any rank and on any thread, several at once. It must give the same
    /// bits for the same inputs everywhere. Calls into this crate fail inside ([`Reentrant`](ErrorCode::Reentrant)).
    ///
    /// If it panics, the operation fails ([`Callback`](ErrorCode::Callback)) and the communicator is revoked on all
    /// ranks. The panic does not continue. The error on every rank names the rank where it happened and has the text of
    /// the panic.
    ///
    /// `id` says what the function does: ranks whose ids differ get [`Mismatch`](ErrorCode::Mismatch). What the
    /// function owns is kept until the process ends, because operations may still run with it.
    pub fn new<F>(id: u64, function: F) -> Result<Self>
    where
        F: Fn(&mut [T], &[T]) + Send + Sync + 'static,
    {
        let context: *mut F = Box::into_raw(Box::new(function));
        let mut number = 0;
        // SAFETY: call::<T, F> takes what context points to, which stays valid from now on; number outlives the call.
        let made = check(unsafe { sys::dsc_op_create_user(Some(call::<T, F>), context.cast(), id, 1, &mut number) });
        if let Err(error) = made {
            // SAFETY: the library has not taken it.
            drop(unsafe { Box::from_raw(context) });
            return Err(error);
        }
        Ok(UserOp { number, elements: PhantomData })
    }

    /// For the `op` of reductions. Using it after this `UserOp` is dropped is an error
    /// ([`InvalidArg`](ErrorCode::InvalidArg)); its number is never used again.
    pub fn op(&self) -> TypedOp<T> {
        TypedOp::new(Op::Unknown(self.number))
    }
}

impl<T: Element> Drop for UserOp<T> {
    fn drop(&mut self) {
        // SAFETY: the library checks the number. Operations that use it continue, so its function is not freed.
        unsafe { sys::dsc_op_destroy(self.number) };
    }
}

/// What the library calls.
unsafe extern "C" fn call<T, F>(context: *mut c_void, call: *const sys::dsc_op_call_t) -> i32
where
    T: Element,
    F: Fn(&mut [T], &[T]) + Send + Sync + 'static,
{
    // SAFETY: the library gives a call that is valid until this function returns, and back what UserOp::new() gave it.
    let (function, call) = unsafe { (&*context.cast::<F>(), &*call) };
    let words = match catch_unwind(AssertUnwindSafe(|| combine(function, call))) {
        Ok(Ok(())) => return 0,
        Ok(Err(words)) => words,
        Err(panic) => {
            let words = format!("panicked: {}", text_of(&*panic));
            mem::forget(panic); // it might panic when dropped, and a panic may not leave this function
            words
        }
    };
    // SAFETY: the library gives error_capacity bytes at error for this call.
    unsafe { write_error(call.error, call.error_capacity, &words) };
    FAILED
}

fn combine<T, F>(function: &F, call: &sys::dsc_op_call_t) -> std::result::Result<(), String>
where
    T: Element,
    F: Fn(&mut [T], &[T]),
{
    if call.dtype != T::DTYPE.number() {
        return Err(format!("called for elements of {:?}, expected {:?}", Dtype::from_number(call.dtype), T::DTYPE));
    }
    // SAFETY: both are aligned arrays of that many elements of this type, which nobody else touches during the call.
    let (earlier, later) = unsafe {
        (
            slice::from_raw_parts_mut(call.result.cast::<T>(), call.count),
            slice::from_raw_parts(call.input.cast::<T>(), call.count),
        )
    };
    function(earlier, later);
    Ok(())
}
