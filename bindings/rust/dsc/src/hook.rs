//! Communication hooks: functions that reduce a bucket in place of the reducer's all-reduce.

use std::ffi::{c_void, CString};
use std::fmt;
use std::mem::{forget, take};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use dsc_sys as sys;

use crate::callback_error::{text_of, write_error};
use crate::comm::Comm;
use crate::convert::{c_string, list, natural, text};
use crate::data::{Element, Raw};
use crate::device::{DeviceSlice, Stream};
use crate::error::{Error, Result};
use crate::numbers::{Dtype, ErrorCode};
use crate::reducer::BucketReducer;
use crate::reducer_features::entries;

/// The result of a hook. Any error ends the iteration on this rank, and the reducer on all ranks. An [`Error`] of this
/// crate is returned to the program unchanged.
pub type HookResult = std::result::Result<(), Box<dyn std::error::Error>>;

type Function = Box<dyn FnMut(&mut Bucket<'_>) -> HookResult + Send>;

const FAILED: i32 = -1;

/// Lists the built-in hooks, one per line: name, options with their defaults, and a description.
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// assert!(dsc::hooks()?.iter().any(|line| line.starts_with("powersgd(")));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "dsc_bucket_hooks")]
pub fn hooks() -> Result<Vec<String>> {
    // SAFETY: room has capacity bytes, and bytes outlives the call.
    let lines = text(|room, capacity, bytes| unsafe { sys::dsc_bucket_hooks(room, capacity, bytes) })?;
    Ok(lines.lines().map(str::to_owned).collect())
}

/// A complete bucket, as hooks get it; see [`BucketReducer::set_hook`].
pub struct Bucket<'b> {
    raw: &'b sys::dsc_bucket_t,
    comm: &'b Comm,
}

impl<'b> Bucket<'b> {
    /// The reducer's group, for the hook's operations. All ranks must call the same operations in the same order.
    pub fn comm(&self) -> &'b Comm {
        self.comm
    }

    /// The number of the bucket, from 0 in launch order.
    pub fn index(&self) -> usize {
        self.raw.index
    }

    /// Whether it is the last bucket of the iteration.
    pub fn is_last(&self) -> bool {
        self.raw.is_last != 0
    }

    /// The number of ranks that take part. The mean is the sum divided by this number.
    pub fn divisor(&self) -> usize {
        natural(self.raw.divisor)
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        Dtype::from_number(self.raw.dtype)
    }

    /// The number of elements. On a GPU it includes the padding between parameters.
    pub fn len(&self) -> usize {
        self.raw.count
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.raw.count == 0
    }

    /// The indices of the parameters in the bucket, in the order of the buffer.
    pub fn params(&self) -> &'b [usize] {
        // SAFETY: there are n_params indices, valid during the call.
        unsafe { entries(self.raw.params, self.raw.n_params) }
    }

    /// The gradients one after another, not yet divided. The hook must write the mean over all ranks here.
    ///
    /// The memory may be freed when the reducer rebuilds its buckets, so a hook cannot keep the slice:
    ///
    /// ```compile_fail,E0521
    /// # fn go(reducer: &mut dsc::BucketReducer) -> dsc::Result<()> {
    /// let mut kept: Vec<&'static mut [f32]> = Vec::new();
    /// reducer.set_hook("keeps", move |bucket| {
    ///     kept.push(bucket.buffer_mut::<f32>()?);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn buffer_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        self.expect_type::<T>()?;
        self.expect_on_host()?;
        if self.is_empty() {
            return Ok(&mut []);
        }
        // SAFETY: there are count elements of this type, and until the hook returns nothing else accesses them.
        Ok(unsafe { slice::from_raw_parts_mut(self.raw.buffer.cast::<T>(), self.raw.count) })
    }

    /// Does the same as [`buffer_mut`](Bucket::buffer_mut), for types that Rust lacks.
    pub fn raw_mut(&mut self) -> Result<Raw<&mut [u8]>> {
        self.expect_on_host()?;
        let bytes: &mut [u8] = match self.raw.count * self.dtype().bytes() {
            0 => &mut [],
            // SAFETY: as in buffer_mut(). Every type may be read and written as bytes.
            bytes => unsafe { slice::from_raw_parts_mut(self.raw.buffer.cast::<u8>(), bytes) },
        };
        Raw::new(bytes, self.dtype())
    }

    /// The parts of the buffer that belong to the parameters, in the order of [`params`](Bucket::params).
    pub fn gradients_mut<T: Element>(&mut self) -> Result<Vec<&mut [T]>> {
        let n = self.raw.n_params;
        // SAFETY: there are n offsets and n counts, valid during the call.
        let (offsets, counts) = unsafe { (entries(self.raw.offsets, n), entries(self.raw.counts, n)) };
        let (mut rest, mut at, mut parts) = (self.buffer_mut::<T>()?, 0, Vec::with_capacity(n));
        for (offset, count) in offsets.iter().zip(counts) {
            let skipped = offset.checked_sub(at).filter(|skipped| skipped + count <= rest.len());
            let skipped = skipped.ok_or_else(|| {
                Error::new(ErrorCode::Internal, "the parts of a bucket are not in the order of its parameters".into())
            })?;
            let (part, after) = take(&mut rest)[skipped..].split_at_mut(*count);
            parts.push(part);
            (rest, at) = (after, offset + count);
        }
        Ok(parts)
    }

    /// On a GPU, the stream on which the gradients are ordered. The iteration ends only after all work that the hook
    /// queues on it.
    pub fn stream(&self) -> Option<Stream<'b>> {
        // SAFETY: the reducer's stream belongs to the device of its communicator, and outlives the call.
        Some(self.raw.stream).filter(|stream| !stream.is_null()).map(|stream| unsafe { Stream::from_raw(stream) })
    }

    /// Does the same as [`buffer_mut`](Bucket::buffer_mut) on a GPU, for operations on [`stream`](Bucket::stream).
    pub fn device_buffer<T: Element>(&mut self) -> Result<DeviceSlice<'_, T>> {
        self.expect_type::<T>()?;
        match self.comm.device()? {
            // SAFETY: the device has count elements of this type there, and until the hook returns only work on the
            // stream accesses them.
            Some(device) if !self.raw.stream.is_null() => {
                Ok(unsafe { DeviceSlice::from_raw(self.raw.buffer.cast::<T>(), self.raw.count, device) })
            }
            _ => Err(Error::invalid(format!("bucket {} is in host memory; use buffer_mut() instead", self.index()))),
        }
    }

    fn expect_on_host(&self) -> Result<()> {
        if self.raw.stream.is_null() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "bucket {} is on a GPU and cannot be a slice; use device_buffer() instead",
            self.index()
        )))
    }

    fn expect_type<T: Element>(&self) -> Result<()> {
        if T::DTYPE == self.dtype() {
            return Ok(());
        }
        let (index, dtype) = (self.index(), self.dtype());
        Err(Error::invalid(format!(
            "bucket {} has elements of {:?}, but the call is for elements of {:?}",
            index,
            dtype,
            T::DTYPE
        )))
    }
}

impl fmt::Debug for Bucket<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Bucket({}, parameters {:?}, {} elements)", self.index(), self.params(), self.len())
    }
}

/// The target of the library's context pointer: a function, and the error that it returned.
pub(crate) struct Hook {
    name: String,
    running: Mutex<Running>,
    failure: Mutex<Option<Error>>,
}

struct Running {
    function: Function,
    /// The reducer's group for the function. The library ends the group with the hook; dropping it after that has no
    /// effect.
    comm: Option<Comm>,
}

impl Hook {
    fn new(name: &str, function: Function) -> Self {
        let running = Mutex::new(Running { function, comm: None });
        Hook { name: name.to_owned(), running, failure: Mutex::new(None) }
    }

    fn call(&self, raw: &sys::dsc_bucket_t) -> Result<()> {
        let mut guard = match self.running.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(ErrorCode::Reentrant, "the hook was called again before it returned".into()));
            }
        };
        let Running { function, comm } = &mut *guard;
        if comm.is_none() {
            *comm = Comm::from_group(raw.comm)?;
        }
        let comm = comm.as_ref().ok_or_else(|| {
            Error::new(ErrorCode::Internal, "the library returned neither a group nor an error".into())
        })?;
        function(&mut Bucket { raw, comm }).map_err(|cause| self.told(raw.index, cause))
    }

    /// Converts the error of a function: an error of this crate stays unchanged, others are converted to their text.
    fn told(&self, bucket: usize, cause: Box<dyn std::error::Error>) -> Error {
        match cause.downcast::<Error>() {
            Ok(error) => *error,
            Err(cause) => self.failed(bucket, &cause.to_string()),
        }
    }

    fn failed(&self, bucket: usize, words: &str) -> Error {
        Error::new(ErrorCode::Callback, format!("hook {} failed on bucket {}: {}", self.name, bucket, words))
    }

    fn note(&self, error: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Replaces the library's error by the error of the function, if there is one.
    pub(crate) fn explain(&self, error: Error) -> Error {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*failure, error.code) {
            (Some(cause), ErrorCode::Callback) => {
                Error { op: cause.op.clone().or(error.op), group: cause.group.clone().or(error.group), ..cause.clone() }
            }
            (Some(cause), ErrorCode::Revoked) if !error.message.contains(&cause.message) => {
                Error { message: format!("{}: {}", error.message, cause.message), ..error }
            }
            _ => error,
        }
    }
}

/// The function that the library calls.
unsafe extern "C" fn receive(
    context: *mut c_void,
    bucket: *const sys::dsc_bucket_t,
    _work: *mut *mut sys::dsc_work_t,
) -> i32 {
    // SAFETY: the context is the Hook of set_hook(), which the reducer keeps as long as the library may call it.
    let hook = unsafe { &*context.cast::<Hook>() };
    // SAFETY: the library passes a bucket that is valid until this function returns.
    let bucket = unsafe { &*bucket };
    let (error, words) = match catch_unwind(AssertUnwindSafe(|| hook.call(bucket))) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => (error.clone(), error.message),
        Err(panic) => {
            let words = format!("it panicked: {}", text_of(&*panic));
            forget(panic); // its drop might panic, and a panic must not leave this function
            (hook.failed(bucket.index, &words), words)
        }
    };
    // SAFETY: error has error_capacity bytes during this call.
    unsafe { write_error(bucket.error, bucket.error_capacity, &words) };
    hook.note(error);
    FAILED
}

/// # Communication hooks
impl BucketReducer {
    /// Sets a function that reduces buckets in place of the reducer's all-reduce. It gets each complete bucket, in
    /// launch order, which is the same on all ranks. It must write the mean over all ranks into the bucket. The option
    /// [`average`](crate::ReducerOptions::average) then has no effect.
    ///
    /// The function runs on the threads that mark gradients and finish iterations, one at a time, and may call
    /// operations of [`Bucket::comm`]. If it returns an error or panics, the mark or `finish` in which it ran returns
    /// an [`Error`], and the reducer ends on all ranks.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// # let world = dsc::init()?;
    /// # let mut param = vec![0.0f32; 4];
    /// # let mut tensors = [dsc::Tensor::new(&mut param)];
    /// # let mut reducer = dsc::BucketReducer::new(&world, &mut tensors, &dsc::ReducerOptions::new())?;
    /// reducer.set_hook("mean of the clipped", |bucket| {
    ///     let divisor = bucket.divisor() as f32;
    ///     let comm = bucket.comm();
    ///     let gradients = bucket.buffer_mut::<f32>()?;
    ///     gradients.iter_mut().for_each(|x| *x = x.clamp(-1.0, 1.0) / divisor);
    ///     comm.all_reduce(gradients, dsc::Op::Sum)?;
    ///     Ok(())
    /// })?;
    /// let mut grad = vec![3.0f32; 4];
    /// let iteration = reducer.begin()?;
    /// iteration.mark_ready(0, &mut grad)?;
    /// iteration.finish()?;
    /// assert_eq!(grad, [1.0; 4]);
    /// # world.finalize()
    /// # }
    /// ```
    ///
    /// A function that borrows does not compile, because the reducer may call it after the borrow ends:
    ///
    /// ```compile_fail
    /// # fn go(reducer: &mut dsc::BucketReducer) -> dsc::Result<()> {
    /// let mut calls = 0;
    /// reducer.set_hook("counts", |_| {
    ///     calls += 1;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn set_hook<F>(&mut self, name: &str, hook: F) -> Result<()>
    where
        F: FnMut(&mut Bucket<'_>) -> HookResult + Send + 'static,
    {
        let c_name = c_string("the name of a hook", name)?;
        let hook = Arc::new(Hook::new(name, Box::new(hook)));
        let context = Arc::as_ptr(&hook) as *mut c_void;
        // SAFETY: receive() expects this context. self keeps it alive until the library has another hook or the reducer
        // is destroyed, and it is only shared.
        let result = unsafe { sys::dsc_bucket_reducer_set_hook(self.raw(), Some(receive), context, c_name.as_ptr()) };
        self.check(result, "bucket_reducer_set_hook")?;
        self.hook = Some(hook);
        Ok(())
    }

    /// Selects a built-in hook by its name, with options in parentheses, such as `"bf16(powersgd(rank=4))"`. [`hooks`]
    /// lists them. `None` removes the hook. Collective.
    pub fn use_hook(&mut self, spec: Option<&str>) -> Result<()> {
        let spec: Option<CString> = spec.map(|spec| c_string("a hook", spec)).transpose()?;
        let spec = spec.as_ref().map_or(ptr::null(), |spec| spec.as_ptr());
        // SAFETY: the library checks the handle; the text outlives the call.
        let result = unsafe { sys::dsc_bucket_reducer_use_hook(self.raw(), spec) };
        self.check(result, "bucket_reducer_use_hook")?;
        self.hook = None;
        Ok(())
    }

    /// Returns the state of the built-in hook on this rank, for a checkpoint. It is empty if the hook has no state.
    pub fn save_hook(&mut self) -> Result<Vec<u8>> {
        let state = list(0, 0u8, |state, capacity, bytes| {
            // SAFETY: the library checks the handle; state has capacity bytes, and bytes outlives the call.
            unsafe { sys::dsc_bucket_reducer_save_hook(self.raw(), state.cast(), capacity, bytes) }
        });
        state.map_err(|error| self.explain(error, "bucket_reducer_save_hook"))
    }

    /// Restores a state from [`save_hook`](BucketReducer::save_hook), with the same rank, hook, parameters and buckets.
    /// The state is lost if the reducer rebuilds its buckets later. So load it after the first iteration, or turn
    /// rebuilding off.
    pub fn load_hook(&mut self, state: &[u8]) -> Result<()> {
        // SAFETY: the library checks the handle, and reads the bytes during the call.
        let result = unsafe { sys::dsc_bucket_reducer_load_hook(self.raw(), state.as_ptr().cast(), state.len()) };
        self.check(result, "bucket_reducer_load_hook")
    }
}
