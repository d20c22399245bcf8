//! Log records: by callback, or by polling.
//!
//! The library is silent unless the environment variable `DSC_LOG` (error, warn, info or debug) sends records to the
//! standard error stream, or a program asks here.

use std::ffi::{c_void, CStr};
use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use dsc_sys as sys;

use crate::error::{check, text, Result};
pub use crate::numbers::Level;

type Callback = dyn Fn(Level, &str) + Send + Sync;

/// The callback, held here and not behind a pointer in the library: a call that runs keeps its own share, so that
/// replacing it can never free what is being called.
static CALLBACK: Mutex<Option<Arc<Callback>>> = Mutex::new(None);

/// Sends records of this level and more urgent ones to a callback, in place of the one before and of the standard error
/// stream.
///
/// It runs on the library's log thread, one record after another, and must not use this crate, except for names and
/// versions. When it panics the record is lost and nothing else happens.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// # fn main() -> dsc::Result<()> {
/// let records = Arc::new(Mutex::new(Vec::new()));
/// let sink = records.clone();
/// dsc::log::set_callback(dsc::log::Level::Info, move |_, text| sink.lock().unwrap().push(text.to_owned()))?;
/// dsc::init()?.finalize()?;
/// dsc::log::remove_callback()?;
/// # Ok(())
/// # }
/// ```
pub fn set_callback(level: Level, callback: impl Fn(Level, &str) + Send + Sync + 'static) -> Result<()> {
    replace(Some(Arc::new(callback)));
    // SAFETY: the function is there for ever, and needs no context.
    let result = unsafe { sys::dsc_log_set_callback(Some(receive), ptr::null_mut(), level.number()) };
    check(result).map_err(|error| {
        replace(None);
        error
    })
}

/// Removes the callback; waits until a call of it that is running has returned.
pub fn remove_callback() -> Result<()> {
    // SAFETY: without a function nothing is called.
    let result = unsafe { sys::dsc_log_set_callback(None, ptr::null_mut(), sys::DSC_LOG_LEVEL_OFF) };
    replace(None);
    check(result)
}

/// Sets the callback; the old one is dropped outside the lock, for its drop may do anything.
fn replace(callback: Option<Arc<Callback>>) {
    let mut current = CALLBACK.lock().unwrap_or_else(PoisonError::into_inner);
    let old = mem::replace(&mut *current, callback);
    drop(current);
    drop(old);
}

/// What the library calls.
unsafe extern "C" fn receive(_context: *mut c_void, record: *const sys::dsc_log_record_t) {
    let callback = CALLBACK.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        if let Some(callback) = callback {
            // SAFETY: the library gives a record whose text ends with a zero; both are valid during the call.
            let (level, text) = unsafe { ((*record).level, CStr::from_ptr((*record).message)) };
            callback(Level::from_number(level), &text.to_string_lossy());
        }
    }));
    mem::forget(caught); // what it carries might panic when dropped, and nothing may leave this function
}

/// One log record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// How urgent it is.
    pub level: Level,
    /// One line of text.
    pub text: String,
}

/// Takes the oldest record, or `None` when there is none.
///
/// The first call starts the recording at its level; [`Level::Off`] ends it.
pub fn read(level: Level) -> Result<Option<Record>> {
    let mut room = [0; 2048]; // records are shorter
    let (mut bytes, mut record_level) = (0, 0);
    // SAFETY: room has so many bytes, and all outlive the call.
    let result =
        unsafe { sys::dsc_log_read(level.number(), room.as_mut_ptr(), room.len(), &mut bytes, &mut record_level) };
    check(result)?;
    if result == sys::DSC_DONE {
        return Ok(None);
    }
    Ok(Some(Record { level: Level::from_number(record_level), text: text(&room) }))
}
