//! Gradients reduced in buckets while they are being computed.

use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::time::Duration;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{defaults, milliseconds};
use crate::data::{Element, Span, HOST};
use crate::device::Stream;
use crate::error::{check, Error, Result};
use crate::handles::ReducerHandle;
use crate::iteration::Iteration;
use crate::numbers::{Average, Dtype, ErrorCode};
use crate::plan::bucket_lists;
use crate::stats::{read_stats, OpStats};
use crate::tensor::{RawTensors, Tensor};

/// Options of [`BucketReducer::new`], the same on all ranks.
#[derive(Clone, Debug, Default)]
pub struct ReducerOptions {
    bucket_bytes: Option<usize>,
    first_bucket_bytes: Option<usize>,
    buckets: Vec<Vec<usize>>,
    average: Option<Average>,
    keep_own: bool,
    single_first_bucket: bool,
}

impl ReducerOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// A bucket is closed when it holds so much; 25 MiB by default.
    #[must_use]
    pub fn bucket_bytes(mut self, bytes: usize) -> Self {
        self.bucket_bytes = Some(bytes);
        self
    }

    /// The same for the bucket of the parameters that are declared first, which is launched last; 1 MiB by default.
    #[must_use]
    pub fn first_bucket_bytes(mut self, bytes: usize) -> Self {
        self.first_bucket_bytes = Some(bytes);
        self
    }

    /// Explicit buckets of parameter indices, in launch order; planned by default.
    #[must_use]
    pub fn buckets(mut self, buckets: &[Vec<usize>]) -> Self {
        self.buckets = buckets.to_vec();
        self
    }

    /// How gradients are averaged; [`Average::Pre`] by default.
    #[must_use]
    pub fn average(mut self, average: Average) -> Self {
        self.average = Some(average);
        self
    }

    /// Whether rank 0's parameters are copied to all ranks at creation, as they are by default.
    #[must_use]
    pub fn sync(mut self, on: bool) -> Self {
        self.keep_own = !on;
        self
    }

    /// One bucket per element type, as in PyTorch's first iteration.
    #[must_use]
    pub fn single_first_bucket(mut self, on: bool) -> Self {
        self.single_first_bucket = on;
        self
    }

    /// Calls with the options in the form of the C interface.
    fn with_raw<T>(&self, call: impl FnOnce(&sys::dsc_bucket_reducer_options_t) -> T) -> Result<T> {
        // SAFETY: the struct has so many bytes.
        let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_bucket_reducer_options_init(raw, bytes) })?;
        let indices: Vec<usize> = self.buckets.concat();
        let mut starts = vec![0];
        for bucket in &self.buckets {
            starts.push(starts[starts.len() - 1] + bucket.len());
        }
        if !self.buckets.is_empty() {
            raw.bucket_indices = indices.as_ptr();
            raw.bucket_starts = starts.as_ptr();
            raw.n_buckets = self.buckets.len();
        }
        raw.bucket_bytes = self.bucket_bytes.unwrap_or(raw.bucket_bytes);
        raw.first_bucket_bytes = self.first_bucket_bytes.unwrap_or(raw.first_bucket_bytes);
        raw.average = self.average.map_or(raw.average, Average::number);
        raw.sync = i32::from(!self.keep_own);
        raw.single_first_bucket = i32::from(self.single_first_bucket);
        Ok(call(&raw))
    }
}

const UNTIL_ITS_TIMEOUT: i32 = -1;

/// Who may touch a parameter's place in its bucket.
pub(crate) const FREE: u8 = 0;
/// A [`View`](crate::View), or a call that is copying into it.
pub(crate) const IN_USE: u8 = 1;
/// The library, until the iteration ends.
pub(crate) const MARKED: u8 = 2;

pub(crate) struct Param {
    pub(crate) count: usize,
    pub(crate) dtype: Dtype,
    pub(crate) device: i32,
    place: NonNull<c_void>,
    state: AtomicU8,
}

// SAFETY: the place is reached by whoever has claimed it through `state`, and between iterations by borrows.
unsafe impl Send for Param {}
// SAFETY: as above.
unsafe impl Sync for Param {}

/// Averages gradients over all ranks, in buckets that start as soon as they are full.
///
/// One iteration per training step: [`begin`](BucketReducer::begin), one mark per parameter,
/// [`finish`](Iteration::finish).
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let mut params = [vec![0.0f32; 100], vec![0.0f32; 10]];
/// let mut tensors: Vec<dsc::Tensor> = params.iter_mut().map(dsc::Tensor::new).collect();
/// let mut reducer = dsc::BucketReducer::new(&world, &mut tensors, &dsc::ReducerOptions::new())?;
///
/// let mut grads = [vec![1.0f32; 100], vec![2.0f32; 10]];
/// let iteration = reducer.begin()?;
/// for (index, grad) in grads.iter_mut().enumerate().rev() {
///     iteration.mark_ready(index, grad)?; // a full bucket starts by itself
/// }
/// iteration.finish()?; // now grads hold the mean over all ranks
/// assert_eq!((grads[0][0], grads[1][9]), (1.0, 2.0));
/// world.finalize()
/// # }
/// ```
///
/// # On a GPU
///
/// Parameters on the GPU that the communicator is bound to, as [`DeviceBuffer`](crate::DeviceBuffer)s, have their buckets
/// there, and their gradients come from there. [`begin_on`](BucketReducer::begin_on), [`Iteration::mark_ready_on`] and the
/// like name the streams that gradients are computed on; without them it is the default one. [`Iteration::finish`] waits
/// until the device is done, [`Iteration::finish_on`] does not.
///
/// # Threads
///
/// `begin` and `finish` take one thread at a time, so they need `&mut self` and the whole [`Iteration`]; gradients
/// may be marked by several threads at once. So `BucketReducer` and `Iteration` are [`Send`] and [`Sync`].
pub struct BucketReducer {
    handle: Option<ReducerHandle>,
    pub(crate) params: Vec<Param>,
    group: Arc<str>,
    /// Says whether the buckets are at rest and hold what the last iteration promised.
    at_rest: bool,
}

impl BucketReducer {
    /// Verifies that all ranks have the same parameters, plans the buckets, allocates them, and copies rank 0's
    /// parameters to all ranks. Collective.
    ///
    /// The parameters are given in forward order, and their memory is used during this call only.
    pub fn new(comm: &Comm, params: &mut [Tensor<'_>], options: &ReducerOptions) -> Result<Self> {
        let raw = RawTensors::new(params)?;
        let mut reducer = ptr::null_mut();
        let result = options.with_raw(|options| {
            // SAFETY: lists, options and the parameters' memory, which is borrowed mutably, outlive the call.
            unsafe {
                let (list, count) = (raw.list.as_ptr(), raw.list.len());
                sys::dsc_bucket_reducer_create(comm.raw(), list, count, options, &mut reducer)
            }
        })?;
        comm.check(result, "bucket_reducer_create")?;
        let handle = NonNull::new(reducer)
            .ok_or_else(|| Error::new(ErrorCode::Internal, "the library gave no reducer and no error".into()))?;
        let mut made = BucketReducer {
            handle: Some(ReducerHandle(handle)),
            params: Vec::new(),
            group: comm.shared.name.clone(),
            at_rest: true,
        };
        for (index, tensor) in params.iter().enumerate() {
            let place = made.find_place(index)?;
            let Span { count, dtype, device, .. } = tensor.span;
            made.params.push(Param { count, dtype, device, place, state: AtomicU8::new(FREE) });
        }
        Ok(made)
    }

    fn find_place(&self, index: usize) -> Result<NonNull<c_void>> {
        let mut view = ptr::null_mut();
        // SAFETY: the library checks the handle, and view outlives the call.
        check(unsafe { sys::dsc_bucket_reducer_grad_view(self.raw(), index, &mut view) })?;
        Ok(NonNull::new(view).unwrap_or(NonNull::<u64>::dangling().cast())) // a parameter without elements
    }

    /// The handle, or NULL, which the library refuses, after an iteration was abandoned.
    pub(crate) fn raw(&self) -> *mut sys::dsc_bucket_reducer_t {
        self.handle.as_ref().map_or(ptr::null_mut(), |handle| handle.0.as_ptr())
    }

    /// Starts an iteration.
    ///
    /// An iteration that is dropped without [`finish`](Iteration::finish) ends the reducer on all ranks, so that
    /// none waits for gradients that do not come.
    pub fn begin<'r, 'g>(&'r mut self) -> Result<Iteration<'r, 'g>> {
        self.begin_raw(ptr::null_mut())
    }

    /// As [`begin`](BucketReducer::begin) with parameters on the GPU: what is on the stream by now comes before anything
    /// of the iteration.
    pub fn begin_on<'r, 'g>(&'r mut self, stream: Stream<'_>) -> Result<Iteration<'r, 'g>> {
        self.begin_raw(stream.as_raw())
    }

    fn begin_raw<'r, 'g>(&'r mut self, stream: *mut c_void) -> Result<Iteration<'r, 'g>> {
        if self.handle.is_none() {
            let text =
                "begin: an iteration was dropped before finish(), or failed on the GPU, which ended this reducer; \
                make a new one";
            return Err(Error::new(ErrorCode::State, text.into()).in_group(&self.group));
        }
        // SAFETY: the library checks the handle.
        let result = unsafe { sys::dsc_bucket_reducer_begin(self.raw(), stream) };
        self.check(result, "bucket_reducer_begin")?;
        self.at_rest = false;
        for param in &mut self.params {
            *param.state.get_mut() = FREE;
        }
        Ok(Iteration::new(self))
    }

    /// Waits for all buckets and writes the results; called by [`Iteration::finish`].
    pub(crate) fn finish(&mut self) -> Result<()> {
        // SAFETY: the gradients that were marked ready are borrowed until the iteration is dropped, after this call, which
        // waits for the device.
        let done = unsafe { self.finish_raw(ptr::null_mut()) }.and_then(|()| self.settle());
        if matches!(&done, Err(error) if error.code != ErrorCode::State) && self.is_on_device() {
            self.abandon(); // which waits for what may still be written
        }
        done
    }

    /// # Safety
    ///
    /// Gradients on a device that were marked ready must stay until the stream is past what is put on it here.
    pub(crate) unsafe fn finish_raw(&mut self, stream: *mut c_void) -> Result<()> {
        // SAFETY: gradients in memory of the host are borrowed until the iteration is dropped, after this call; the caller
        // answers for others.
        let result = unsafe { sys::dsc_bucket_reducer_finish(self.raw(), stream) };
        self.check(result, "bucket_reducer_finish")?;
        self.at_rest = true;
        Ok(())
    }

    fn is_on_device(&self) -> bool {
        self.params.iter().any(|param| param.device != HOST)
    }

    fn settle(&self) -> Result<()> {
        if !self.is_on_device() || self.synchronize_raw(UNTIL_ITS_TIMEOUT)? {
            return Ok(());
        }
        let text = "finish: the device was not done within the time-out of the communicator";
        Err(Error::new(ErrorCode::Timeout, text.into()).in_group(&self.group))
    }

    /// Waits until all iterations that were finished are over on the GPU, but not longer than this; `false` when the time
    /// has passed. Asked before results are relied on that [`Iteration::finish_on`] has put on a stream: it tells a failure
    /// that came later.
    pub fn synchronize(&self, timeout: Duration) -> Result<bool> {
        self.synchronize_raw(milliseconds(timeout))
    }

    fn synchronize_raw(&self, timeout_ms: i32) -> Result<bool> {
        // SAFETY: the library checks the handle.
        let result = unsafe { sys::dsc_bucket_reducer_synchronize(self.raw(), timeout_ms) };
        self.check(result, "bucket_reducer_synchronize")?;
        Ok(result == sys::DSC_OK)
    }

    /// The address of a parameter's place in its bucket on the GPU: a gradient that is computed there, after `begin` and
    /// before it is marked, is never copied. Valid as long as the reducer.
    pub fn device_view<T: Element>(&self, index: usize) -> Result<*mut T> {
        let param = self.param(index)?;
        param.expect_type::<T>(index)?;
        if param.device == HOST {
            return Err(Error::invalid(format!("device_view: parameter {} is in memory of the host; see view", index)));
        }
        Ok(param.start())
    }

    /// Ends the reducer on all ranks; called for an iteration that is dropped without finish.
    pub(crate) fn abandon(&mut self) {
        self.handle = None;
    }

    /// The result for a parameter as it stands in its bucket, until the next iteration begins; zeros before the
    /// first one.
    pub fn view<T: Element>(&self, index: usize) -> Result<&[T]> {
        let param = self.param(index)?;
        param.expect_type::<T>(index)?;
        param.expect_on_host(index)?;
        if !self.at_rest || self.handle.is_none() {
            let text = "view: the last iteration was not finished, or failed: buckets hold nothing of use";
            return Err(Error::new(ErrorCode::State, text.into()).in_group(&self.group));
        }
        // SAFETY: the place has so many elements as long as the reducer lives, and after a finished iteration nobody
        // writes there until the next one begins, which needs the reducer mutably.
        Ok(unsafe { slice::from_raw_parts(param.start(), param.count) })
    }

    /// The buckets in launch order, as lists of parameter indices.
    pub fn buckets(&self) -> Result<Vec<Vec<usize>>> {
        let n = self.params.len();
        let (mut indices, mut starts, mut n_buckets) = (vec![0; n], vec![0; n + 1], 0);
        // SAFETY: both lists have the room that the function asks for.
        check(unsafe {
            sys::dsc_bucket_reducer_buckets(self.raw(), indices.as_mut_ptr(), starts.as_mut_ptr(), &mut n_buckets)
        })?;
        Ok(bucket_lists(&indices, &starts, n_buckets))
    }

    /// Running totals of the reducer's operations.
    pub fn stats(&self) -> Result<Vec<OpStats>> {
        read_stats(|stats, capacity, count| {
            // SAFETY: stats has capacity elements, and count outlives the call.
            unsafe { sys::dsc_bucket_reducer_stats(self.raw(), stats, capacity, count) }
        })
    }

    pub(crate) fn param(&self, index: usize) -> Result<&Param> {
        self.params.get(index).ok_or_else(|| {
            Error::invalid(format!("there is no parameter {}; this reducer has {}", index, self.params.len()))
        })
    }

    pub(crate) fn check(&self, result: sys::dsc_result_t, op: &str) -> Result<()> {
        check(result).map_err(|error| error.in_op(op).in_group(&self.group))
    }
}

impl Param {
    /// Takes the place from one who may give it: FREE only.
    pub(crate) fn claim(&self, index: usize) -> Result<()> {
        match self.state.compare_exchange(FREE, IN_USE, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(MARKED) => Err(Error::new(ErrorCode::State, format!("parameter {} was marked already", index))),
            Err(_) => {
                let text = format!("parameter {} is in use: its view, or a call in another thread", index);
                Err(Error::new(ErrorCode::State, text))
            }
        }
    }

    /// Gives the place, which the caller has claimed, to its next owner.
    pub(crate) fn give(&self, state: u8) {
        self.state.store(state, Ordering::Release);
    }

    pub(crate) fn start<T>(&self) -> *mut T {
        self.place.as_ptr().cast()
    }

    pub(crate) fn expect_on_host(&self, index: usize) -> Result<()> {
        if self.device == HOST {
            return Ok(());
        }
        let text = format!("parameter {} is on device {}, where no slice can be; see device_view", index, self.device);
        Err(Error::invalid(text))
    }

    pub(crate) fn expect_type<T: Element>(&self, index: usize) -> Result<()> {
        if T::DTYPE == self.dtype {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "parameter {} is of {:?}; the view is asked for as {:?}",
            index,
            self.dtype,
            T::DTYPE
        )))
    }
}

impl fmt::Debug for BucketReducer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "BucketReducer({} parameters, group {:?})", self.params.len(), self.group)
    }
}
