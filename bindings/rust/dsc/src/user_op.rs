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
    /// Makes an operation from a function. Its first argument is the result of the previous ranks, its second argument
    /// the elements of the next rank. It must write the combination of both into its first argument.
    ///
    /// The function is called for pieces of the buffers, on any rank and on any thread, several at the same time. It
    /// must compute the same bits for the same inputs everywhere. In it, calls of this crate fail with
    /// [`Reentrant`](crate::ErrorCode::Reentrant).
    ///
    /// If it panics, the operation fails with [`Callback`](crate::ErrorCode::Callback), and the communicator is revoked on all
    /// ranks. The panic does not continue. The error on every rank names the rank where it happened, and contains the
    /// text of the panic.
    ///
    /// `id` identifies the function: if ids differ, ranks get [`Mismatch`](crate::ErrorCode::Mismatch). Values that the
    /// function owns are kept until the process ends, because operations with it may still run.
    pub fn new<F>(id: u64, function: F) -> Result<Self>
    where
        F: Fn(&mut [T], &[T]) + Send + Sync + 'static,
    {
        let context: *mut F = Box::into_raw(Box::new(function));
        let mut number = 0;
        // SAFETY: call::<T, F> expects this context, which stays valid from now on. number outlives the call.
        let made = check(unsafe { sys::dsc_op_create_user(Some(call::<T, F>), context.cast(), id, 1, &mut number) });
        if let Err(error) = made {
            // SAFETY: the call has failed, so the library does not own the context.
            drop(unsafe { Box::from_raw(context) });
            return Err(error);
        }
        Ok(UserOp { number, elements: PhantomData })
    }

    /// Returns the value for the `op` of reductions. Using it after this `UserOp` was dropped is an error
    /// ([`InvalidArg`](crate::ErrorCode::InvalidArg)), because its number is never used again.
    pub fn op(&self) -> TypedOp<T> {
        TypedOp::new(Op::Unknown(self.number))
    }
}

impl<T: Element> Drop for UserOp<T> {
    fn drop(&mut self) {
        // SAFETY: the library checks the number. Operations that use it continue, so the function is not freed.
        unsafe { sys::dsc_op_destroy(self.number) };
    }
}

/// The function that the library calls.
unsafe extern "C" fn call<T, F>(context: *mut c_void, call: *const sys::dsc_op_call_t) -> i32
where
    T: Element,
    F: Fn(&mut [T], &[T]) + Send + Sync + 'static,
{
    // SAFETY: the context is that of UserOp::new(), and only shared references to it exist. The library passes a call
    // that is valid until this function returns.
    let (function, call) = unsafe { (&*context.cast::<F>(), &*call) };
    let words = match catch_unwind(AssertUnwindSafe(|| combine(function, call))) {
        Ok(Ok(())) => return 0,
        Ok(Err(words)) => words,
        Err(panic) => {
            let words = format!("panicked: {}", text_of(&*panic));
            mem::forget(panic); // its drop might panic, and a panic must not leave this function
            words
        }
    };
    // SAFETY: error has error_capacity bytes during this call.
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
    // SAFETY: both are aligned arrays of count elements of this type, which nothing else accesses during the call.
    let (earlier, later) = unsafe {
        (
            slice::from_raw_parts_mut(call.result.cast::<T>(), call.count),
            slice::from_raw_parts(call.input.cast::<T>(), call.count),
        )
    };
    function(earlier, later);
    Ok(())
}
