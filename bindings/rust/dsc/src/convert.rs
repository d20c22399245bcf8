//! Conversions between Rust's types and those of the C interface.

use std::ffi::CString;
use std::mem::{size_of, MaybeUninit};
use std::os::raw::c_char;
use std::time::Duration;

use dsc_sys as sys;

use crate::error::{check, Error, Result};

/// Converts to milliseconds, rounded up, so that only a zero duration becomes 0.
pub(crate) fn milliseconds(duration: Duration) -> i32 {
    let rounded_up = (duration.as_nanos() + 999_999) / 1_000_000;
    i32::try_from(rounded_up).unwrap_or(i32::MAX)
}

/// Converts a rank, or another small number, for the C interface.
pub(crate) fn number(name: &str, value: usize) -> Result<i32> {
    i32::try_from(value).map_err(|_| Error::invalid(format!("{} is {}; expected at most {}", name, value, i32::MAX)))
}

/// Converts a C number that is never negative.
pub(crate) fn natural(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

pub(crate) fn c_string(name: &str, value: &str) -> Result<CString> {
    CString::new(value)
        .map_err(|_| Error::invalid(format!("{} is {:?}; expected text without zero bytes", name, value)))
}

/// Reads a text of any length, from a function that takes a buffer, its capacity and a pointer for the needed bytes.
pub(crate) fn text(mut read: impl FnMut(*mut c_char, usize, &mut usize) -> sys::dsc_result_t) -> Result<String> {
    let mut text = list(256, 0u8, |room, capacity, bytes| read(room.cast(), capacity, bytes))?;
    text.pop(); // the terminating zero
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Reads a list of any length, from a function that takes a buffer, its capacity and a pointer for the number of
/// entries. In the first call the buffer has `first` entries.
pub(crate) fn list<T: Clone>(
    first: usize,
    empty: T,
    mut read: impl FnMut(*mut T, usize, &mut usize) -> sys::dsc_result_t,
) -> Result<Vec<T>> {
    let (mut room, mut n) = (vec![empty.clone(); first], 0);
    loop {
        check(read(room.as_mut_ptr(), room.len(), &mut n))?;
        if n <= room.len() {
            room.truncate(n);
            return Ok(room);
        }
        // more than needed, because the list may have grown again at the next call
        room.resize(n + n / 8, empty.clone());
    }
}

/// Returns a struct of options with the library's defaults, from a function that takes its address and size.
pub(crate) fn defaults<T>(init: impl FnOnce(*mut T, usize) -> sys::dsc_result_t) -> Result<T> {
    let mut options = MaybeUninit::uninit();
    check(init(options.as_mut_ptr(), size_of::<T>()))?;
    // SAFETY: the function has succeeded, so it has filled the whole struct.
    Ok(unsafe { options.assume_init() })
}

/// Makes a C struct that the library will fill. All fields are 0, except for the size of the struct.
macro_rules! sized {
    ($kind:ty) => {{
        // SAFETY: the struct contains only numbers and texts, for which zeros are valid.
        let mut raw: $kind = unsafe { std::mem::zeroed() };
        raw.struct_size = std::mem::size_of::<$kind>();
        raw
    }};
}
pub(crate) use sized;

/// Converts settings of backends to C structs. Also returns the texts that these point to.
pub(crate) fn raw_settings(settings: &[(String, String)]) -> Result<(Vec<[CString; 2]>, Vec<sys::dsc_setting_t>)> {
    let pair =
        |(name, value): &(String, String)| Ok([c_string("the name of a setting", name)?, c_string(name, value)?]);
    let texts = settings.iter().map(pair).collect::<Result<Vec<_>>>()?;
    let raw = texts.iter().map(|[name, value]| sys::dsc_setting_t { name: name.as_ptr(), value: value.as_ptr() });
    let raw = raw.collect();
    Ok((texts, raw))
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
        assert!(c_string("name", "a\0b").unwrap_err().message.contains("without zero bytes"));
    }
}
