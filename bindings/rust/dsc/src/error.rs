//! Errors of failed calls.

use std::ffi::CStr;
use std::fmt;
use std::num::NonZeroU64;
use std::os::raw::c_char;

use dsc_sys as sys;

use crate::convert::sized;
use crate::numbers::ErrorCode;
use crate::words::in_rust;

/// The result of a call into libdsc.
pub type Result<T> = std::result::Result<T, Error>;

/// The failure of a call.
///
/// ```
/// let error = dsc::shard_indices(10, 0, 0, None, false).unwrap_err();
/// assert_eq!(error.code, dsc::ErrorCode::InvalidArg);
/// println!("{error}"); // DSC_ERR_INVALID_ARG: shard_indices: ...
/// ```
///
/// `{:?}` prints the same text, because a `main` that returns an error and a failed `unwrap` print that. `{:#?}` prints
/// all fields.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// The kind of failure.
    pub code: ErrorCode,
    /// What happened, what was expected and what the call got.
    pub message: String,
    /// The first rank at fault, numbered as in the group; `None` if unknown.
    pub rank: Option<usize>,
    /// All ranks at fault. At most 64 are listed.
    pub ranks: Box<[usize]>,
    /// The name of the communicator that failed; `rank` and `ranks` are its ranks. Reducers, sharded parameters and
    /// similar objects have their own groups, such as "reducer".
    pub group: Option<Box<str>>,
    /// Name of the operation, such as "all_reduce".
    pub op: Option<Box<str>>,
    /// The number of the operation in that communicator, from 1.
    pub sequence: Option<u64>,
    /// index() + 1. The niche at 0 keeps the struct small enough to be returned by value.
    pub(crate) element: Option<NonZeroU64>,
}

impl Error {
    /// With [`ErrorCode::NonFinite`]: the index of the first element that is not finite, in that rank's buffer or in
    /// the gradient that the message names.
    pub fn index(&self) -> Option<u64> {
        self.element.map(|element| element.get() - 1)
    }

    pub(crate) fn new(code: ErrorCode, message: String) -> Self {
        Error { code, message, rank: None, ranks: Box::default(), group: None, op: None, sequence: None, element: None }
    }

    /// Makes the error for a wrong argument that this crate itself has found.
    pub(crate) fn invalid(message: String) -> Self {
        Error::new(ErrorCode::InvalidArg, message)
    }

    /// Makes the error for the failure of this thread's latest call.
    pub(crate) fn last(result: sys::dsc_result_t) -> Self {
        // SAFETY: the text is never NULL and stays valid until this thread's next failing call.
        let message = unsafe { CStr::from_ptr(sys::dsc_last_error_message()) };
        let code = ErrorCode::from_number(result);
        let message = in_rust(code, message.to_string_lossy().into_owned());
        let mut info = sized!(sys::dsc_error_info_t);
        // SAFETY: info has the size that it says, and outlives the call.
        let known = unsafe { sys::dsc_last_error_info(&mut info) } == sys::DSC_OK && info.code == result;
        if !known {
            return Error::new(code, message);
        }
        Error { message, op: None, ..Error::from_info(&info) } // the caller knows the operation
    }

    pub(crate) fn from_info(info: &sys::dsc_error_info_t) -> Self {
        let known = info.n_ranks.min(info.ranks.len());
        Error {
            code: ErrorCode::from_number(info.code),
            message: text(&info.text),
            rank: usize::try_from(info.rank).ok(),
            ranks: info.ranks[..known].iter().filter_map(|rank| usize::try_from(*rank).ok()).collect(),
            group: Some(text(&info.group)).filter(|group| !group.is_empty()).map(String::into_boxed_str),
            op: Some(text(&info.operation)).filter(|op| !op.is_empty()).map(String::into_boxed_str),
            sequence: Some(info.sequence).filter(|sequence| *sequence > 0),
            element: NonZeroU64::new(info.index + 1).filter(|_| info.code == sys::DSC_ERR_NONFINITE),
        }
    }

    /// Adds the name of the communicator, unless the failure is known to belong to another group.
    pub(crate) fn in_group(mut self, name: &str) -> Self {
        self.group = self.group.or_else(|| Some(name.into()));
        self
    }

    pub(crate) fn in_op(mut self, name: &str) -> Self {
        self.op = self.op.or_else(|| Some(name.into()));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.code, self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !out.alternate() {
            return fmt::Display::fmt(self, out);
        }
        out.debug_struct("Error")
            .field("code", &self.code)
            .field("message", &self.message)
            .field("rank", &self.rank)
            .field("ranks", &self.ranks)
            .field("group", &self.group)
            .field("op", &self.op)
            .field("sequence", &self.sequence)
            .field("index", &self.index())
            .finish()
    }
}

impl std::error::Error for Error {}

impl fmt::Display for ErrorCode {
    /// Writes the name in the C interface, such as "DSC_ERR_TIMEOUT". An unknown code is written with its number.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ErrorCode::Unknown(number) = self {
            return write!(out, "DSC_UNKNOWN_RESULT({})", number);
        }
        // SAFETY: any number is a valid argument; the result is a static string.
        let name = unsafe { CStr::from_ptr(sys::dsc_result_name(self.number())) };
        out.write_str(&name.to_string_lossy())
    }
}

/// Converts a C result to a Rust result. Positive results are states and count as success.
pub(crate) fn check(result: sys::dsc_result_t) -> Result<()> {
    if result < 0 {
        return Err(Error::last(result));
    }
    Ok(())
}

/// Reads the text in a fixed-size array, up to its terminating zero.
pub(crate) fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_library_has_a_name_here() {
        for number in sys::DSC_ERR_INTERNAL..0 {
            let code = ErrorCode::from_number(number);
            assert_eq!(code.number(), number);
            assert!(!matches!(code, ErrorCode::Unknown(_)), "{} is missing", code);
            assert!(code.to_string().starts_with("DSC_ERR_"));
        }
    }

    #[test]
    fn unknown_numbers_are_kept() {
        let code = ErrorCode::from_number(-1000);
        assert_eq!(code, ErrorCode::Unknown(-1000));
        assert_eq!(code.number(), -1000);
        assert_eq!(code.to_string(), "DSC_UNKNOWN_RESULT(-1000)");
    }

    #[test]
    fn debug_reads_like_display() {
        let error = Error::invalid("root is 9; expected 0 to 3".into()).in_op("broadcast");
        assert_eq!(format!("{:?}", error), "DSC_ERR_INVALID_ARG: root is 9; expected 0 to 3");
        let fields = format!("{:#?}", error);
        assert!(fields.starts_with("Error {") && fields.contains("code: InvalidArg"), "{}", fields);
        assert!(fields.contains("\"broadcast\"") && fields.contains("index: None"), "{}", fields);
    }

    #[test]
    fn info_becomes_fields() {
        let mut info = sized!(sys::dsc_error_info_t);
        info.code = sys::DSC_ERR_PEER_DEAD;
        info.rank = 2;
        info.n_ranks = 2;
        info.ranks[0] = 2;
        info.ranks[1] = 5;
        info.sequence = 7;
        info.operation[0] = b'x' as c_char;
        let error = Error::from_info(&info).in_op("other").in_group("g");
        assert_eq!((error.rank, &*error.ranks), (Some(2), &[2, 5][..]));
        assert_eq!((error.sequence, error.op.as_deref(), error.group.as_deref()), (Some(7), Some("x"), Some("g")));
        info.group[0] = b'r' as c_char;
        assert_eq!(Error::from_info(&info).in_group("g").group.as_deref(), Some("r"));
        assert_eq!(Error::invalid("no".into()).to_string(), "DSC_ERR_INVALID_ARG: no");
    }
}
