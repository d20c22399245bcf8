//! The handles of the C interface, and which of them may go to other threads.
//!
//! A handle is an id: passing it between threads is harmless in itself. What the headers allow from any thread is
//! offered through shared references of types that are `Sync`; what they allow to one thread at a time is offered by
//! [`Comm`](crate::Comm), where the library itself refuses a second thread, or takes `&mut self`. A test compares this
//! with api.json.

use std::os::raw::c_char;
use std::ptr::{self, NonNull};

use dsc_sys as sys;

use crate::convert::text;
use crate::error::{check, Error, Result};
use crate::numbers::ErrorCode;

/// A communicator; destroyed when dropped.
pub(crate) struct CommHandle(pub(crate) NonNull<sys::dsc_comm_t>);

/// A work object; destroyed when dropped.
pub(crate) struct WorkHandle(pub(crate) NonNull<sys::dsc_work_t>);

/// A reducer; destroyed when dropped.
pub(crate) struct ReducerHandle(pub(crate) NonNull<sys::dsc_bucket_reducer_t>);

/// A join; destroyed when dropped.
pub(crate) struct JoinHandle(pub(crate) NonNull<sys::dsc_join_t>);

/// A pipeline schedule; destroyed when dropped.
pub(crate) struct ScheduleHandle(pub(crate) NonNull<sys::dsc_pipe_schedule_t>);

/// A mesh; destroyed when dropped.
pub(crate) struct MeshHandle(pub(crate) NonNull<sys::dsc_mesh_t>);

/// The report of a simulation; destroyed when dropped.
#[derive(Debug)]
pub(crate) struct ReportHandle(pub(crate) NonNull<sys::dsc_pipe_report_t>);

/// Tied layers; destroyed when dropped.
pub(crate) struct TiedHandle(pub(crate) NonNull<sys::dsc_tied_layers_t>);

/// Sharded parameters; destroyed when dropped.
pub(crate) struct ShardedHandle(pub(crate) NonNull<sys::dsc_sharded_t>);

/// A ring; destroyed when dropped.
pub(crate) struct RingHandle(pub(crate) NonNull<sys::dsc_ring_t>);

/// A store; destroyed when dropped.
pub(crate) struct StoreHandle(pub(crate) NonNull<sys::dsc_store_t>);

/// A plan of an exchange of tokens; destroyed when dropped.
pub(crate) struct MoePlanHandle(pub(crate) NonNull<sys::dsc_moe_plan_t>);

// SAFETY: the value is an id, which is not dereferenced. Queries, abort, time-out and destroy may come from any thread.
// The rest is reached through Comm only, where a second thread gets DSC_ERR_BUSY without side effects.
unsafe impl Send for CommHandle {}
// SAFETY: as above.
unsafe impl Sync for CommHandle {}
// SAFETY: every function on a work object may be called from any thread, by several at once.
unsafe impl Send for WorkHandle {}
// SAFETY: as above.
unsafe impl Sync for WorkHandle {}
// SAFETY: begin, finish and the calls between iterations take one thread at a time and are reached through `&mut
// BucketReducer` and an owned `Iteration` only; everything else may be called from any thread, by several at once.
unsafe impl Send for ReducerHandle {}
// SAFETY: as above.
unsafe impl Sync for ReducerHandle {}

// SAFETY: finish takes one thread at a time and takes the `Join`; destroy may come from any thread. Reducers under a
// join, which call into it, take turns.
unsafe impl Send for JoinHandle {}
// SAFETY: as above.
unsafe impl Sync for JoinHandle {}

// SAFETY: next, reset and run take one thread at a time and are reached through `&mut PipeSchedule` only; everything
// else may be called from any thread.
unsafe impl Send for ScheduleHandle {}
// SAFETY: as above.
unsafe impl Sync for ScheduleHandle {}

// SAFETY: a mesh never changes; every function on it may be called from any thread, by several at once. The function
// that makes communicators takes one thread at a time per communicator, which it reaches through Comm.
unsafe impl Send for MeshHandle {}
// SAFETY: as above.
unsafe impl Sync for MeshHandle {}

// SAFETY: a report never changes; every function on it may be called from any thread, by several at once.
unsafe impl Send for ReportHandle {}
// SAFETY: as above.
unsafe impl Sync for ReportHandle {}

// SAFETY: reduce takes one thread at a time and is reached through `&mut TiedLayers` only; everything else may be
// called from any thread.
unsafe impl Send for TiedHandle {}
// SAFETY: as above.
unsafe impl Sync for TiedHandle {}

// SAFETY: begin, finish, clip, step_done, unshard, wait and reshard take one thread at a time and are reached
// through `&mut Sharded` only; everything else may be called from any thread, by several at once.
unsafe impl Send for ShardedHandle {}
// SAFETY: as above.
unsafe impl Sync for ShardedHandle {}

// SAFETY: begin and next take one thread at a time and are reached through `&mut Ring` only; destroy may come from any
// thread.
unsafe impl Send for RingHandle {}
// SAFETY: as above.
unsafe impl Sync for RingHandle {}

// SAFETY: every function on a store may be called from any thread, by several at once.
unsafe impl Send for StoreHandle {}
// SAFETY: as above.
unsafe impl Sync for StoreHandle {}

// SAFETY: an exchange of rows takes one thread at a time and is reached through `&mut MoePlan` only; everything else
// may be called from any thread, by several at once.
unsafe impl Send for MoePlanHandle {}
// SAFETY: as above.
unsafe impl Sync for MoePlanHandle {}

impl MoePlanHandle {
    pub(crate) fn raw(&self) -> *mut sys::dsc_moe_plan_t {
        self.0.as_ptr()
    }
}

impl TiedHandle {
    pub(crate) fn raw(&self) -> *mut sys::dsc_tied_layers_t {
        self.0.as_ptr()
    }
}

impl RingHandle {
    pub(crate) fn raw(&self) -> *mut sys::dsc_ring_t {
        self.0.as_ptr()
    }
}

impl ScheduleHandle {
    /// From a function that takes a pointer for the handle.
    pub(crate) fn made(make: impl FnOnce(&mut *mut sys::dsc_pipe_schedule_t) -> sys::dsc_result_t) -> Result<Self> {
        let mut schedule = ptr::null_mut();
        check(make(&mut schedule))?;
        NonNull::new(schedule).map(ScheduleHandle).ok_or_else(|| {
            Error::new(ErrorCode::Internal, "the library returned neither a schedule nor an error".into())
        })
    }

    pub(crate) fn raw(&self) -> *mut sys::dsc_pipe_schedule_t {
        self.0.as_ptr()
    }
}

impl CommHandle {
    pub(crate) fn raw(&self) -> *mut sys::dsc_comm_t {
        self.0.as_ptr()
    }

    /// Calls one of the functions that return a number.
    pub(crate) fn query(
        &self,
        function: unsafe extern "C" fn(*const sys::dsc_comm_t, *mut i32) -> sys::dsc_result_t,
    ) -> Result<i32> {
        let mut value = 0;
        // SAFETY: the library checks the handle, and value outlives the call.
        check(unsafe { function(self.raw(), &mut value) })?;
        Ok(value)
    }

    /// Calls one of the functions that return a text.
    pub(crate) fn text(
        &self,
        function: unsafe extern "C" fn(*const sys::dsc_comm_t, *mut c_char, usize, *mut usize) -> sys::dsc_result_t,
    ) -> Result<String> {
        // SAFETY: the library checks the handle; room has capacity bytes, and bytes outlives the call.
        text(|room, capacity, bytes| unsafe { function(self.raw(), room, capacity, bytes) })
    }
}

impl Drop for CommHandle {
    fn drop(&mut self) {
        // SAFETY: the library checks the handle; one that ended with its world is refused, which has the same effect.
        unsafe { sys::dsc_comm_destroy(self.raw()) };
    }
}

impl Drop for WorkHandle {
    fn drop(&mut self) {
        // SAFETY: the library checks the handle.
        unsafe { sys::dsc_work_destroy(self.0.as_ptr()) };
    }
}

impl Drop for ReducerHandle {
    fn drop(&mut self) {
        // SAFETY: the library checks the handle.
        unsafe { sys::dsc_bucket_reducer_destroy(self.0.as_ptr()) };
    }
}

impl Drop for JoinHandle {
    fn drop(&mut self) {
        // SAFETY: the library checks the handle.
        unsafe { sys::dsc_join_destroy(self.0.as_ptr()) };
    }
}

impl Drop for ScheduleHandle {
    fn drop(&mut self) {
        // SAFETY: the library checks the handle.
        unsafe { sys::dsc_pipe_schedule_destroy(self.0.as_ptr()) };
    }
}

impl Drop for MeshHandle {
    fn drop(&mut self) {
        // SAFETY: the library checks the handle.
        unsafe { sys::dsc_mesh_destroy(self.0.as_ptr()) };
    }
}

impl Drop for ReportHandle {
    fn drop(&mut self) {
        // SAFETY: the library checks the handle.
        unsafe { sys::dsc_pipe_report_destroy(self.0.as_ptr()) };
    }
}

impl Drop for TiedHandle {
    fn drop(&mut self) {
        // SAFETY: the library checks the handle.
        unsafe { sys::dsc_tied_layers_destroy(self.0.as_ptr()) };
    }
}

impl Drop for ShardedHandle {
    fn drop(&mut self) {
        // SAFETY: the library checks the handle.
        unsafe { sys::dsc_sharded_destroy(self.0.as_ptr()) };
    }
}

impl Drop for RingHandle {
    fn drop(&mut self) {
        // SAFETY: the library checks the handle.
        unsafe { sys::dsc_ring_destroy(self.raw()) };
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        // SAFETY: the library checks the handle.
        unsafe { sys::dsc_store_destroy(self.0.as_ptr()) };
    }
}

impl Drop for MoePlanHandle {
    fn drop(&mut self) {
        // SAFETY: the library checks the handle.
        unsafe { sys::dsc_moe_plan_destroy(self.raw()) };
    }
}
