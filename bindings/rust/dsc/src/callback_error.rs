//! Why a callback failed, as the errors of all ranks say it.

use std::any::Any;
use std::os::raw::c_char;
use std::ptr;

/// The text of a panic.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a text")
}

/// Writes the text, ended by a zero, to the memory that a callback's struct has for it. What does not fit is cut.
///
/// # Safety
///
/// `error` must have `capacity` bytes that nobody else uses during the call.
pub(crate) unsafe fn write_error(error: *mut c_char, capacity: usize, words: &str) {
    if error.is_null() || capacity == 0 {
        return;
    }
    let end = (0..=words.len().min(capacity - 1)).rev().find(|end| words.is_char_boundary(*end)).unwrap_or(0);
    // SAFETY: end + 1 bytes are at most capacity.
    unsafe {
        ptr::copy_nonoverlapping(words.as_ptr(), error.cast::<u8>(), end);
        *error.add(end) = 0;
    }
}
