//! Start-up: the processes of a launcher become a group of ranks.

use std::ffi::CString;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{c_string, defaults, milliseconds, number, raw_settings};
use crate::error::{check, Result};
use crate::numbers::Backend;
use crate::store::Store;

/// Joins all ranks of the job into one world, with default options.
///
/// Rank and size come from RANK and WORLD_SIZE, or from the variables of another launcher. Without either, the process
/// is a world of one rank. A second call returns the existing world.
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// println!("rank {} of {}", world.rank(), world.size());
/// world.finalize()
/// # }
/// ```
#[doc(alias = "dsc_init_distributed")]
pub fn init() -> Result<Comm> {
    InitOptions::new().init()
}

/// Returns the world of this process, or that of this thread if it was made with [`InitOptions::rank_per_thread`].
#[doc(alias = "dsc_world")]
pub fn world() -> Result<Comm> {
    let mut world = ptr::null_mut();
    // SAFETY: world outlives the call.
    check(unsafe { sys::dsc_world(&mut world) })?;
    Comm::from_world(world)
}

/// Whether a world exists that [`world`] can return.
#[doc(alias = "dsc_is_initialized")]
pub fn is_initialized() -> Result<bool> {
    let mut initialized = 0;
    // SAFETY: initialized outlives the call.
    check(unsafe { sys::dsc_is_initialized(&mut initialized) })?;
    Ok(initialized != 0)
}

/// Sources of rank and world size, for [`InitOptions::sources`].
pub mod sources {
    use dsc_sys as sys;

    /// The options of the call.
    pub const OPTIONS: u32 = sys::DSC_SOURCE_OPTIONS as u32;
    /// RANK and WORLD_SIZE.
    pub const ENV: u32 = sys::DSC_SOURCE_ENV as u32;
    /// A PMIx server.
    pub const PMIX: u32 = sys::DSC_SOURCE_PMIX as u32;
    /// Variables of Slurm, Open MPI, MPICH and others.
    pub const LAUNCHER: u32 = sys::DSC_SOURCE_LAUNCHER as u32;
    /// A single process without other ranks.
    pub const SINGLE: u32 = sys::DSC_SOURCE_SINGLE as u32;
}

/// Options of start-up. Set those that are needed, then call [`init`](InitOptions::init).
///
/// ```
/// use std::time::Duration;
///
/// # fn main() -> dsc::Result<()> {
/// let options = dsc::InitOptions::new().rank(0).world_size(1).job_id("doc").timeout(Duration::from_secs(30));
/// let world = options.init()?;
/// assert_eq!((world.rank(), world.size()), (0, 1));
/// world.finalize()
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct InitOptions {
    init_method: Option<String>,
    job_id: Option<String>,
    backend: Option<Backend>,
    rank: Option<usize>,
    world_size: Option<usize>,
    local_rank: Option<usize>,
    device: Option<usize>,
    port: Option<u16>,
    sources: u32,
    require_existing: bool,
    rank_per_thread: bool,
    init_timeout: Option<Duration>,
    timeout: Option<Duration>,
    stall_timeout: Option<Duration>,
    progress_thread: Option<bool>,
    token: Option<String>,
    store: Option<Arc<Store>>,
    settings: Vec<(String, String)>,
}

macro_rules! settings {
    ($($(#[$about:meta])* $name:ident: $from:ty, $value:ident => $kept:expr;)+) => {$(
        $(#[$about])*
        #[must_use]
        pub fn $name(mut self, $value: $from) -> Self {
            self.$name = $kept;
            self
        }
    )+};
}

impl InitOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    settings! {
        /// "env://" (the default), "pmix://", "tcp://HOST:PORT" or "file:///PATH".
        init_method: &str, text => Some(text.to_owned());
        /// An id that distinguishes jobs on one host; by default the launcher's id, if the launcher sets one.
        job_id: &str, text => Some(text.to_owned());
        /// The backend that transfers the data.
        backend: Backend, backend => Some(backend);
        /// This rank. Set it together with [`world_size`](InitOptions::world_size).
        rank: usize, rank => Some(rank);
        /// The number of ranks. Set it together with [`rank`](InitOptions::rank).
        world_size: usize, size => Some(size);
        /// This rank's number on its host; by default from the environment, or derived.
        local_rank: usize, rank => Some(rank);
        /// The number of the GPU to bind; by default no GPU is bound.
        device: usize, device => Some(device);
        /// The port, 1 to 65535; by default DSC_PORT, MASTER_PORT or 29500.
        port: u16, port => Some(port);
        /// Bits of [`sources`] that may be used; 0 (the default) allows all.
        sources: u32, bits => bits;
        /// Returns the existing world, never creates one, and ignores all other options.
        require_existing: bool, on => on;
        /// This process holds several ranks. Each has its own thread, which calls `init` once.
        rank_per_thread: bool, on => on;
        /// The deadline of start-up; 300 s by default.
        init_timeout: Duration, timeout => Some(timeout);
        /// The deadline of every operation, also in groups of the world; 300 s by default.
        timeout: Duration, timeout => Some(timeout);
        /// If a process has not run for this long, its groups fail. Zero means never; 30 s by default.
        stall_timeout: Duration, timeout => Some(timeout);
        /// Whether a thread of the library advances operations in the background; on by default. Without it, the
        /// program must call [`Comm::progress`].
        progress_thread: bool, on => Some(on);
        /// The secret of a job on several hosts, 64 hexadecimal digits; by default from DSC_TOKEN_FD, DSC_TOKEN_FILE or
        /// DSC_TOKEN if one is set.
        token: &str, text => Some(text.to_owned());
        /// The store through which rank 0 tells ranks on other hosts where it listens.
        store: Arc<Store>, store => Some(store);
    }

    /// Sets a backend setting by its name in docs/gpu.md, such as "nccl.library". If a name is set twice, the later
    /// value is used.
    #[must_use]
    pub fn setting(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// The path of NCCL's library, the same for all ranks of a process. By default it is from DSC_NCCL_LIBRARY, the
    /// copy that is already loaded, or one of the paths in docs/gpu.md.
    #[must_use]
    pub fn nccl_library(self, path: &str) -> Self {
        self.setting("nccl.library", path)
    }

    /// The path of CUDA's driver library, the same for all ranks of a process; by default from DSC_CUDA_LIBRARY, or the
    /// system's.
    #[must_use]
    pub fn cuda_library(self, path: &str) -> Self {
        self.setting("cuda.library", path)
    }

    /// Joins all ranks of the job into one world. Collective; waits until all ranks have arrived.
    pub fn init(&self) -> Result<Comm> {
        let init_method = self.init_method.as_deref().map(|text| c_string("init_method", text)).transpose()?;
        let job_id = self.job_id.as_deref().map(|text| c_string("job_id", text)).transpose()?;
        let token = self.token.as_deref().map(|text| c_string("token", text)).transpose()?;
        let (_texts, settings) = raw_settings(&self.settings)?;
        // SAFETY: `defaults` passes memory for the struct, and its size.
        let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_init_options_init(raw, bytes) })?;
        raw.init_method = pointer(&init_method);
        raw.job_id = pointer(&job_id);
        raw.token = pointer(&token);
        (raw.settings, raw.n_settings) = (settings.as_ptr(), settings.len());
        raw.store = self.store.as_ref().map_or(ptr::null_mut(), |store| store.raw());
        self.fill_numbers(&mut raw)?;
        let mut world = ptr::null_mut();
        // SAFETY: raw and the texts that it points to outlive the call, which keeps no pointer.
        check(unsafe { sys::dsc_init_distributed(&raw, &mut world) })?;
        Comm::from_world(world)
    }

    fn fill_numbers(&self, raw: &mut sys::dsc_init_options_t) -> Result<()> {
        let given = [
            (&mut raw.rank, "rank", self.rank),
            (&mut raw.world_size, "world_size", self.world_size),
            (&mut raw.local_rank, "local_rank", self.local_rank),
            (&mut raw.device, "device", self.device),
        ];
        for (field, name, value) in given {
            *field = value.map_or(Ok(*field), |value| number(name, value))?;
        }
        let timeouts = [
            (&mut raw.init_timeout_ms, self.init_timeout),
            (&mut raw.timeout_ms, self.timeout),
            (&mut raw.stall_timeout_ms, self.stall_timeout),
        ];
        for (field, value) in timeouts {
            *field = value.map_or(*field, milliseconds);
        }
        raw.backend = self.backend.map_or(raw.backend, Backend::number);
        raw.port = self.port.map_or(raw.port, i32::from);
        raw.sources = self.sources;
        raw.require_existing = i32::from(self.require_existing);
        raw.rank_per_thread = i32::from(self.rank_per_thread);
        raw.progress_thread = self.progress_thread.map_or(raw.progress_thread, i32::from);
        Ok(())
    }
}

/// Returns the address of a text, or NULL for `None`.
pub(crate) fn pointer(text: &Option<CString>) -> *const std::os::raw::c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}
