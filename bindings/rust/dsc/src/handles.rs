//! The handles of the C interface, and which of them may be used on other threads.
//!
//! A handle is an id, so passing it between threads is harmless. Functions that the headers allow from any thread are
//! methods of `Sync` types with shared references. Functions that the headers allow for one thread at a time take `&mut
//! self`, or belong to [`Comm`](crate::Comm), where the library itself refuses a second thread. A test compares this
//! with api.json.

use std::os::raw::c_char;
use std::ptr::{self, NonNull};

use dsc_sys as sys;

use crate::convert::text;
use crate::error::{check, Error, Result};
use crate::numbers::ErrorCode;

/// A communicator. Dropping it destroys it.
pub(crate) struct CommHandle(pub(crate) NonNull<sys::dsc_comm_t>);

/// A work object. Dropping it destroys it.
pub(crate) struct WorkHandle(pub(crate) NonNull<sys::dsc_work_t>);

/// A reducer. Dropping it destroys it.
pub(crate) struct ReducerHandle(pub(crate) NonNull<sys::dsc_bucket_reducer_t>);

/// A join. Dropping it destroys it.
pub(crate) struct JoinHandle(pub(crate) NonNull<sys::dsc_join_t>);

/// A pipeline schedule. Dropping it destroys it.
pub(crate) struct ScheduleHandle(pub(crate) NonNull<sys::dsc_pipe_schedule_t>);

/// A mesh. Dropping it destroys it.
pub(crate) struct MeshHandle(pub(crate) NonNull<sys::dsc_mesh_t>);

/// The report of a simulation. Dropping it destroys it.
#[derive(Debug)]
pub(crate) struct ReportHandle(pub(crate) NonNull<sys::dsc_pipe_report_t>);

/// Tied layers. Dropping them destroys them.
pub(crate) struct TiedHandle(pub(crate) NonNull<sys::dsc_tied_layers_t>);

/// Sharded parameters. Dropping them destroys them.
pub(crate) struct ShardedHandle(pub(crate) NonNull<sys::dsc_sharded_t>);

/// A ring. Dropping it destroys it.
pub(crate) struct RingHandle(pub(crate) NonNull<sys::dsc_ring_t>);

/// A store. Dropping it destroys it.
pub(crate) struct StoreHandle(pub(crate) NonNull<sys::dsc_store_t>);

/// A plan for an exchange of tokens. Dropping it destroys it.
pub(crate) struct MoePlanHandle(pub(crate) NonNull<sys::dsc_moe_plan_t>);

// SAFETY: the value is an id, which is not dereferenced. Queries, abort, time-out and destroy may be called from any
// thread. The other functions are called only through Comm, where a second thread gets DSC_ERR_BUSY without side
// effects.
unsafe impl Send for CommHandle {}
// SAFETY: as above.
unsafe impl Sync for CommHandle {}
// SAFETY: every function on a work object may be called from any thread, by several at the same time.
unsafe impl Send for WorkHandle {}
// SAFETY: as above.
unsafe impl Sync for WorkHandle {}
// SAFETY: begin, finish and the calls between iterations allow one thread at a time. They are called only through `&mut
// BucketReducer` and an owned `Iteration`. All other functions may be called from any thread, by several at the same
// time.
unsafe impl Send for ReducerHandle {}
// SAFETY: as above.
unsafe impl Sync for ReducerHandle {}

// SAFETY: finish allows one thread at a time and consumes the `Join`; destroy may be called from any thread. The
// reducers of a join call functions that use it, but they share a lock.
unsafe impl Send for JoinHandle {}
// SAFETY: as above.
unsafe impl Sync for JoinHandle {}

// SAFETY: next, reset and run allow one thread at a time. They are called only through `&mut PipeSchedule`. All other
// functions may be called from any thread.
unsafe impl Send for ScheduleHandle {}
// SAFETY: as above.
unsafe impl Sync for ScheduleHandle {}

// SAFETY: a mesh never changes. Every function on it may be called from any thread, by several at the same time. The
// function that makes communicators allows one thread at a time per communicator, which Comm ensures.
unsafe impl Send for MeshHandle {}
// SAFETY: as above.
unsafe impl Sync for MeshHandle {}

// SAFETY: a report never changes. Every function on it may be called from any thread, by several at the same time.
unsafe impl Send for ReportHandle {}
// SAFETY: as above.
unsafe impl Sync for ReportHandle {}

// SAFETY: reduce allows one thread at a time and is called only through `&mut TiedLayers`. All other functions may be
// called from any thread.
unsafe impl Send for TiedHandle {}
// SAFETY: as above.
unsafe impl Sync for TiedHandle {}

// SAFETY: begin, finish, clip, step_done, unshard, wait and reshard allow one thread at a time. They are called only
// through `&mut Sharded`. All other functions may be called from any thread, by several at the same time.
unsafe impl Send for ShardedHandle {}
// SAFETY: as above.
unsafe impl Sync for ShardedHandle {}

// SAFETY: begin and next allow one thread at a time and are called only through `&mut Ring`. destroy may be called from
// any thread.
unsafe impl Send for RingHandle {}
// SAFETY: as above.
unsafe impl Sync for RingHandle {}

// SAFETY: every function on a store may be called from any thread, by several at the same time.
unsafe impl Send for StoreHandle {}
// SAFETY: as above.
unsafe impl Sync for StoreHandle {}

// SAFETY: an exchange of rows allows one thread at a time and is called only through `&mut MoePlan`. All other
// functions may be called from any thread, by several at the same time.
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
    /// Calls a function that creates a schedule and writes its handle to the given pointer. Takes ownership of the
    /// schedule.
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

    /// Calls a function that returns a number.
    pub(crate) fn query(
        &self,
        function: unsafe extern "C" fn(*const sys::dsc_comm_t, *mut i32) -> sys::dsc_result_t,
    ) -> Result<i32> {
        let mut value = 0;
        // SAFETY: the library checks the handle, and value outlives the call.
        check(unsafe { function(self.raw(), &mut value) })?;
        Ok(value)
    }

    /// Calls a function that returns a text.
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
        // SAFETY: the library checks the handle. A handle that ended with its world is refused, which is harmless.
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
