//! From Rust's types to those of the C interface.

use std::ffi::CString;
use std::time::Duration;

use crate::error::{Error, Result};

/// Milliseconds, rounded up, so that only a zero duration becomes 0.
pub(crate) fn milliseconds(duration: Duration) -> i32 {
    let rounded_up = (duration.as_nanos() + 999_999) / 1_000_000;
    i32::try_from(rounded_up).unwrap_or(i32::MAX)
}

/// A rank or another small number.
pub(crate) fn number(name: &str, value: usize) -> Result<i32> {
    i32::try_from(value).map_err(|_| Error::invalid(format!("{} is {}; expected at most {}", name, value, i32::MAX)))
}

pub(crate) fn c_string(name: &str, value: &str) -> Result<CString> {
    CString::new(value).map_err(|_| Error::invalid(format!("{} is {:?}; expected text without a zero", name, value)))
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
