//! Groups: communicators for some ranks of another communicator.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{c_string, defaults, milliseconds, number, raw_settings};
use crate::error::Result;
use crate::init::pointer;

/// Options of [`Comm::split_with`] and [`Comm::create_group_with`]. Use the same options on all members.
#[derive(Clone, Debug, Default)]
pub struct GroupOptions {
    name: Option<String>,
    timeout: Option<Duration>,
    settings: Vec<(String, String)>,
    stream_priority: i32,
}

impl GroupOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name in errors; only its first 31 bytes are kept. By default "PARENT/NUMBER".
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// The deadline of every operation; by default that of the parent.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets a backend setting by its name in docs/gpu.md, such as "nccl.max_ctas". If a name is set twice, the later
    /// value is used.
    #[must_use]
    pub fn setting(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// The network plugin that NCCL uses for this group; by default NCCL chooses.
    #[must_use]
    pub fn nccl_net_name(self, name: &str) -> Self {
        self.setting("nccl.net_name", name)
    }

    /// The smallest number of thread blocks of NCCL's operations. By default, and with 0, NCCL chooses.
    #[must_use]
    pub fn nccl_min_ctas(self, count: usize) -> Self {
        self.setting("nccl.min_ctas", count)
    }

    /// The largest number of thread blocks of NCCL's operations. By default, and with 0, NCCL chooses.
    #[must_use]
    pub fn nccl_max_ctas(self, count: usize) -> Self {
        self.setting("nccl.max_ctas", count)
    }

    /// The priority of the streams on which operations with a work object run. A lower number is more urgent, and 0
    /// (the default) is the least urgent. A number outside the device's range is replaced by the nearest one in it.
    #[must_use]
    pub fn stream_priority(mut self, priority: i32) -> Self {
        self.stream_priority = priority;
        self
    }

    /// Calls a function with the options as a C struct.
    pub(crate) fn with_raw<T>(&self, call: impl FnOnce(&sys::dsc_comm_options_t) -> T) -> Result<T> {
        let name = self.name.as_deref().map(|name| c_string("name", name)).transpose()?;
        let (_texts, settings) = raw_settings(&self.settings)?;
        // SAFETY: the struct has this size.
        let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_comm_options_init(raw, bytes) })?;
        raw.name = pointer(&name);
        raw.timeout_ms = self.timeout.map_or(raw.timeout_ms, milliseconds);
        (raw.settings, raw.n_settings) = (settings.as_ptr(), settings.len());
        raw.stream_priority = self.stream_priority;
        Ok(call(&raw))
    }
}

impl Comm {
    /// Divides the communicator: ranks of one color form a group, ordered by key, then by rank. Collective.
    ///
    /// A rank with color `None` joins no group and gets `None`.
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

    /// Does the same as [`split`](Comm::split), with options.
    pub fn split_with(&self, color: Option<usize>, key: i32, options: &GroupOptions) -> Result<Option<Comm>> {
        let color = color.map_or(Ok(-1), |color| number("color", color))?;
        let mut group = ptr::null_mut();
        let result = options.with_raw(|raw| {
            // SAFETY: the options and group outlive the call, which keeps no pointer.
            unsafe { sys::dsc_comm_split(self.raw(), color, key, raw, &mut group) }
        })?;
        self.check(result, "split")?;
        Comm::from_group(group)
    }

    /// Makes a group of the same ranks that uses an existing communicator of another library: for "nccl", an
    /// `ncclComm_t`. The group has that communicator's order of ranks. Collective.
    ///
    /// # Safety
    ///
    /// `communicator` must be a communicator of that library and must outlive the group. Nothing else may use it while
    /// operations of the group are called or in progress.
    pub unsafe fn adopt(&self, library: &str, communicator: *mut c_void, options: &GroupOptions) -> Result<Comm> {
        let (library, mut group) = (c_string("library", library)?, ptr::null_mut());
        let result = options.with_raw(|raw| {
            // SAFETY: library, options and group outlive the call. The caller guarantees that communicator is valid.
            unsafe { sys::dsc_comm_adopt(self.raw(), library.as_ptr(), communicator, raw, &mut group) }
        })?;
        self.check(result, "adopt")?;
        Ok(Comm::from_group(group)?.expect("every rank is in the group"))
    }

    /// Makes a group of the listed ranks, in that order. Collective: every rank of this communicator passes the same
    /// list. A rank that is not listed gets `None`.
    pub fn create_group(&self, ranks: &[usize]) -> Result<Option<Comm>> {
        self.create_group_with(ranks, &GroupOptions::new())
    }

    /// Does the same as [`create_group`](Comm::create_group), with options.
    pub fn create_group_with(&self, ranks: &[usize], options: &GroupOptions) -> Result<Option<Comm>> {
        let listed = ranks.iter().map(|rank| number("rank", *rank)).collect::<Result<Vec<i32>>>()?;
        let n_ranks = listed.len();
        let mut group = ptr::null_mut();
        let result = options.with_raw(|raw| {
            // SAFETY: the list has n_ranks entries. The list, the options and group outlive the call.
            unsafe { sys::dsc_comm_create_group(self.raw(), listed.as_ptr(), n_ranks, raw, &mut group) }
        })?;
        self.check(result, "create_group")?;
        Comm::from_group(group)
    }
}
