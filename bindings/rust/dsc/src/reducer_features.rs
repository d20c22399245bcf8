//! Features of a reducer that are not part of an iteration.

use std::fmt;
use std::ptr;
use std::slice;
use std::sync::PoisonError;

use dsc_sys as sys;

use crate::convert::{list, text};
use crate::data::Element;
use crate::error::{Error, Result};
use crate::numbers::BufferSync;
use crate::reducer::{BucketReducer, Place};
use crate::stats::{read_stats, OpStats};
use crate::tensor::{RawTensors, Tensor};

/// # Several backward passes per step
impl BucketReducer {
    /// Sets whether the following iterations are reduced (the default). Use the same value on all ranks.
    ///
    /// An iteration that is not reduced does not communicate. Marked gradients are added to this rank's sums, and
    /// [`finish`](crate::Iteration::finish) only ends it. The next reduced iteration reduces the sums.
    pub fn set_sync(&mut self, sync: bool) -> Result<()> {
        // SAFETY: the library checks the handle.
        let result = unsafe { sys::dsc_bucket_reducer_set_sync(self.raw(), i32::from(sync)) };
        self.check(result, "bucket_reducer_set_sync")?;
        self.sync = sync;
        Ok(())
    }

    /// Runs iterations that are not reduced. Afterwards, even after an error, the previous setting is restored. See
    /// [`set_sync`](BucketReducer::set_sync).
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// # let world = dsc::init()?;
    /// # let mut param = vec![0.0f32; 4];
    /// # let mut tensors = [dsc::Tensor::new(&mut param)];
    /// # let mut reducer = dsc::BucketReducer::new(&world, &mut tensors, &dsc::ReducerOptions::new())?;
    /// reducer.no_sync(|reducer| {
    ///     for _micro_batch in 0..3 {
    ///         let mut grad = vec![1.0f32; 4];
    ///         let iteration = reducer.begin()?;
    ///         iteration.mark_ready(0, &mut grad)?;
    ///         iteration.finish()?;
    ///     }
    ///     Ok(())
    /// })?;
    /// let mut grad = vec![1.0f32; 4]; // gradient of the last micro-batch
    /// let iteration = reducer.begin()?;
    /// iteration.mark_ready(0, &mut grad)?;
    /// iteration.finish()?;
    /// assert_eq!(grad[0], 4.0); // the mean of the sums of all ranks
    /// # world.finalize()
    /// # }
    /// ```
    pub fn no_sync<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.sync;
        self.set_sync(false)?;
        let restore = Restore { reducer: self, sync: before };
        body(&mut *restore.reducer)
    }
}

/// Restores the setting that [`BucketReducer::no_sync`] has changed, even while a panic unwinds.
struct Restore<'r> {
    reducer: &'r mut BucketReducer,
    sync: bool,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        // this call fails if an iteration was dropped; the next begin() returns the error
        let _ = self.reducer.set_sync(self.sync);
    }
}

/// # Buffers
impl BucketReducer {
    /// Registers tensors of the model that are not parameters (PyTorch's buffers), such as running means, for
    /// [`sync_buffers`](BucketReducer::sync_buffers). Collective. Only their addresses are kept.
    pub fn set_buffers(&mut self, buffers: &mut [Tensor<'_>]) -> Result<()> {
        let raw = RawTensors::new(buffers)?;
        // SAFETY: the list and its memory outlive the call. The library keeps the addresses, which only sync_buffers()
        // and Join::finish() use. These calls borrow the same tensors again.
        let result = unsafe { sys::dsc_bucket_reducer_set_buffers(self.raw(), raw.list.as_ptr(), raw.list.len()) };
        self.check(result, "bucket_reducer_set_buffers")?;
        self.buffers = buffers.iter().map(Place::of).collect();
        Ok(())
    }

    /// Makes the buffers equal on all ranks, before a forward pass. Collective. They must be the buffers of
    /// [`set_buffers`](BucketReducer::set_buffers), in the same memory.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// # let world = dsc::init()?;
    /// # let mut param = vec![0.0f32; 4];
    /// # let mut tensors = [dsc::Tensor::new(&mut param)];
    /// # let mut reducer = dsc::BucketReducer::new(&world, &mut tensors, &dsc::ReducerOptions::new())?;
    /// let mut means = vec![world.rank() as f32; 3];
    /// reducer.set_buffers(&mut [dsc::Tensor::new(&mut means)])?;
    /// means[2] += 1.0; // the program may use them between the calls
    /// reducer.sync_buffers(&mut [dsc::Tensor::new(&mut means)], dsc::BufferSync::Broadcast)?;
    /// assert_eq!(means, [0.0, 0.0, 1.0]); // the values of rank 0
    /// # world.finalize()
    /// # }
    /// ```
    pub fn sync_buffers(&mut self, buffers: &mut [Tensor<'_>], how: BufferSync) -> Result<()> {
        self.expect_buffers("sync_buffers", buffers)?;
        let joined = self.joined.clone();
        let _turn = joined.as_ref().map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: the library checks the handle. It writes only to the memory of the buffers, which is borrowed
        // mutably.
        let result = unsafe { sys::dsc_bucket_reducer_sync_buffers(self.raw(), how.number()) };
        self.check(result, "bucket_reducer_sync_buffers")
    }

    /// Checks that these are the buffers that were registered.
    pub(crate) fn expect_buffers(&self, call: &str, given: &[Tensor<'_>]) -> Result<()> {
        let text = match given.iter().zip(&self.buffers).position(|(tensor, place)| Place::of(tensor) != *place) {
            Some(index) => format!(
                "buffer {} is not the buffer that was passed to set_buffers(), or its memory has moved since",
                index
            ),
            None if given.len() == self.buffers.len() => return Ok(()),
            None => format!(
                "there are {} buffers; expected the {} buffers that were passed to set_buffers()",
                given.len(),
                self.buffers.len()
            ),
        };
        Err(Error::invalid(format!("{}: {}", call, text)).in_group(&self.group))
    }
}

/// # Sparse gradients
impl BucketReducer {
    /// Returns the result for a parameter with [sparse](Tensor::expect_sparse) gradients: indices, and their rows one
    /// after another.
    pub fn sparse<T: Element>(&mut self, index: usize) -> Result<(&[i64], &[T])> {
        let param = self.param(index)?;
        param.expect_type::<T>(index)?;
        let row = param.sparse_row.unwrap_or(0);
        self.expect_at_rest("sparse")?;
        let (mut indices, mut values, mut rows) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the library checks handle and index. All pointers for results outlive the call.
        let result = unsafe { sys::dsc_bucket_reducer_sparse(self.raw(), index, &mut indices, &mut values, &mut rows) };
        self.check(result, "bucket_reducer_sparse")?;
        // SAFETY: there are `rows` indices, and as many rows of this type, until the next iteration, which needs a
        // mutable borrow of the reducer.
        Ok(unsafe { (entries(indices, rows), entries(values.cast::<T>(), rows * row)) })
    }
}

/// # Safety
///
/// There must be n entries, which do not change during `'e`.
pub(crate) unsafe fn entries<'e, T>(first: *const T, n: usize) -> &'e [T] {
    if n == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts(first, n) }
}

/// # Information
impl BucketReducer {
    /// Returns the parameters for which no rank had a gradient; their gradients were not written. With
    /// [`find_unused`](crate::ReducerOptions::find_unused) the result is for the latest iteration, with
    /// [`static_graph`](crate::ReducerOptions::static_graph) for all iterations.
    pub fn unused(&self) -> Result<Vec<usize>> {
        let found = list(0, 0, |indices, capacity, count| {
            // SAFETY: the library checks the handle; indices has capacity entries, and count outlives the call.
            unsafe { sys::dsc_bucket_reducer_unused(self.raw(), indices, capacity, count) }
        });
        found.map_err(|error| self.explain(error, "bucket_reducer_unused"))
    }

    /// Returns the number of times that the buckets were rebuilt.
    pub fn rebuilds(&self) -> Result<u64> {
        let mut count = 0;
        // SAFETY: the library checks the handle, and count outlives the call.
        let result = unsafe { sys::dsc_bucket_reducer_rebuilds(self.raw(), &mut count) };
        self.check(result, "bucket_reducer_rebuilds")?;
        Ok(count)
    }

    /// Returns statistics of the reducer and its latest iterations, as a JSON object with the names of PyTorch's DDP
    /// logging data. docs/buckets.md of libdsc lists them. Times are in nanoseconds.
    pub fn stats(&mut self) -> Result<String> {
        let told = text(|room, capacity, bytes| {
            // SAFETY: the library checks the handle; room has capacity bytes, and bytes outlives the call.
            unsafe { sys::dsc_bucket_reducer_stats_json(self.raw(), room, capacity, bytes) }
        });
        told.map_err(|error| self.explain(error, "bucket_reducer_stats"))
    }

    /// Draws the latest iteration as SVG. The picture shows when each gradient was ready, when each bucket was reduced,
    /// and how much of the reduction did not overlap with computation.
    pub fn draw(&mut self) -> Result<String> {
        let drawn = text(|room, capacity, bytes| {
            // SAFETY: as in stats().
            unsafe { sys::dsc_bucket_reducer_draw(self.raw(), room, capacity, bytes) }
        });
        drawn.map_err(|error| self.explain(error, "bucket_reducer_draw"))
    }

    /// Returns the running totals of the reducer's operations.
    pub fn op_stats(&self) -> Result<Vec<OpStats>> {
        let totals = read_stats(|stats, capacity, count| {
            // SAFETY: stats has capacity elements, and count outlives the call.
            unsafe { sys::dsc_bucket_reducer_stats(self.raw(), stats, capacity, count) }
        });
        totals.map_err(|error| self.explain(error, "bucket_reducer_op_stats"))
    }
}

impl fmt::Debug for BucketReducer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "BucketReducer({} parameters, group {:?})", self.params.len(), self.group)
    }
}
