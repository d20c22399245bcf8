//! Version and features of the loaded library.

use dsc_sys as sys;

use crate::convert::c_string;
use crate::error::{check, Result};

/// Returns the major, minor and patch version of the loaded library.
///
/// ```
/// assert_eq!(dsc::version().0, 0);
/// ```
pub fn version() -> (i32, i32, i32) {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: all pointers outlive the call, which cannot fail.
    unsafe { sys::dsc_version(&mut major, &mut minor, &mut patch) };
    (major, minor, patch)
}

/// Whether the loaded library offers a feature: "host", "nccl", "cuda", "pmix", "gloo" or "pipeline".
///
/// ```
/// assert!(dsc::feature("host")?);
/// # Ok::<(), dsc::Error>(())
/// ```
pub fn feature(name: &str) -> Result<bool> {
    let name = c_string("name", name)?;
    let mut available = 0;
    // SAFETY: the name ends with a zero, and available outlives the call.
    check(unsafe { sys::dsc_feature(name.as_ptr(), &mut available) })?;
    Ok(available != 0)
}
