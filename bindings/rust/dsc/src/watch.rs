//! Calls that any thread may make on a communicator, even while another thread is in an operation on it.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dsc_sys as sys;

use crate::comm::Shared;
use crate::convert::{milliseconds, sized};
use crate::error::{check, Error, Result};

/// A reference to a communicator for threads that do not communicate; from [`Comm::watch`](crate::Comm::watch).
///
/// It does not keep the communicator alive. After the communicator has ended, calls have no effect.
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let watch = world.watch();
/// std::thread::spawn(move || watch.abort()).join().unwrap()?; // for example in the thread of a signal handler
/// let error = world.barrier().unwrap_err();
/// assert_eq!(error.code, dsc::ErrorCode::Revoked);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Watch {
    comm: Weak<Shared>,
}

impl Watch {
    pub(crate) fn new(comm: Weak<Shared>) -> Self {
        Watch { comm }
    }

    /// The communicator, if it still exists.
    pub(crate) fn shared(&self) -> Option<Arc<Shared>> {
        self.comm.upgrade()
    }

    /// Revokes the communicator on all ranks: pending and later operations fail with
    /// [`ErrorCode::Revoked`](crate::ErrorCode::Revoked).
    pub fn abort(&self) -> Result<()> {
        match self.comm.upgrade() {
            // SAFETY: the library checks the handle. Any thread may call this function at any time.
            Some(comm) => check(unsafe { sys::dsc_comm_abort(comm.handle.raw()) }),
            None => Ok(()),
        }
    }

    /// Sets the deadline of operations started from now on. Use the same value on all ranks.
    pub fn set_timeout(&self, timeout: Duration) -> Result<()> {
        match self.comm.upgrade() {
            // SAFETY: as in abort().
            Some(comm) => check(unsafe { sys::dsc_comm_set_timeout(comm.handle.raw(), milliseconds(timeout)) }),
            None => Ok(()),
        }
    }

    /// Advances queued operations of the communicator's world on this thread, as the library's progress thread does. It
    /// returns when an operation completes, when no operation is left, or on a time-out; with a timeout of zero it does
    /// not wait. `true` means that no operation is left. It is for programs with an event loop; see
    /// [`InitOptions::progress_thread`].
    ///
    /// [`InitOptions::progress_thread`]: crate::InitOptions::progress_thread
    pub fn progress(&self, timeout: Duration) -> Result<bool> {
        let comm = match self.comm.upgrade() {
            Some(comm) => comm,
            None => return Ok(true),
        };
        // SAFETY: as in abort().
        let result = unsafe { sys::dsc_comm_progress(comm.handle.raw(), milliseconds(timeout)) };
        check(result)?;
        Ok(result == sys::DSC_OK)
    }

    /// The first failure of the communicator, or a stalled rank for which an operation is waiting.
    pub fn failure(&self) -> Result<Option<Error>> {
        let comm = match self.comm.upgrade() {
            Some(comm) => comm,
            None => return Ok(None),
        };
        let mut info = sized!(sys::dsc_error_info_t);
        // SAFETY: as in abort(). info has the size that it says, and outlives the call.
        check(unsafe { sys::dsc_comm_error_info(comm.handle.raw(), &mut info) })?;
        let failed = info.code < 0;
        Ok(failed.then(|| Error::from_info(&info).in_group(&comm.name)))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.comm.upgrade() {
            Some(comm) => write!(out, "Watch({:?})", comm.name),
            None => out.write_str("Watch(of a communicator that has ended)"),
        }
    }
}
