//! User-defined reduce operations.

use std::any::Any;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;
use std::sync::{Mutex, PoisonError};

use dsc_sys as sys;

use crate::data::Element;
use crate::error::{check, Error, Result};
use crate::numbers::{ErrorCode, Op};
use crate::reduction::TypedOp;

const PANICKED: i32 = 1;
const OTHER_TYPE: i32 = 2;

/// The texts of panics in this process, each with the id of its operation.
static PANICS: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());

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

/// The target of the library's context pointer.
struct Context<F> {
    function: F,
    id: u64,
}

impl<T: Element> UserOp<T> {
    /// Makes an operation from a function. Its first argument is the result of the previous ranks, its second argument
    /// the elements of the next rank. It must write the combination of both into its first argument.
    ///
    /// The function is called for pieces of the buffers, on any rank and on any thread, several at the same time. It
    /// must compute the same bits for the same inputs everywhere. In it, calls of this crate fail with
    /// [`Reentrant`](ErrorCode::Reentrant).
    ///
    /// If it panics, the operation fails with [`Callback`](ErrorCode::Callback), and the communicator is revoked on all
    /// ranks. The panic does not continue. The error names the rank where it happened; on that rank it contains the
    /// text of the panic.
    ///
    /// `id` identifies the function: if ids differ, ranks get [`Mismatch`](ErrorCode::Mismatch). Values that the
    /// function owns are kept until the process ends, because operations with it may still run.
    pub fn new<F>(id: u64, function: F) -> Result<Self>
    where
        F: Fn(&mut [T], &[T]) + Send + Sync + 'static,
    {
        let context: *mut Context<F> = Box::into_raw(Box::new(Context { function, id }));
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
    /// ([`InvalidArg`](ErrorCode::InvalidArg)), because its number is never used again.
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
unsafe extern "C" fn call<T, F>(
    later: *const c_void,
    earlier: *mut c_void,
    count: usize,
    dtype: i32,
    context: *mut c_void,
) -> i32
where
    T: Element,
    F: Fn(&mut [T], &[T]) + Send + Sync + 'static,
{
    if dtype != T::DTYPE.number() {
        return OTHER_TYPE;
    }
    // SAFETY: the library passes the context of UserOp::new(), and only shared references to it exist.
    let Context { function, id } = unsafe { &*context.cast::<Context<F>>() };
    // SAFETY: both are aligned arrays of count elements of this type, which nothing else accesses during the call.
    let (earlier, later) = unsafe {
        (slice::from_raw_parts_mut(earlier.cast::<T>(), count), slice::from_raw_parts(later.cast::<T>(), count))
    };
    match catch_unwind(AssertUnwindSafe(|| function(earlier, later))) {
        Ok(()) => 0,
        Err(panic) => {
            note_panic(*id, text_of(&*panic));
            mem::forget(panic); // its drop might panic, and a panic must not leave this function
            PANICKED
        }
    }
}

/// Returns the text of a panic.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a text")
}

fn note_panic(id: u64, text: &str) {
    let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    panics.retain(|(known, _)| *known != id);
    panics.push((id, text.to_owned()));
}

/// Adds the text of a panic to the error on the rank where it happened. The library only knows the number that call()
/// returned.
pub(crate) fn explain(error: Error, group: &str, rank: usize) -> Error {
    let here = error.group.as_deref() == Some(group) && error.ranks.contains(&rank);
    if !here || !matches!(error.code, ErrorCode::Callback | ErrorCode::Revoked) {
        return error;
    }
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    let message = panics.iter().fold(error.message, |message, (id, text)| {
        let (returned, panicked) = (format!("returned {}", PANICKED), format!("panicked: {}", text));
        let of = |what: &str| format!("user operation {} {}", id, what);
        message.replace(&of(&returned), &of(&panicked))
    });
    Error { message, ..error }
}
