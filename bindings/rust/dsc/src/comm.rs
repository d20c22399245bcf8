//! Communicators: queries, end and failure.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use dsc_sys as sys;

use crate::convert::number;
use crate::error::{check, Error, Result};
use crate::handles::CommHandle;
use crate::numbers::{Backend, ErrorCode};
use crate::stats::{read_stats, OpStats};
use crate::watch::Watch;

/// A group of ranks, and the operations on it.
///
/// The world comes from [`init`](crate::init()), smaller groups from [`split`](Comm::split) and
/// [`create_group`](Comm::create_group). All ranks call a communicator's collective operations in the same order.
///
/// # Threads
///
/// `Comm` is [`Send`] and [`Sync`]. Queries, [`abort`](Comm::abort) and [`set_timeout`](Comm::set_timeout) may be
/// called from any thread at any time, even while another thread is in an operation. Operations may be called by one
/// thread at a time: a second thread gets [`ErrorCode::Busy`] immediately, without side effects. For threads that
/// communicate at the same time, split one communicator per thread.
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let sum = std::thread::scope(|scope| {
///     let worker = scope.spawn(|| {
///         let mut x = 1.0f32;
///         world.all_reduce(&mut x, dsc::Op::Sum).map(|()| x)
///     });
///     println!("rank {} waits", world.rank()); // runs meanwhile
///     worker.join().unwrap()
/// })?;
/// assert_eq!(sum, world.size() as f32);
/// world.finalize()
/// # }
/// ```
///
/// # Ending
///
/// [`finalize`](Comm::finalize) waits for all ranks. A communicator that is only dropped, for example while a panic
/// unwinds, does not wait: ranks that wait for this one get [`ErrorCode::PeerLeft`].
pub struct Comm {
    pub(crate) shared: Arc<Shared>,
}

/// The state that a communicator and its [`Watch`] objects share. All `Comm`s of one world also share it.
pub(crate) struct Shared {
    pub(crate) handle: CommHandle,
    pub(crate) rank: usize,
    size: usize,
    pub(crate) name: Arc<str>,
    /// Whether a thread of the library advances operations.
    pub(crate) has_progress_thread: bool,
    /// Held during a call. Otherwise the call could become part of a batch that another thread has open, and no code
    /// would wait for it.
    turn: Mutex<()>,
}

/// The worlds of this process. A second `init` returns the same world, which must be destroyed only once.
static WORLDS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

impl Shared {
    fn new(handle: CommHandle) -> Result<Self> {
        let rank = handle.query(sys::dsc_comm_rank)?;
        let size = handle.query(sys::dsc_comm_size)?;
        let name = handle.text(sys::dsc_comm_name)?;
        let has_progress_thread = handle.query(sys::dsc_comm_progress_thread)? != 0;
        let (rank, size, name, turn) = (rank as usize, size as usize, name.into(), Mutex::new(()));
        Ok(Shared { handle, rank, size, name, has_progress_thread, turn })
    }
}

impl Comm {
    fn from_shared(shared: Arc<Shared>) -> Self {
        Comm { shared }
    }

    /// Takes ownership of a new group. NULL means that this rank is not in it.
    pub(crate) fn from_group(handle: *mut sys::dsc_comm_t) -> Result<Option<Self>> {
        match NonNull::new(handle) {
            Some(handle) => Ok(Some(Comm::from_shared(Arc::new(Shared::new(CommHandle(handle))?)))),
            None => Ok(None),
        }
    }

    /// Takes ownership of the world, or shares it with the `Comm`s that already own it.
    pub(crate) fn from_world(handle: *mut sys::dsc_comm_t) -> Result<Self> {
        let handle = NonNull::new(handle).ok_or_else(|| {
            Error::new(ErrorCode::Internal, "the library returned neither a world nor an error".into())
        })?;
        let mut worlds = WORLDS.lock().unwrap_or_else(PoisonError::into_inner);
        worlds.retain(|world| world.strong_count() > 0);
        if let Some(known) = worlds.iter().filter_map(Weak::upgrade).find(|world| world.handle.0 == handle) {
            return Ok(Comm::from_shared(known));
        }
        let shared = Arc::new(Shared::new(CommHandle(handle))?);
        worlds.push(Arc::downgrade(&shared));
        Ok(Comm::from_shared(shared))
    }

    pub(crate) fn raw(&self) -> *mut sys::dsc_comm_t {
        self.shared.handle.raw()
    }

    /// This rank's number, 0 to [`size`](Comm::size) - 1.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// The name shown in errors; "world" for the world.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// This rank's number among the ranks of the world that are on the same host.
    pub fn local_rank(&self) -> Result<usize> {
        Ok(self.shared.handle.query(sys::dsc_comm_local_rank)? as usize)
    }

    /// The number of ranks of the world on this host.
    pub fn local_size(&self) -> Result<usize> {
        Ok(self.shared.handle.query(sys::dsc_comm_local_size)? as usize)
    }

    /// The number of the GPU that the communicator is bound to, as CUDA numbers devices in this process.
    pub fn device(&self) -> Result<Option<u32>> {
        Ok(u32::try_from(self.shared.handle.query(sys::dsc_comm_device)?).ok())
    }

    /// [`Backend::Device`] if the communicator is bound to a GPU, otherwise the backend for host memory.
    pub fn backend(&self) -> Result<Backend> {
        Ok(Backend::from_number(self.shared.handle.query(sys::dsc_comm_backend)?))
    }

    /// The number of ranks of the world.
    pub fn world_size(&self) -> Result<usize> {
        Ok(self.shared.handle.query(sys::dsc_comm_world_size)? as usize)
    }

    /// A number that is unique among the communicators of the job and the same on all ranks. Traces also show it.
    pub fn id(&self) -> Result<u64> {
        let mut id = 0;
        // SAFETY: the library checks the handle, and id outlives the call.
        check(unsafe { sys::dsc_comm_id(self.raw(), &mut id) })?;
        Ok(id)
    }

    /// The host where the ranks of a job on several hosts met at start-up, for MASTER_ADDR. It is "127.0.0.1" in a job
    /// on one host.
    pub fn master_addr(&self) -> Result<String> {
        self.shared.handle.text(sys::dsc_comm_master_addr)
    }

    /// The port where the ranks met at start-up, for MASTER_PORT.
    pub fn master_port(&self) -> Result<u16> {
        Ok(u16::try_from(self.shared.handle.query(sys::dsc_comm_master_port)?).unwrap_or(0))
    }

    /// Where start-up found rank and world size, such as "env" or "pmix".
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// println!("{} ranks, by {}: {}", world.world_size()?, world.source()?, world.start_report()?);
    /// world.finalize()
    /// # }
    /// ```
    pub fn source(&self) -> Result<String> {
        self.shared.handle.text(sys::dsc_comm_source)
    }

    /// A text that says what start-up found and what was missing.
    pub fn start_report(&self) -> Result<String> {
        self.shared.handle.text(sys::dsc_comm_start_summary)
    }

    /// The message sizes in bytes at which the communicator changes its algorithm, in the format of the environment
    /// variable DSC_TUNING.
    pub fn tuning(&self) -> Result<String> {
        self.shared.handle.text(sys::dsc_comm_tuning)
    }

    /// Whether a thread of the library advances its operations. Otherwise the program must call
    /// [`progress`](Comm::progress).
    pub fn has_progress_thread(&self) -> bool {
        self.shared.has_progress_thread
    }

    /// Translates a rank of this group into a rank of the world.
    pub fn global_rank(&self, group_rank: usize) -> Result<usize> {
        let group_rank = number("group_rank", group_rank)?;
        let mut global_rank = 0;
        // SAFETY: the library checks the handle, and global_rank outlives the call.
        check(unsafe { sys::dsc_comm_global_rank(self.raw(), group_rank, &mut global_rank) })?;
        Ok(global_rank as usize)
    }

    /// Translates a rank of the world into a rank of this group; `None` if it is not a member.
    pub fn group_rank(&self, global_rank: usize) -> Result<Option<usize>> {
        let global_rank = number("global_rank", global_rank)?;
        let mut group_rank = 0;
        // SAFETY: the library checks the handle, and group_rank outlives the call.
        check(unsafe { sys::dsc_comm_group_rank(self.raw(), global_rank, &mut group_rank) })?;
        Ok(usize::try_from(group_rank).ok())
    }

    /// Running totals per operation and size class.
    pub fn stats(&self) -> Result<Vec<OpStats>> {
        read_stats(|stats, capacity, count| {
            // SAFETY: stats has capacity elements, and count outlives the call.
            unsafe { sys::dsc_comm_stats(self.raw(), stats, capacity, count) }
        })
    }

    /// Returns an object for other threads, which they may use while this thread is in an operation.
    pub fn watch(&self) -> Watch {
        Watch::new(Arc::downgrade(&self.shared))
    }

    /// The first failure of this communicator, or a stalled rank for which an operation is waiting.
    pub fn failure(&self) -> Result<Option<Error>> {
        self.watch().failure()
    }

    /// Advances queued operations of this communicator's world on this thread; see [`Watch::progress`].
    pub fn progress(&self, timeout: Duration) -> Result<bool> {
        self.watch().progress(timeout)
    }

    /// The deadline of operations started from now on.
    pub fn timeout(&self) -> Result<Duration> {
        Ok(Duration::from_millis(self.shared.handle.query(sys::dsc_comm_timeout)? as u64))
    }

    /// Sets the deadline of operations started from now on. Use the same value on all ranks.
    pub fn set_timeout(&self, timeout: Duration) -> Result<()> {
        self.watch().set_timeout(timeout)
    }

    /// Revokes the communicator on all ranks: pending and later operations fail with [`ErrorCode::Revoked`].
    pub fn abort(&self) -> Result<()> {
        self.watch().abort()
    }

    /// Waits until all ranks have called it and all operations are done, then releases the communicator. Collective.
    ///
    /// For the world it does the same as `dsc_finalize`. A world that failed earlier is released without waiting.
    /// Groups of the world can no longer be used.
    pub fn finalize(self) -> Result<()> {
        // SAFETY: both functions accept any handle in any state, and the pointer to world outlives the call.
        let result = unsafe {
            let mut world = std::ptr::null_mut();
            if sys::dsc_world(&mut world) == sys::DSC_OK && world == self.raw() {
                sys::dsc_finalize()
            } else {
                sys::dsc_comm_finalize(self.raw())
            }
        };
        self.check(result, "finalize")
    }

    /// Locks the communicator for a call. Returns an error if another thread is in a call on the communicator, even if
    /// that thread uses another `Comm` object of the same world.
    pub(crate) fn turn(&self, op: &str) -> Result<MutexGuard<'_, ()>> {
        match self.shared.turn.try_lock() {
            Ok(turn) => Ok(turn),
            Err(TryLockError::Poisoned(turn)) => Ok(turn.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let text = format!("{}: another thread is inside a call on this communicator", op);
                Err(Error::new(ErrorCode::Busy, text).in_op(op).in_group(self.name()))
            }
        }
    }

    /// Converts the result of an operation on this communicator to a Rust result.
    pub(crate) fn check(&self, result: sys::dsc_result_t, op: &str) -> Result<()> {
        if result >= 0 {
            return Ok(());
        }
        Err(Error::last(result).in_op(op).in_group(self.name()))
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Comm({:?}, rank {} of {})", self.name(), self.rank(), self.size())
    }
}
