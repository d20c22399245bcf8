//! One iteration of a reducer: the program marks gradients as ready, then waits for the results.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::slice;

use dsc_sys as sys;

use crate::clip::ClipOptions;
use crate::data::{Data, DataMut, Element, Span, HOST};
use crate::device::Stream;
use crate::error::{Error, Result};
use crate::reducer::{BucketReducer, FREE, MARKED};

/// An iteration of a [`BucketReducer`], from `begin` to [`finish`](Iteration::finish).
///
/// Gradients that were marked ready are borrowed until then. The library writes them only in `finish`, so a forgotten
/// iteration does not write them (a GPU may still read them). Dropping an iteration ends the reducer on all ranks.
///
/// ```compile_fail
/// # fn go(reducer: &mut dsc::BucketReducer) -> dsc::Result<()> {
/// let mut grad = vec![1.0f32; 10];
/// let iteration = reducer.begin()?;
/// iteration.mark_ready(0, &mut grad)?;
/// grad[0] = 2.0; // error: the gradient is borrowed until finish()
/// iteration.finish()
/// # }
/// ```
pub struct Iteration<'r, 'g> {
    reducer: &'r mut BucketReducer,
    finished: bool,
    /// An invariant lifetime, so that the lifetime of the gradients cannot be shortened.
    gradients: PhantomData<fn(&'g mut ()) -> &'g mut ()>,
}

impl<'r, 'g> Iteration<'r, 'g> {
    pub(crate) fn new(reducer: &'r mut BucketReducer) -> Self {
        Iteration { reducer, finished: false, gradients: PhantomData }
    }

    /// Adds a gradient to the sum of this rank for a parameter, without marking it ready. It is for several backward
    /// passes per step, and does not communicate.
    pub fn accumulate<G: Data + ?Sized>(&self, index: usize, gradient: &G) -> Result<()> {
        let span = self.fit(index, gradient.span())?;
        if span.is_on_device() {
            let text =
                "accumulate: the gradient is on a GPU, which reads it after this call; expected accumulate_on() with a stream";
            return Err(Error::invalid(text.into()));
        }
        self.accumulate_raw(index, span, ptr::null_mut())
    }

    /// Does the same as [`accumulate`](Iteration::accumulate) with a gradient on the GPU, on a stream. The gradient is
    /// borrowed for the iteration. It must not change until the stream has passed this call.
    pub fn accumulate_on<G: Data + ?Sized>(&self, index: usize, gradient: &'g G, stream: Stream<'g>) -> Result<()> {
        self.accumulate_raw(index, self.fit(index, gradient.span())?, stream.as_raw())
    }

    fn accumulate_raw(&self, index: usize, gradient: Span, stream: *mut c_void) -> Result<()> {
        let param = self.reducer.param(index)?;
        self.reducer.expect_in_graph(index)?;
        let before = param.claim(index, self.reducer.marks_repeat)?;
        // SAFETY: the gradient has as many elements as the parameter and is only read. It outlives the call, or on a
        // GPU the iteration. This call has claimed the parameter's memory in the bucket.
        let result = unsafe { sys::dsc_bucket_reducer_accumulate(self.reducer.raw(), index, gradient.ptr, stream) };
        param.give(before);
        self.reducer.check(result, "bucket_reducer_accumulate")
    }

    /// Marks a parameter's gradient as ready; an accumulated sum is added to it. The last gradient of a bucket starts
    /// the bucket's reduction.
    ///
    /// After [`finish`](Iteration::finish) the result is in `gradient`, which is borrowed until then. For a gradient
    /// with a shorter life, use [`mark_ready_copy`](Iteration::mark_ready_copy). In an iteration without
    /// [sync](BucketReducer::set_sync), the gradient is only added to this rank's sum, and is not changed.
    ///
    /// Any thread may call it, several at the same time.
    pub fn mark_ready<G: DataMut + ?Sized>(&self, index: usize, gradient: &'g mut G) -> Result<()> {
        let span = self.fit(index, gradient.span_mut())?;
        self.mark(index, span, ptr::null_mut())
    }

    /// Copies a gradient into its bucket and marks it as ready. It is borrowed only during this call.
    ///
    /// It is for gradients that are made in a callback, such as the backward pass of
    /// [`pipe_run`](crate::Comm::pipe_run). The callback uses a shared reference to the iteration. An accumulated sum
    /// is added to the gradient. After [`finish`](Iteration::finish) the result is in the parameter's
    /// [`view`](BucketReducer::view); [`read_grad`](BucketReducer::read_grad) gives a copy. To compute a gradient in
    /// its bucket, without a copy, use [`grad_view`](Iteration::grad_view).
    ///
    /// Any thread may call it, several at the same time for different parameters. The gradient must be in host memory.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// # let world = dsc::init()?;
    /// # let mut param = vec![0.0f32; 4];
    /// # let mut tensors = [dsc::Tensor::new(&mut param)];
    /// # let mut reducer = dsc::BucketReducer::new(&world, &mut tensors, &dsc::ReducerOptions::new())?;
    /// let iteration = reducer.begin()?;
    /// let backward = |x: f32| iteration.mark_ready_copy(0, &[2.0 * x; 4]);
    /// backward(1.5)?;
    /// iteration.finish()?;
    /// assert_eq!(reducer.view::<f32>(0)?, [3.0; 4]); // the mean over all ranks
    /// # world.finalize()
    /// # }
    /// ```
    pub fn mark_ready_copy<G: Data + ?Sized>(&self, index: usize, gradient: &G) -> Result<()> {
        let span = self.fit(index, gradient.span())?;
        if span.is_on_device() {
            let text = "mark_ready_copy: the gradient is on a GPU; expected host memory, or a call of mark_ready_on()";
            return Err(Error::invalid(text.into()));
        }
        self.accumulate_raw(index, span, ptr::null_mut())?;
        self.mark_accumulated(index)
    }

    /// Does the same as [`mark_ready`](Iteration::mark_ready) with a gradient on the GPU that is computed on a stream.
    pub fn mark_ready_on<G: DataMut + ?Sized>(
        &self,
        index: usize,
        gradient: &'g mut G,
        stream: Stream<'g>,
    ) -> Result<()> {
        let span = self.fit(index, gradient.span_mut())?;
        self.mark(index, span, stream.as_raw())
    }

    /// Marks the accumulated sum as the whole gradient. The result is in the parameter's
    /// [`view`](BucketReducer::view) after `finish`.
    pub fn mark_accumulated(&self, index: usize) -> Result<()> {
        self.mark(index, Span::none(), ptr::null_mut())
    }

    /// Does the same as [`mark_accumulated`](Iteration::mark_accumulated) on a stream of the GPU. It may also be used
    /// for a gradient that was computed in the parameter's [`device_view`](BucketReducer::device_view).
    pub fn mark_accumulated_on(&self, index: usize, stream: Stream<'g>) -> Result<()> {
        self.mark(index, Span::none(), stream.as_raw())
    }

    /// The address of a parameter's gradient in its bucket on the GPU; see [`BucketReducer::device_view`].
    pub fn device_view<T: Element>(&self, index: usize) -> Result<*mut T> {
        self.reducer.device_view(index)
    }

    fn mark(&self, index: usize, gradient: Span, stream: *mut c_void) -> Result<()> {
        let before = self.claim(index)?;
        // SAFETY: the gradient has as many elements as the parameter, or is NULL. The gradient and the stream are
        // borrowed until finish, the only call that writes the gradient. This call has claimed the parameter's memory
        // in the bucket, which the library uses from now on.
        let result = unsafe { sys::dsc_bucket_reducer_mark_ready(self.reducer.raw(), index, gradient.ptr, stream) };
        if result >= 0 {
            self.reducer.note_mark(index);
        }
        self.give(index, before, result);
        self.reducer.check(result, "bucket_reducer_mark_ready")
    }

    /// Marks that this rank has no gradient for a parameter; it contributes zeros. The result is in the parameter's
    /// [`view`](BucketReducer::view) after `finish`.
    pub fn mark_unused(&self, index: usize) -> Result<()> {
        let before = self.claim(index)?;
        // SAFETY: the library checks handle and index. This call has claimed the parameter's memory in the bucket.
        let result = unsafe { sys::dsc_bucket_reducer_mark_unused(self.reducer.raw(), index) };
        self.give(index, before, result);
        self.reducer.check(result, "bucket_reducer_mark_unused")
    }

    /// Marks a sparse gradient: some of the parameter's rows, which are copied. The parameter must
    /// [expect](crate::Tensor::expect_sparse) sparse gradients. An index may repeat. The result is
    /// [`BucketReducer::sparse`] after `finish`.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// # let world = dsc::init()?;
    /// let mut table = vec![0.0f32; 100 * 3]; // 100 rows of 3 elements
    /// let mut tensors = [dsc::Tensor::new(&mut table).shape(&[100, 3]).expect_sparse()];
    /// let mut reducer = dsc::BucketReducer::new(&world, &mut tensors, &dsc::ReducerOptions::new())?;
    /// let iteration = reducer.begin()?;
    /// iteration.mark_sparse(0, &[7, 7], &[1.0f32, 2.0, 3.0, 1.0, 1.0, 1.0])?;
    /// iteration.finish()?;
    /// let (indices, rows) = reducer.sparse::<f32>(0)?;
    /// assert_eq!((indices, rows), (&[7][..], &[2.0, 3.0, 4.0][..]));
    /// # world.finalize()
    /// # }
    /// ```
    pub fn mark_sparse<V: Data + ?Sized>(&self, index: usize, indices: &[i64], values: &V) -> Result<()> {
        let (param, values) = (self.reducer.param(index)?, values.span());
        let row = param.sparse_row.ok_or_else(|| {
            Error::invalid(format!("parameter {} was not created with sparse gradients; use Tensor::expect_sparse() when the reducer is created", index))
        })?;
        if indices.len().checked_mul(row) != Some(values.count) || (values.dtype, values.device) != (param.dtype, HOST)
        {
            let rows = format!("{} rows of {} elements of {:?} on the host", indices.len(), row, param.dtype);
            let got = format!("{} elements of {:?}", values.count, values.dtype);
            return Err(Error::invalid(format!("values of parameter {} has {}; expected {}", index, got, rows)));
        }
        let before = self.claim(index)?;
        let (raw, rows) = (self.reducer.raw(), indices.len());
        // SAFETY: the lengths of the indices and rows are right, and they are read only during the call. No other
        // thread marks this parameter.
        let result = unsafe { sys::dsc_bucket_reducer_mark_sparse(raw, index, indices.as_ptr(), values.ptr, rows) };
        if result >= 0 {
            self.reducer.note_mark(index);
        }
        self.give(index, before, result);
        self.reducer.check(result, "bucket_reducer_mark_sparse")
    }

    fn claim(&self, index: usize) -> Result<u8> {
        self.reducer.param(index)?.claim(index, self.reducer.marks_repeat)
    }

    /// Sets the state of a parameter's memory after a mark. If the library refused the mark, the previous state is
    /// restored. After any other failure the memory counts as marked: a bucket has failed, and the library may still
    /// use it.
    fn give(&self, index: usize, before: u8, result: sys::dsc_result_t) {
        let refused = matches!(
            result,
            sys::DSC_ERR_INVALID_ARG | sys::DSC_ERR_STATE | sys::DSC_ERR_UNSUPPORTED | sys::DSC_ERR_FORKED
        );
        self.reducer.params[index].give(if refused { before } else { MARKED });
    }

    /// Returns a parameter's gradient in its bucket, so that a gradient that is computed there is never copied. After a
    /// rank has called this, buckets are not rebuilt again.
    pub fn grad_view<T: Element>(&self, index: usize) -> Result<View<'_, 'r, 'g, T>> {
        let param = self.reducer.param(index)?;
        param.expect_place::<T>(index)?;
        param.expect_on_host(index)?;
        self.reducer.expect_in_graph(index)?;
        param.claim(index, false)?;
        let place = self.reducer.place(index);
        let place = place.map_err(|error| {
            param.give(FREE);
            error
        })?;
        Ok(View { iteration: self, index, place, len: param.count })
    }

    /// Waits for all buckets and writes the results into the gradients that were marked ready. Collective.
    ///
    /// If parameters were not marked, the error names them, no gradient is written, and the iteration is over.
    pub fn finish(mut self) -> Result<()> {
        self.finished = true;
        self.reducer.finish()
    }

    /// Does the same as [`finish`](Iteration::finish), then scales the gradients and limits their norm. It changes the
    /// memory that was marked ready, and the views. Returns the norm after scaling and before limiting. Collective.
    ///
    /// Ranks that have run out of batches do not take part, so clipping is then not possible under a
    /// [`Join`](crate::Join). If the norm is NaN or infinite, no gradient was changed: with loss scaling, skip the
    /// step. Only floating-point types are supported.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// # let world = dsc::init()?;
    /// # let mut param = vec![0.0f32; 4];
    /// # let mut tensors = [dsc::Tensor::new(&mut param)];
    /// # let mut reducer = dsc::BucketReducer::new(&world, &mut tensors, &dsc::ReducerOptions::new())?;
    /// let mut grad = vec![3.0f32; 4];
    /// let iteration = reducer.begin()?;
    /// iteration.mark_ready(0, &mut grad)?;
    /// let norm = iteration.finish_and_clip(&dsc::ClipOptions::new().max_norm(1.0))?;
    /// assert_eq!(norm, 6.0);
    /// assert!((grad[0] - 0.5).abs() < 1e-6); // the norm is now 1
    /// # world.finalize()
    /// # }
    /// ```
    #[doc(alias = "dsc_bucket_reducer_clip")]
    pub fn finish_and_clip(mut self, options: &ClipOptions<'_>) -> Result<f64> {
        self.finished = true;
        self.reducer.finish()?;
        // SAFETY: the gradients of this iteration are borrowed until self is dropped, and the call waits for the GPU.
        let norm = unsafe { self.reducer.clip(options) };
        let settled = self.reducer.settle_or_abandon();
        norm.and_then(|norm| settled.map(|()| norm))
    }

    /// Does the same as [`finish`](Iteration::finish) with gradients on the GPU, without waiting for the GPU: later
    /// work on the stream sees the results. [`BucketReducer::synchronize`] and the next call return a failure that
    /// happens later.
    ///
    /// # Safety
    ///
    /// The gradients that were marked ready are no longer borrowed. They must stay valid until the stream has passed
    /// the results, and only work on the stream may use them.
    pub unsafe fn finish_on(mut self, stream: Stream<'_>) -> Result<()> {
        self.finished = true;
        // SAFETY: guaranteed by the caller.
        unsafe { self.reducer.finish_raw(stream.as_raw()) }
    }

    /// Checks that a gradient has the size and type of its parameter.
    fn fit(&self, index: usize, gradient: Span) -> Result<Span> {
        let param = self.reducer.param(index)?;
        param.expect_dense(index)?;
        if gradient.device != param.device {
            let place =
                |device: i32| if device == HOST { "on the host".into() } else { format!("on device {}", device) };
            let (got, expected) = (place(gradient.device), place(param.device));
            let text = format!("the gradient of parameter {} is {}; expected a gradient {}", index, got, expected);
            return Err(Error::invalid(text));
        }
        if (gradient.count, gradient.dtype) == (param.count, param.dtype) {
            return Ok(gradient);
        }
        let (got, expected) = (gradient.dtype, param.dtype);
        let sizes = format!("{} elements of {:?}; expected {} of {:?}", gradient.count, got, param.count, expected);
        Err(Error::invalid(format!("the gradient of parameter {} has {}", index, sizes)))
    }
}

impl fmt::Debug for Iteration<'_, '_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Iteration of {:?}", self.reducer)
    }
}

impl Drop for Iteration<'_, '_> {
    fn drop(&mut self) {
        if !self.finished {
            self.reducer.abandon();
        }
    }
}

/// A parameter's gradient in its bucket, used as a slice; from [`Iteration::grad_view`].
///
/// While it exists, it is the only access to the gradient. The gradient is used only if it is marked ready.
#[must_use = "a gradient is used only after it is marked ready"]
pub struct View<'i, 'r, 'g, T: Element> {
    iteration: &'i Iteration<'r, 'g>,
    index: usize,
    place: *mut T,
    len: usize,
}

// SAFETY: it is the only access to its elements, as with a mutable slice, and any thread may mark it.
unsafe impl<T: Element> Send for View<'_, '_, '_, T> {}
// SAFETY: as above; shared references only allow reading.
unsafe impl<T: Element> Sync for View<'_, '_, '_, T> {}

impl<T: Element> View<'_, '_, '_, T> {
    /// Marks the gradient as ready. After `finish` the result is in [`BucketReducer::view`].
    pub fn mark_ready(self) -> Result<()> {
        let (iteration, index) = (self.iteration, self.index);
        drop(self);
        iteration.mark_accumulated(index)
    }
}

impl<T: Element> Deref for View<'_, '_, '_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory has len elements, is aligned for them, and only this view has claimed it.
        unsafe { slice::from_raw_parts(self.place, self.len) }
    }
}

impl<T: Element> DerefMut for View<'_, '_, '_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in deref(), and self is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.place, self.len) }
    }
}

impl<T: Element> Drop for View<'_, '_, '_, T> {
    fn drop(&mut self) {
        self.iteration.reducer.params[self.index].give(FREE);
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for View<'_, '_, '_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}
