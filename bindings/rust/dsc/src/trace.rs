//! Traces of the flight recorder: the latest operations of every group, and their progress.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use dsc_sys as sys;

use crate::comm::{Comm, Shared};
use crate::error::{check, Error, Result};
use crate::numbers::ErrorCode;
use crate::watch::Watch;

impl Comm {
    /// Returns this rank's trace of all groups of the communicator's world, as JSON with the field names of PyTorch's
    /// flight recorder.
    pub fn trace(&self) -> Result<String> {
        self.watch().trace()
    }

    /// Writes the trace to a file, which is replaced atomically. With `None` it is the file `dsc_trace_rank_R.json`, in
    /// the folder that `DSC_TRACE_DIR` named when the world was made.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let path = std::env::temp_dir().join(format!("trace_{}.json", std::process::id()));
    /// world.dump_trace(Some(&path))?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn dump_trace(&self, path: Option<&Path>) -> Result<()> {
        self.watch().dump_trace(path)
    }
}

impl Watch {
    /// Does the same as [`Comm::trace`], even while another thread is stuck in a call on the communicator. The error is
    /// [`ErrorCode::BadHandle`] if the communicator no longer exists.
    pub fn trace(&self) -> Result<String> {
        let comm = self.still_there()?;
        comm.handle.text(sys::dsc_trace_json)
    }

    /// Does the same as [`Comm::dump_trace`], even while another thread is stuck in a call on the communicator. The
    /// error is [`ErrorCode::BadHandle`] if the communicator no longer exists.
    pub fn dump_trace(&self, path: Option<&Path>) -> Result<()> {
        let comm = self.still_there()?;
        let path = match path {
            Some(path) => Some(
                CString::new(path.as_os_str().as_bytes())
                    .map_err(|_| Error::invalid(format!("path is {:?}; expected a path without zero bytes", path)))?,
            ),
            None => None,
        };
        let text = path.as_ref().map_or(ptr::null(), |path| path.as_ptr());
        // SAFETY: the library checks the handle. The path is NULL or a text that outlives the call.
        check(unsafe { sys::dsc_trace_dump(comm.handle.raw(), text) })
    }

    fn still_there(&self) -> Result<Arc<Shared>> {
        self.shared().ok_or_else(|| Error::new(ErrorCode::BadHandle, "the communicator has ended".to_owned()))
    }
}

/// Requests the trace files of all worlds of this process, in `DSC_TRACE_DIR`. The error is [`ErrorCode::State`] if no
/// world was made with that variable.
///
/// A thread of the library writes the files soon, even if other threads are stuck in calls. This function may be called
/// in a signal handler if it does not fail, because only errors allocate memory.
pub fn request_trace_dump() -> Result<()> {
    // SAFETY: the function has no arguments, and may be called at any time.
    match unsafe { sys::dsc_trace_dump_request() } {
        result if result >= 0 => Ok(()),
        sys::DSC_ERR_STATE => {
            let text = "no world of this process was initialized with DSC_TRACE_DIR set";
            Err(Error::new(ErrorCode::State, text.to_owned()))
        }
        other => Err(Error::new(ErrorCode::from_number(other), "called in a child made by fork()".to_owned())),
    }
}
