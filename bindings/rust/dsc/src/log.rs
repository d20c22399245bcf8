//! Log records, by callback or by polling.
//!
//! The library logs nothing unless the environment variable `DSC_LOG` (error, warn, info or debug) sends records to
//! standard error, or the program requests records here.

use std::ffi::{c_void, CStr};
use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use dsc_sys as sys;

use crate::error::{check, text, Result};
pub use crate::numbers::Level;

type Callback = dyn Fn(Level, &str) + Send + Sync;

/// The callback. It is kept here and not behind a pointer in the library, because each call holds a reference. So
/// replacing the callback never frees a callback that is running.
static CALLBACK: Mutex<Option<Arc<Callback>>> = Mutex::new(None);

/// Sends records of this level, and more urgent ones, to a callback. It replaces an earlier callback and the output to
/// standard error.
///
/// The callback runs on the library's log thread, one record after another. It must not use this crate, except for
/// names and versions. If it panics, only that record is lost.
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
    // SAFETY: the function is static and needs no context.
    let result = unsafe { sys::dsc_log_set_callback(Some(receive), ptr::null_mut(), level.number()) };
    check(result).map_err(|error| {
        replace(None);
        error
    })
}

/// Removes the callback. Waits until a running call of it has returned.
pub fn remove_callback() -> Result<()> {
    // SAFETY: with NULL the library calls no function.
    let result = unsafe { sys::dsc_log_set_callback(None, ptr::null_mut(), sys::DSC_LOG_LEVEL_OFF) };
    replace(None);
    check(result)
}

/// Sets the callback. The old one is dropped after the lock is released, because its drop runs code of the program.
fn replace(callback: Option<Arc<Callback>>) {
    let mut current = CALLBACK.lock().unwrap_or_else(PoisonError::into_inner);
    let old = mem::replace(&mut *current, callback);
    drop(current);
    drop(old);
}

/// The function that the library calls.
unsafe extern "C" fn receive(_context: *mut c_void, record: *const sys::dsc_log_record_t) {
    let callback = CALLBACK.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        if let Some(callback) = callback {
            // SAFETY: the record and its zero-terminated text are valid during the call.
            let (level, text) = unsafe { ((*record).level, CStr::from_ptr((*record).message)) };
            callback(Level::from_number(level), &text.to_string_lossy());
        }
    }));
    mem::forget(caught); // its drop might panic, and a panic must not leave this function
}

/// One log record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The level of the record.
    pub level: Level,
    /// One line of text.
    pub text: String,
}

/// Removes and returns the oldest record, or `None` if there is no record.
///
/// The first call starts the recording at its level; [`Level::Off`] ends it.
pub fn read(level: Level) -> Result<Option<Record>> {
    let mut room = [0; 2048]; // records are shorter
    let (mut bytes, mut record_level) = (0, 0);
    // SAFETY: room has the given size, and all pointers outlive the call.
    let result =
        unsafe { sys::dsc_log_read(level.number(), room.as_mut_ptr(), room.len(), &mut bytes, &mut record_level) };
    check(result)?;
    if result == sys::DSC_DONE {
        return Ok(None);
    }
    Ok(Some(Record { level: Level::from_number(record_level), text: text(&room) }))
}
