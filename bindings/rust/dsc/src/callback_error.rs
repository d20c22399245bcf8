//! Reports the error of a Rust callback to the library, which adds it to the errors of all ranks.

use std::any::Any;
use std::os::raw::c_char;
use std::ptr;

/// Returns the text of a panic.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a text")
}

/// Writes a zero-terminated text to the error field of a callback's struct, on one line. A text that is too long is cut.
///
/// # Safety
///
/// `error` must be NULL or have `capacity` bytes that nothing else uses during the call.
pub(crate) unsafe fn write_error(error: *mut c_char, capacity: usize, words: &str) {
    if error.is_null() || capacity == 0 {
        return;
    }
    let words = words.replace(|c: char| c.is_control(), " ");
    let end = (0..=words.len().min(capacity - 1)).rev().find(|end| words.is_char_boundary(*end)).unwrap_or(0);
    // SAFETY: at most capacity bytes are written, because end is less than capacity.
    unsafe {
        ptr::copy_nonoverlapping(words.as_ptr(), error.cast::<u8>(), end);
        *error.add(end) = 0;
    }
}
