//! Groups: parts of a communicator.

use std::ffi::c_void;
use std::mem::{size_of, MaybeUninit};
use std::ptr;
use std::time::Duration;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{c_string, milliseconds, number};
use crate::error::{check, Result};
use crate::init::pointer;

/// Options of [`Comm::split_with`] and [`Comm::create_group_with`], the same on all members.
#[derive(Clone, Debug, Default)]
pub struct GroupOptions {
    name: Option<String>,
    timeout: Option<Duration>,
    nccl_net_name: Option<String>,
    nccl_min_ctas: usize,
    nccl_max_ctas: usize,
    stream_priority: i32,
}

impl GroupOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shown in errors, up to 31 bytes are kept; "PARENT/NUMBER" by default.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Deadline of every operation; the parent's by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Network plugin that NCCL uses for this group; it chooses by default.
    #[must_use]
    pub fn nccl_net_name(mut self, name: &str) -> Self {
        self.nccl_net_name = Some(name.to_owned());
        self
    }

    /// The least number of thread blocks of NCCL's operations; it chooses by default, and with 0.
    #[must_use]
    pub fn nccl_min_ctas(mut self, count: usize) -> Self {
        self.nccl_min_ctas = count;
        self
    }

    /// The largest number of thread blocks; as for [`nccl_min_ctas`](GroupOptions::nccl_min_ctas).
    #[must_use]
    pub fn nccl_max_ctas(mut self, count: usize) -> Self {
        self.nccl_max_ctas = count;
        self
    }

    /// Priority of the streams that operations with a work object run on: lower is more urgent, 0 (the default) the
    /// least; out of the device's range it is the nearest.
    #[must_use]
    pub fn stream_priority(mut self, priority: i32) -> Self {
        self.stream_priority = priority;
        self
    }

    /// Calls with the options in the form of the C interface.
    pub(crate) fn with_raw<T>(&self, call: impl FnOnce(&sys::dsc_group_options_t) -> T) -> Result<T> {
        let name = self.name.as_deref().map(|name| c_string("name", name)).transpose()?;
        let net_name = self.nccl_net_name.as_deref().map(|name| c_string("nccl_net_name", name)).transpose()?;
        let mut raw = MaybeUninit::uninit();
        // SAFETY: the call fills the whole struct, whose size it is told.
        let mut raw: sys::dsc_group_options_t = unsafe {
            check(sys::dsc_group_options_init(raw.as_mut_ptr(), size_of::<sys::dsc_group_options_t>()))?;
            raw.assume_init()
        };
        raw.name = pointer(&name);
        raw.timeout_ms = self.timeout.map_or(raw.timeout_ms, milliseconds);
        raw.nccl_net_name = pointer(&net_name);
        raw.nccl_min_ctas = number("nccl_min_ctas", self.nccl_min_ctas)?;
        raw.nccl_max_ctas = number("nccl_max_ctas", self.nccl_max_ctas)?;
        raw.stream_priority = self.stream_priority;
        Ok(call(&raw))
    }
}

impl Comm {
    /// Divides the communicator: ranks of one color form a group, ordered by key, then by rank. Collective.
    ///
    /// With color `None` this rank joins no group and gets `None`.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let half = world.split(Some(world.rank() % 2), 0)?.expect("every rank has a color");
    /// assert_eq!(half.size(), (world.size() + 1 - world.rank() % 2) / 2);
    /// world.finalize()
    /// # }
    /// ```
    pub fn split(&self, color: Option<usize>, key: i32) -> Result<Option<Comm>> {
        self.split_with(color, key, &GroupOptions::new())
    }

    /// As [`split`](Comm::split), with options.
    pub fn split_with(&self, color: Option<usize>, key: i32, options: &GroupOptions) -> Result<Option<Comm>> {
        let color = color.map_or(Ok(-1), |color| number("color", color))?;
        let mut group = ptr::null_mut();
        let result = options.with_raw(|raw| {
            // SAFETY: the options outlive the call, which keeps nothing; group outlives it too.
            unsafe { sys::dsc_comm_split(self.raw(), color, key, raw, &mut group) }
        })?;
        self.check(result, "split")?;
        Comm::from_group(group)
    }

    /// Makes a group of the same ranks that uses an NCCL communicator of the program's own, in its order of ranks.
    /// Collective.
    ///
    /// # Safety
    ///
    /// `nccl_comm` is an `ncclComm_t` that outlives the group and that nobody else uses while operations of the group
    /// are called or on their way.
    pub unsafe fn adopt_nccl(&self, nccl_comm: *mut c_void, options: &GroupOptions) -> Result<Comm> {
        let mut group = ptr::null_mut();
        let result = options.with_raw(|raw| {
            // SAFETY: the options outlive the call, as group does; the caller answers for nccl_comm.
            unsafe { sys::dsc_comm_adopt_nccl(self.raw(), nccl_comm, raw, &mut group) }
        })?;
        self.check(result, "adopt_nccl")?;
        Ok(Comm::from_group(group)?.expect("every rank is in the group"))
    }

    /// Makes a group of the listed ranks, in that order. Collective: every rank of this communicator passes the same
    /// list; a rank that is not listed gets `None`.
    pub fn create_group(&self, ranks: &[usize]) -> Result<Option<Comm>> {
        self.create_group_with(ranks, &GroupOptions::new())
    }

    /// As [`create_group`](Comm::create_group), with options.
    pub fn create_group_with(&self, ranks: &[usize], options: &GroupOptions) -> Result<Option<Comm>> {
        let listed = ranks.iter().map(|rank| number("rank", *rank)).collect::<Result<Vec<i32>>>()?;
        let n_ranks = number("the number of ranks", listed.len())?;
        let mut group = ptr::null_mut();
        let result = options.with_raw(|raw| {
            // SAFETY: the list has n_ranks entries; it and the options outlive the call, as group does.
            unsafe { sys::dsc_comm_create_group(self.raw(), listed.as_ptr(), n_ranks, raw, &mut group) }
        })?;
        self.check(result, "create_group")?;
        Comm::from_group(group)
    }
}
