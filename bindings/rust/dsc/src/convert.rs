//! From Rust's types to those of the C interface, and back.

use std::ffi::CString;
use std::os::raw::c_char;
use std::ptr;
use std::time::Duration;

use dsc_sys as sys;

use crate::error::{check, Error, Result};

/// Milliseconds, rounded up, so that only a zero duration becomes 0.
pub(crate) fn milliseconds(duration: Duration) -> i32 {
    let rounded_up = (duration.as_nanos() + 999_999) / 1_000_000;
    i32::try_from(rounded_up).unwrap_or(i32::MAX)
}

/// A rank or another small number.
pub(crate) fn number(name: &str, value: usize) -> Result<i32> {
    i32::try_from(value).map_err(|_| Error::invalid(format!("{} is {}; expected at most {}", name, value, i32::MAX)))
}

/// A number of the C interface that is never negative.
pub(crate) fn natural(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

pub(crate) fn c_string(name: &str, value: &str) -> Result<CString> {
    CString::new(value).map_err(|_| Error::invalid(format!("{} is {:?}; expected text without a zero", name, value)))
}

/// A text of any length, of a function that is told room, capacity and where the needed bytes go.
pub(crate) fn text(read: impl Fn(*mut c_char, usize, &mut usize) -> sys::dsc_result_t) -> Result<String> {
    let mut needed = 0;
    check(read(ptr::null_mut(), 0, &mut needed))?;
    let mut room = vec![0u8; needed];
    check(read(room.as_mut_ptr().cast(), room.len(), &mut needed))?;
    room.pop();
    Ok(String::from_utf8_lossy(&room).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_and_cut() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_millis(250)), 250);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        assert!(number("peer", usize::MAX).unwrap_err().message.starts_with("peer is 18446744073709551615; expected"));
        assert!(c_string("name", "a\0b").unwrap_err().message.contains("without a zero"));
    }
}
