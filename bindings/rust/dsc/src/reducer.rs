//! Reduces gradients in buckets while other gradients are still being computed.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::milliseconds;
use crate::data::{Element, Span, HOST};
use crate::device::Stream;
use crate::error::{check, Error, Result};
use crate::handles::ReducerHandle;
use crate::hook::Hook;
use crate::iteration::Iteration;
use crate::numbers::{Dtype, ErrorCode};
use crate::plan::bucket_lists;
use crate::reducer_options::ReducerOptions;
use crate::tensor::{RawTensors, Tensor};

const UNTIL_ITS_TIMEOUT: i32 = -1;

/// State of a parameter's memory in its bucket: nothing uses it.
pub(crate) const FREE: u8 = 0;
/// State: a [`View`](crate::View) uses the memory, or a call that copies into the memory.
pub(crate) const IN_USE: u8 = 1;
/// State: the library uses the memory until the iteration ends.
pub(crate) const MARKED: u8 = 2;

/// A parameter, with the state of its memory in the bucket. During an iteration, only the code that has claimed the
/// memory in `state` may use it; between iterations, only code that borrows the reducer.
pub(crate) struct Param {
    pub(crate) count: usize,
    /// The type of gradients.
    pub(crate) dtype: Dtype,
    /// The type of the memory in the bucket.
    view_dtype: Dtype,
    pub(crate) device: i32,
    /// The number of elements in a row, if gradients are sparse. The parameter then has no memory in a bucket.
    pub(crate) sparse_row: Option<usize>,
    state: AtomicU8,
    /// Whether the parameter was marked in this iteration or, if a static graph is known, in the first one.
    marked: AtomicBool,
}

/// Averages gradients over all ranks, in buckets. The reduction of a bucket starts as soon as all its gradients are
/// ready.
///
/// Each training step has one iteration: [`begin`](BucketReducer::begin), one mark per parameter,
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
///     iteration.mark_ready(index, grad)?; // a full bucket is launched automatically
/// }
/// iteration.finish()?; // now grads hold the mean over all ranks
/// assert_eq!((grads[0][0], grads[1][9]), (1.0, 2.0));
/// world.finalize()
/// # }
/// ```
///
/// # On a GPU
///
/// Parameters may be on the GPU that the communicator is bound to, as [`DeviceBuffer`](crate::DeviceBuffer)s. Then
/// their buckets and gradients are also on the GPU. [`begin_on`](BucketReducer::begin_on), [`Iteration::mark_ready_on`]
/// and similar calls take the stream on which gradients are computed; the other calls use the default stream.
/// [`Iteration::finish`] waits until the GPU is done, [`Iteration::finish_on`] does not.
///
/// # Threads
///
/// `begin` and `finish` may be called by one thread at a time, so they need `&mut self` and the whole [`Iteration`].
/// Several threads may mark gradients at the same time, so `BucketReducer` and `Iteration` are [`Send`] and [`Sync`].
///
/// # Views
///
/// After the first iteration the buckets are rebuilt in the order in which gradients became ready
/// ([`ReducerOptions::rebuild`]). After a rank has called [`view`](BucketReducer::view),
/// [`device_view`](BucketReducer::device_view) or [`Iteration::grad_view`], they are not rebuilt again, because these
/// return addresses in buckets. [`read_grad`](BucketReducer::read_grad) does not prevent rebuilding.
pub struct BucketReducer {
    /// Declared before the hook, so that it is destroyed first: the library may call the hook until then.
    handle: Option<ReducerHandle>,
    pub(crate) hook: Option<Arc<Hook>>,
    pub(crate) params: Vec<Param>,
    pub(crate) group: Arc<str>,
    /// Whether no iteration is in progress, and the buckets hold the results of the last iteration.
    pub(crate) at_rest: bool,
    /// Whether the next iteration is reduced.
    pub(crate) sync: bool,
    /// Whether the graph is static, so that parameters may be marked several times.
    pub(crate) marks_repeat: bool,
    /// Whether the first iteration of a static graph has ended.
    counted: bool,
    /// The buffers that are registered for synchronization.
    pub(crate) buffers: Vec<Place>,
    /// A lock that reducers under one join share, because only one thread at a time may use them.
    pub(crate) joined: Option<Arc<Mutex<()>>>,
}

impl BucketReducer {
    /// Verifies that all ranks have the same parameters, plans and allocates the buckets, and copies rank 0's
    /// parameters to all ranks. Collective.
    ///
    /// The parameters must be in forward order. Their memory is used only during this call.
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
        let handle = NonNull::new(reducer).ok_or_else(|| {
            Error::new(ErrorCode::Internal, "the library returned neither a reducer nor an error".into())
        })?;
        let param = |tensor: &Tensor<'_>| {
            let Span { count, dtype, device, .. } = tensor.span;
            let (view_dtype, sparse_row) = (options.view_dtype(dtype), tensor.sparse_row());
            let (state, marked) = (AtomicU8::new(FREE), AtomicBool::new(false));
            Param { count, dtype, view_dtype, device, sparse_row, state, marked }
        };
        Ok(BucketReducer {
            handle: Some(ReducerHandle(handle)),
            hook: None,
            params: params.iter().map(param).collect(),
            group: comm.shared.name.clone(),
            at_rest: true,
            sync: true,
            marks_repeat: options.marks_repeat(),
            counted: false,
            buffers: Vec::new(),
            joined: None,
        })
    }

    /// Returns the address of a parameter's gradient in its bucket. It is valid until the next iteration begins.
    pub(crate) fn place<T: Element>(&self, index: usize) -> Result<*mut T> {
        let mut view = ptr::null_mut();
        // SAFETY: the library checks the handle, and view outlives the call.
        let result = unsafe { sys::dsc_bucket_reducer_grad_view(self.raw(), index, &mut view) };
        self.check(result, "bucket_reducer_grad_view")?;
        // A parameter without elements may have no address.
        Ok(if view.is_null() { NonNull::dangling().as_ptr() } else { view.cast() })
    }

    /// Returns the handle, or NULL after an iteration was abandoned. The library refuses NULL.
    pub(crate) fn raw(&self) -> *mut sys::dsc_bucket_reducer_t {
        self.handle.as_ref().map_or(ptr::null_mut(), |handle| handle.0.as_ptr())
    }

    /// Starts an iteration.
    ///
    /// Dropping an iteration without [`finish`](Iteration::finish) ends the reducer on all ranks, so that no rank waits
    /// for gradients that will not arrive.
    ///
    /// Under a [`Join`](crate::Join), this call is collective.
    pub fn begin<'r, 'g>(&'r mut self) -> Result<Iteration<'r, 'g>> {
        self.begin_raw(ptr::null_mut())
    }

    /// Does the same as [`begin`](BucketReducer::begin) with parameters on the GPU. The iteration is ordered after the
    /// work that is already on the stream.
    pub fn begin_on<'r, 'g>(&'r mut self, stream: Stream<'_>) -> Result<Iteration<'r, 'g>> {
        self.begin_raw(stream.as_raw())
    }

    fn begin_raw<'r, 'g>(&'r mut self, stream: *mut c_void) -> Result<Iteration<'r, 'g>> {
        let joined = self.joined.clone();
        let _turn = joined.as_ref().map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: the library checks the handle.
        let result = unsafe { sys::dsc_bucket_reducer_begin(self.raw(), stream) };
        self.check(result, "bucket_reducer_begin")?;
        self.at_rest = false;
        for param in &mut self.params {
            *param.state.get_mut() = FREE;
            *param.marked.get_mut() &= self.counted;
        }
        Ok(Iteration::new(self))
    }

    /// Waits for all buckets and writes the results. Called by [`Iteration::finish`].
    pub(crate) fn finish(&mut self) -> Result<()> {
        // SAFETY: the gradients that were marked ready are borrowed until the iteration is dropped after this call,
        // which waits for the GPU.
        let done = unsafe { self.finish_raw(ptr::null_mut()) }.and_then(|()| self.settle());
        if matches!(&done, Err(error) if error.code != ErrorCode::State) && self.is_on_device() {
            self.abandon(); // this waits for memory that may still be written
        }
        done
    }

    /// # Safety
    ///
    /// Gradients on a GPU that were marked ready must stay valid until the stream has passed the work of this call.
    pub(crate) unsafe fn finish_raw(&mut self, stream: *mut c_void) -> Result<()> {
        // SAFETY: gradients in host memory are borrowed until the iteration is dropped after this call. The caller
        // guarantees that other gradients are valid.
        let result = unsafe { sys::dsc_bucket_reducer_finish(self.raw(), stream) };
        self.counted |= self.marks_repeat && self.sync; // otherwise the reducer has ended
        self.check(result, "bucket_reducer_finish")?;
        self.at_rest = true;
        Ok(())
    }

    fn is_on_device(&self) -> bool {
        self.params.iter().any(|param| param.device != HOST)
    }

    /// Waits for the GPU, which writes gradients that are borrowed until the iteration is dropped.
    pub(crate) fn settle_or_abandon(&mut self) -> Result<()> {
        let settled = self.settle();
        if settled.is_err() && self.is_on_device() {
            self.abandon(); // this waits for memory that may still be written
        }
        settled
    }

    fn settle(&self) -> Result<()> {
        if !self.is_on_device() || self.synchronize_raw(UNTIL_ITS_TIMEOUT)? {
            return Ok(());
        }
        let text = "finish: the device did not complete within the timeout of the communicator";
        Err(Error::new(ErrorCode::Timeout, text.into()).in_group(&self.group))
    }

    /// Waits until the GPU has completed all finished iterations, but at most `timeout`. Returns `false` on a time-out.
    /// Call it before you rely on results of [`Iteration::finish_on`], because it returns failures that happened later.
    pub fn synchronize(&self, timeout: Duration) -> Result<bool> {
        self.synchronize_raw(milliseconds(timeout))
    }

    fn synchronize_raw(&self, timeout_ms: i32) -> Result<bool> {
        // SAFETY: the library checks the handle.
        let result = unsafe { sys::dsc_bucket_reducer_synchronize(self.raw(), timeout_ms) };
        self.check(result, "bucket_reducer_synchronize")?;
        Ok(result == sys::DSC_OK)
    }

    /// Returns the address of a parameter's gradient in its bucket on the GPU. A gradient that is computed there, after
    /// `begin` and before it is marked, is never copied. The address may change at the next `begin`, so call this
    /// function again then.
    pub fn device_view<T: Element>(&self, index: usize) -> Result<*mut T> {
        let param = self.param(index)?;
        param.expect_place::<T>(index)?;
        if param.device == HOST {
            return Err(Error::invalid(format!(
                "device_view: parameter {} is in host memory; use view() instead",
                index
            )));
        }
        self.place(index)
    }

    /// Ends the reducer on all ranks. Called if an iteration is dropped without finish.
    pub(crate) fn abandon(&mut self) {
        self.handle = None;
    }

    /// Returns the result for a parameter in its bucket, valid until the next iteration begins. Before the first one,
    /// it is zeros.
    pub fn view<T: Element>(&self, index: usize) -> Result<&[T]> {
        let param = self.param(index)?;
        param.expect_place::<T>(index)?;
        param.expect_on_host(index)?;
        self.expect_at_rest("view")?;
        // SAFETY: the memory has param.count elements of this type as long as the reducer exists. After a finished
        // iteration it is not written until the next one begins. That, and all calls that write between iterations,
        // need a mutable borrow of the reducer.
        Ok(unsafe { slice::from_raw_parts(self.place(index)?, param.count) })
    }

    /// Returns a copy of the result of [`view`](BucketReducer::view). It does not prevent rebuilding.
    pub fn read_grad<T: Element>(&self, index: usize) -> Result<Vec<T>> {
        let param = self.param(index)?;
        param.expect_place::<T>(index)?;
        param.expect_on_host(index)?;
        self.expect_at_rest("read_grad")?;
        let mut gradient: Vec<T> = Vec::with_capacity(param.count);
        // SAFETY: the library checks the handle. The list has the capacity for the gradient, which has this type.
        let result =
            unsafe { sys::dsc_bucket_reducer_read_grad(self.raw(), index, gradient.as_mut_ptr().cast::<c_void>()) };
        self.check(result, "bucket_reducer_read_grad")?;
        // SAFETY: the call has succeeded, so it has written all elements.
        unsafe { gradient.set_len(param.count) };
        Ok(gradient)
    }

    pub(crate) fn expect_at_rest(&self, call: &str) -> Result<()> {
        if self.at_rest && self.handle.is_some() {
            return Ok(());
        }
        let text =
            format!("{}: the last iteration failed or was not finished, so the buckets contain no results", call);
        Err(Error::new(ErrorCode::State, text).in_group(&self.group))
    }

    /// Returns the buckets in launch order, as lists of parameter indices.
    pub fn buckets(&self) -> Result<Vec<Vec<usize>>> {
        let n = self.params.len();
        let (mut indices, mut starts, mut n_buckets) = (vec![0; n], vec![0; n + 1], 0);
        // SAFETY: both lists are as large as the function needs.
        check(unsafe {
            sys::dsc_bucket_reducer_buckets(self.raw(), indices.as_mut_ptr(), starts.as_mut_ptr(), &mut n_buckets)
        })?;
        Ok(bucket_lists(&indices, &starts, n_buckets))
    }

    pub(crate) fn param(&self, index: usize) -> Result<&Param> {
        self.params.get(index).ok_or_else(|| {
            Error::invalid(format!(
                "there is no parameter {}; the number of parameters is {}",
                index,
                self.params.len()
            ))
        })
    }

    /// Returns an error for a parameter that a static graph does not use. The library reduces zeros for it as soon as
    /// another parameter is marked.
    pub(crate) fn expect_in_graph(&self, index: usize) -> Result<()> {
        if !self.counted || self.param(index)?.marked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let text = format!("parameter {} had no gradient in the first iteration of this static graph", index);
        Err(Error::new(ErrorCode::State, text).in_group(&self.group))
    }

    pub(crate) fn note_mark(&self, index: usize) {
        if !self.counted {
            self.params[index].marked.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn check(&self, result: sys::dsc_result_t, op: &str) -> Result<()> {
        check(result).map_err(|error| self.explain(error, op))
    }

    /// Replaces an error if a more precise one is known: that the reducer has ended, or the error of its hook.
    pub(crate) fn explain(&self, error: Error, op: &str) -> Error {
        let error = error.in_op(op).in_group(&self.group);
        if self.handle.is_none() {
            let call = op.trim_start_matches("bucket_reducer_");
            let message = format!(
                "{}: this reducer has ended, because an iteration failed on the GPU or was dropped before finish(); create a new reducer",
                call
            );
            return Error { code: ErrorCode::State, message, ..error };
        }
        match &self.hook {
            Some(hook) => hook.explain(error),
            None => error,
        }
    }
}

/// The location of a tensor, only for comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    address: usize,
    count: usize,
    dtype: Dtype,
    device: i32,
}

impl Place {
    pub(crate) fn of(tensor: &Tensor<'_>) -> Self {
        let Span { ptr, count, dtype, device } = tensor.span;
        Place { address: ptr as usize, count, dtype, device }
    }
}

impl Param {
    /// Claims the memory, and returns its previous state. The state must be FREE. With `again` it may also be MARKED,
    /// if only the library knows whether another mark may follow.
    pub(crate) fn claim(&self, index: usize, again: bool) -> Result<u8> {
        let from = |state| self.state.compare_exchange(state, IN_USE, Ordering::Acquire, Ordering::Acquire);
        let claimed = match from(FREE) {
            Err(MARKED) if again => from(MARKED),
            other => other,
        };
        claimed.map_err(|state| {
            let text = match state {
                MARKED => format!("parameter {} has already been marked ready or unused", index),
                _ => format!("parameter {} is in use by its view or by a call in another thread", index),
            };
            Error::new(ErrorCode::State, text)
        })
    }

    /// Sets the state of the memory, which the caller has claimed.
    pub(crate) fn give(&self, state: u8) {
        self.state.store(state, Ordering::Release);
    }

    pub(crate) fn expect_on_host(&self, index: usize) -> Result<()> {
        if self.device == HOST {
            return Ok(());
        }
        let text = format!(
            "parameter {} is on device {} and its view cannot be a slice; use device_view() instead",
            index, self.device
        );
        Err(Error::invalid(text))
    }

    pub(crate) fn expect_dense(&self, index: usize) -> Result<()> {
        if self.sparse_row.is_none() {
            return Ok(());
        }
        Err(Error::invalid(format!("parameter {} has sparse gradients; use mark_sparse() and sparse() instead", index)))
    }

    /// Checks that the parameter has memory in a bucket, of this type.
    pub(crate) fn expect_place<T: Element>(&self, index: usize) -> Result<()> {
        self.expect_dense(index)?;
        self.expect_type::<T>(index)
    }

    pub(crate) fn expect_type<T: Element>(&self, index: usize) -> Result<()> {
        if T::DTYPE == self.view_dtype {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the view of parameter {} has elements of {:?}, but the call is for elements of {:?}",
            index,
            self.view_dtype,
            T::DTYPE
        )))
    }
}
