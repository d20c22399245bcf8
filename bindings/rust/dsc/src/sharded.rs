//! Sharded data parallelism: each rank keeps a shard of gradients, optimizer state and parameters.

use std::fmt;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use dsc_sys as sys;

use crate::clip::ClipOptions;
use crate::comm::Comm;
use crate::convert::{defaults, list, number, sized};
use crate::data::{Data, Element, Span, HOST};
use crate::error::{check, Error, Result};
use crate::handles::ShardedHandle;
use crate::numbers::{Average, Dtype, ErrorCode};
use crate::shard_plan::ShardRules;
use crate::stats::{read_stats, OpStats};
use crate::tensor::{RawTensors, Tensor};

/// Options of [`Sharded::new`]. Use the same options on all ranks.
#[derive(Clone, Debug, Default)]
pub struct ShardedOptions {
    rules: ShardRules,
    stage: Option<usize>,
    average: Option<Average>,
    grad_dtype: Option<Dtype>,
    shard_size: usize,
    max_live_bytes: usize,
    prefetch: Option<usize>,
    keep_own: bool,
}

impl ShardedOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The rules for the layout of parameters.
    #[must_use]
    pub fn rules(mut self, rules: ShardRules) -> Self {
        self.rules = rules;
        self
    }

    /// What is sharded. 1: the optimizer's state; 2 (default): also gradients; 3: also parameters.
    #[must_use]
    pub fn stage(mut self, stage: usize) -> Self {
        self.stage = Some(stage);
        self
    }

    /// How gradients are averaged; [`Average::Pre`] by default.
    #[must_use]
    pub fn average(mut self, average: Average) -> Self {
        self.average = Some(average);
        self
    }

    /// The type of gradients; by default that of the parameters.
    #[must_use]
    pub fn grad_dtype(mut self, dtype: Dtype) -> Self {
        self.grad_dtype = Some(dtype);
        self
    }

    /// Hybrid sharding: this many consecutive ranks share one copy of the model. With 0 (default), all ranks share one
    /// copy.
    #[must_use]
    pub fn shard_size(mut self, ranks: usize) -> Self {
        self.shard_size = ranks;
        self
    }

    /// The largest number of bytes of full parameters, and of full gradients, at a time. With 0 (default) there is no
    /// limit.
    #[must_use]
    pub fn max_live_bytes(mut self, bytes: usize) -> Self {
        self.max_live_bytes = bytes;
        self
    }

    /// The number of units that are gathered in advance in stage 3; 1 by default.
    #[must_use]
    pub fn prefetch(mut self, units: usize) -> Self {
        self.prefetch = Some(units);
        self
    }

    /// Whether all ranks use rank 0's parameters; on by default.
    #[must_use]
    pub fn sync(mut self, on: bool) -> Self {
        self.keep_own = !on;
        self
    }

    /// Calls a function with the options for n parameters as a C struct.
    fn with_raw<T>(&self, n: usize, call: impl FnOnce(&sys::dsc_sharded_options_t) -> T) -> Result<T> {
        self.rules.with_raw(n, |plan| {
            // SAFETY: `defaults` passes memory for the struct, and its size.
            let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_sharded_options_init(raw, bytes) })?;
            raw.plan = plan;
            raw.max_live_bytes = self.max_live_bytes;
            raw.stage = self.stage.map_or(Ok(raw.stage), |stage| number("stage", stage))?;
            raw.average = self.average.map_or(raw.average, Average::number);
            raw.grad_dtype = self.grad_dtype.map_or(raw.grad_dtype, Dtype::number);
            raw.shard_size = number("shard_size", self.shard_size)?;
            raw.prefetch = self.prefetch.map_or(Ok(raw.prefetch), |units| number("prefetch", units))?;
            raw.sync = i32::from(!self.keep_own);
            Ok(call(&raw))
        })
    }
}

/// This rank's shard of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardInfo {
    /// The unit of the bucket.
    pub unit: usize,
    /// The position of the first element in the bucket.
    pub start: usize,
    /// The number of elements.
    pub count: usize,
    /// The type of the parameters.
    pub dtype: Dtype,
    /// The type of the gradients.
    pub grad_dtype: Dtype,
}

/// A part of a parameter that this rank owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardRange {
    /// The parameter.
    pub param: usize,
    /// The position of the first element in the parameter.
    pub param_start: usize,
    /// The bucket.
    pub bucket: usize,
    /// The position of the first element in this rank's shard of the bucket.
    pub shard_start: usize,
    /// The number of elements.
    pub count: usize,
}

/// Bytes that sharded parameters hold on this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardedMemory {
    /// The bytes of parameter shards; 0 in stages 1 and 2, where they are part of the full parameters.
    pub param_shard_bytes: usize,
    /// The bytes of gradient shards.
    pub grad_shard_bytes: usize,
    /// The current number of bytes of full parameters.
    pub param_bytes: usize,
    /// The current number of bytes of full gradients.
    pub grad_bytes: usize,
    /// The largest number of bytes of full parameters so far.
    pub peak_param_bytes: usize,
    /// The largest number of bytes of full gradients so far.
    pub peak_grad_bytes: usize,
}

struct Param {
    count: usize,
    dtype: Dtype,
    unit: usize,
}

/// Shards gradients, optimizer state and, in stage 3, parameters over all ranks (ZeRO 1 to 3, FSDP).
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let mut params = [vec![1.0f32; 100], vec![2.0f32; 10]];
/// let mut tensors: Vec<dsc::Tensor> = params.iter_mut().map(dsc::Tensor::new).collect();
/// let rules = dsc::ShardRules::new().units(&[0, 1]);
/// let mut sharded = dsc::Sharded::new(&world, &mut tensors, &dsc::ShardedOptions::new().stage(3).rules(rules))?;
///
/// sharded.unshard(1)?; // starts to gather the parameters of unit 1
/// sharded.wait(1)?;
/// assert_eq!(sharded.param::<f32>(1)?, [2.0; 10]);
/// sharded.reshard(1)?; // releases them
///
/// sharded.begin(false)?;
/// for (index, count) in [(1, 10), (0, 100)] {
///     sharded.mark_ready(index, &vec![0.5f32; count])?; // the last gradient of a unit starts its reduction
/// }
/// sharded.finish()?;
/// for bucket in 0..sharded.shards()?.len() {
///     let (params, grads) = sharded.shard::<f32, f32>(bucket)?; // this rank's shard
///     params.iter_mut().zip(grads).for_each(|(p, g)| *p -= 0.1 * g);
/// }
/// sharded.step_done(true)?;
/// world.finalize()
/// # }
/// ```
///
/// # Threads
///
/// Several threads may mark gradients at the same time. Calls that allow one thread at a time take `&mut self`, so they
/// are possible only when parameters are not borrowed.
pub struct Sharded {
    handle: ShardedHandle,
    group: Arc<str>,
    params: Vec<Param>,
    units: usize,
    /// Whether the library does not use the shards: before the first step, and from finish to the end of the step.
    at_rest: bool,
}

impl Sharded {
    /// Verifies that all ranks have the same parameters, plans their layout, allocates the buffers, and copies the
    /// values into them. Collective.
    ///
    /// The parameters must be in forward order, in host memory. Their memory is used only during this call.
    pub fn new(comm: &Comm, params: &mut [Tensor<'_>], options: &ShardedOptions) -> Result<Self> {
        if params.iter().any(|tensor| tensor.span.device != HOST) {
            let text = "sharded parameters are on a GPU, which this binding does not support; expected host memory";
            return Err(Error::new(ErrorCode::Unsupported, text.into())
                .in_op("sharded_create")
                .in_group(&comm.shared.name));
        }
        let raw = RawTensors::new(params)?;
        let mut sharded = ptr::null_mut();
        let result = options.with_raw(params.len(), |options| {
            // SAFETY: lists, options and the parameters' memory outlive the call.
            unsafe { sys::dsc_sharded_create(comm.raw(), raw.list.as_ptr(), raw.list.len(), options, &mut sharded) }
        })?;
        comm.check(result, "sharded_create")?;
        let handle = NonNull::new(sharded).ok_or_else(|| {
            Error::new(ErrorCode::Internal, "the library returned neither an object nor an error".into())
        })?;
        let mut made = Sharded {
            handle: ShardedHandle(handle),
            group: comm.shared.name.clone(),
            params: Vec::new(),
            units: 0,
            at_rest: true,
        };
        let (units, n_units) = made.read_units(params.len())?;
        made.units = n_units;
        made.params = params
            .iter()
            .zip(units)
            .map(|(tensor, unit)| Param { count: tensor.span.count, dtype: tensor.span.dtype, unit })
            .collect();
        Ok(made)
    }

    fn raw(&self) -> *mut sys::dsc_sharded_t {
        self.handle.0.as_ptr()
    }

    fn read_units(&self, n: usize) -> Result<(Vec<usize>, usize)> {
        let (mut units, mut buckets, mut starts) = (vec![0; n], vec![0; n], vec![0; n]);
        let (mut n_units, mut shard, mut shards) = (0, 0, 0);
        // SAFETY: the lists are as large as the function needs.
        check(unsafe {
            sys::dsc_sharded_locations(
                self.raw(),
                units.as_mut_ptr(),
                buckets.as_mut_ptr(),
                starts.as_mut_ptr(),
                &mut n_units,
                &mut shard,
                &mut shards,
            )
        })?;
        Ok((units, n_units))
    }

    /// The parameter indices of each unit.
    pub fn units(&self) -> Vec<Vec<usize>> {
        let mut units = vec![Vec::new(); self.units];
        for (index, param) in self.params.iter().enumerate() {
            units[param.unit].push(index);
        }
        units
    }

    /// Starts an iteration. With `accumulate`, the results of the iteration are added to the gradient shards, for
    /// several micro-batches per step.
    pub fn begin(&mut self, accumulate: bool) -> Result<()> {
        // SAFETY: the library checks the handle.
        let result = unsafe { sys::dsc_sharded_begin(self.raw(), i32::from(accumulate), ptr::null_mut()) };
        self.check(result, "sharded_begin")?;
        self.at_rest = false;
        Ok(())
    }

    /// Adds a gradient to this rank's sum for a parameter, without marking it ready.
    pub fn accumulate<G: Data + ?Sized>(&self, index: usize, gradient: &G) -> Result<()> {
        let span = self.fit("accumulate", index, gradient.span())?;
        let (place, dtype) = (span.ptr, span.dtype.number());
        // SAFETY: the gradient has as many elements as the parameter, and is read only during the call.
        let result = unsafe { sys::dsc_sharded_accumulate(self.raw(), index, place, dtype, ptr::null_mut()) };
        self.check(result, "sharded_accumulate")
    }

    /// Marks a parameter's gradient as ready, and copies it. The last gradient of a unit starts the unit's reduction.
    /// The gradient has the type
    /// [`grad_dtype`](ShardedOptions::grad_dtype) or that of the parameter.
    pub fn mark_ready<G: Data + ?Sized>(&self, index: usize, gradient: &G) -> Result<()> {
        let span = self.fit("mark_ready", index, gradient.span())?;
        let (place, dtype) = (span.ptr, span.dtype.number());
        // SAFETY: the gradient has as many elements as the parameter, and is read only during the call.
        let result = unsafe { sys::dsc_sharded_mark_ready(self.raw(), index, place, dtype, ptr::null_mut()) };
        self.check(result, "sharded_mark_ready")
    }

    /// Marks the accumulated sum as the whole gradient.
    pub fn mark_accumulated(&self, index: usize) -> Result<()> {
        // SAFETY: the library checks handle and index. Without a gradient it reads only its own memory.
        let result = unsafe { sys::dsc_sharded_mark_ready(self.raw(), index, ptr::null(), 0, ptr::null_mut()) };
        self.check(result, "sharded_mark_ready")
    }

    /// Marks that this rank has no gradient for a parameter; it contributes zeros.
    pub fn mark_unused(&self, index: usize) -> Result<()> {
        // SAFETY: the library checks handle and index.
        let result = unsafe { sys::dsc_sharded_mark_unused(self.raw(), index) };
        self.check(result, "sharded_mark_unused")
    }

    /// Waits until the gradient shards hold the averages. Collective.
    pub fn finish(&mut self) -> Result<()> {
        // SAFETY: the library checks the handle.
        let result = unsafe { sys::dsc_sharded_finish(self.raw(), ptr::null_mut()) };
        self.check(result, "sharded_finish")?;
        self.at_rest = true;
        Ok(())
    }

    /// Scales the gradients, limits their norm as PyTorch does, and returns that norm. Collective. If the norm is not
    /// finite, gradients are unchanged. Only the options `max_norm` and `scale` are supported.
    pub fn clip(&mut self, options: &ClipOptions<'_>) -> Result<f64> {
        let raw = options.raw(self.params.len())?;
        let mut norm = 0.0;
        // SAFETY: the library checks the handle; options and norm outlive the call.
        let result = unsafe { sys::dsc_sharded_clip(self.raw(), &raw, &mut norm, ptr::null_mut()) };
        self.check(result, "sharded_clip")?;
        Ok(norm)
    }

    /// Ends a step. `changed` must be true if the optimizer has changed the parameter shards. Collective. The call
    /// starts to gather parameters. If `changed` differs between ranks, the next call that gathers or reduces returns a
    /// mismatch.
    pub fn step_done(&mut self, changed: bool) -> Result<()> {
        self.at_rest = false;
        // SAFETY: the library checks the handle. The shards are not borrowed.
        let result = unsafe { sys::dsc_sharded_step_done(self.raw(), i32::from(changed), ptr::null_mut()) };
        self.check(result, "sharded_step_done")
    }

    /// Starts to gather the parameters of a unit (stage 3), and those of the units that followed it in the previous
    /// step. All ranks must unshard and reshard in the same order.
    pub fn unshard(&mut self, unit: usize) -> Result<()> {
        self.at_rest = false;
        // SAFETY: the library checks handle and unit. The shards are not borrowed.
        let result = unsafe { sys::dsc_sharded_unshard(self.raw(), unit) };
        self.check(result, "sharded_unshard")
    }

    /// Waits until the parameters of a unit are available.
    pub fn wait(&mut self, unit: usize) -> Result<()> {
        // SAFETY: the library checks handle and unit.
        let result = unsafe { sys::dsc_sharded_wait(self.raw(), unit, ptr::null_mut()) };
        self.check(result, "sharded_wait")
    }

    /// Releases the parameters of a unit (stage 3).
    pub fn reshard(&mut self, unit: usize) -> Result<()> {
        // SAFETY: the library checks handle and unit. Parameters are not borrowed.
        let result = unsafe { sys::dsc_sharded_reshard(self.raw(), unit, ptr::null_mut()) };
        self.check(result, "sharded_reshard")
    }

    /// Returns a parameter. Its unit must be available.
    pub fn param<T: Element>(&self, index: usize) -> Result<&[T]> {
        let param = self.known("param", index)?;
        expect_type::<T>("parameter", param.dtype)?;
        let mut view = ptr::null_mut();
        // SAFETY: the library checks handle and index, and view outlives the call.
        let result = unsafe { sys::dsc_sharded_param_view(self.raw(), index, &mut view) };
        self.check(result, "sharded_param_view")?;
        // SAFETY: there are that many elements. They are not written before a call that needs `&mut self`.
        Ok(unsafe {
            slice::from_raw_parts(NonNull::new(view.cast()).unwrap_or(NonNull::dangling()).as_ptr(), param.count)
        })
    }

    /// Returns the optimizer's part of a bucket: this rank's shard of the parameters and of the gradients. Call it
    /// between [`finish`](Sharded::finish) and [`step_done`](Sharded::step_done), or before the first step.
    pub fn shard<P: Element, G: Element>(&mut self, bucket: usize) -> Result<(&mut [P], &[G])> {
        if !self.at_rest {
            let text = "shard: parameters may still be in transfer; expected a call between finish() and step_done()";
            return Err(Error::new(ErrorCode::State, text.into()).in_group(&self.group));
        }
        let raw = self.raw_shards()?;
        let found = raw.get(bucket).ok_or_else(|| {
            Error::invalid(format!("shard: there is no bucket {}; expected a number below {}", bucket, raw.len()))
        })?;
        expect_type::<P>("shard of parameters", Dtype::from_number(found.dtype))?;
        expect_type::<G>("shard of gradients", Dtype::from_number(found.grad_dtype))?;
        // SAFETY: both are memory of the library with the given sizes, and they do not overlap. Nothing else uses them
        // before a call that needs `&mut self`, because no gather or reduction is in progress.
        Ok(unsafe {
            (
                slice::from_raw_parts_mut(found.params.cast(), found.count),
                slice::from_raw_parts(found.grads.cast(), found.count),
            )
        })
    }

    fn raw_shards(&self) -> Result<Vec<sys::dsc_sharded_shard_t>> {
        let mut empty = sys::dsc_sharded_shard_t {
            struct_size: 0,
            params: ptr::null_mut(),
            grads: ptr::null_mut(),
            unit: 0,
            bucket: 0,
            start: 0,
            count: 0,
            dtype: 0,
            grad_dtype: 0,
        };
        empty.struct_size = std::mem::size_of_val(&empty);
        list(self.params.len(), empty, |shards, capacity, found| {
            // SAFETY: shards has capacity entries, and found outlives the call.
            unsafe { sys::dsc_sharded_shards(self.raw(), shards, capacity, found) }
        })
    }

    /// Returns this rank's shards, one per bucket.
    pub fn shards(&self) -> Result<Vec<ShardInfo>> {
        let info = |raw: &sys::dsc_sharded_shard_t| ShardInfo {
            unit: raw.unit,
            start: raw.start,
            count: raw.count,
            dtype: Dtype::from_number(raw.dtype),
            grad_dtype: Dtype::from_number(raw.grad_dtype),
        };
        Ok(self.raw_shards()?.iter().map(info).collect())
    }

    /// Returns the parts of parameters in this rank's shards, in the order of the shards.
    pub fn ranges(&self) -> Result<Vec<ShardRange>> {
        let found = list(self.params.len(), sized!(sys::dsc_sharded_range_t), |ranges, capacity, found| {
            // SAFETY: ranges has capacity entries, and found outlives the call.
            unsafe { sys::dsc_sharded_ranges(self.raw(), ranges, capacity, found) }
        })?;
        let range = |raw: &sys::dsc_sharded_range_t| ShardRange {
            param: raw.param,
            param_start: raw.param_start,
            bucket: raw.bucket,
            shard_start: raw.shard_start,
            count: raw.count,
        };
        Ok(found.iter().map(range).collect())
    }

    /// Returns the bytes that this rank holds.
    pub fn memory(&self) -> Result<ShardedMemory> {
        let mut raw = sized!(sys::dsc_sharded_memory_info_t);
        // SAFETY: the library checks the handle, and the struct has the size that it says.
        check(unsafe { sys::dsc_sharded_memory_info(self.raw(), &mut raw) })?;
        Ok(ShardedMemory {
            param_shard_bytes: raw.param_shard_bytes,
            grad_shard_bytes: raw.grad_shard_bytes,
            param_bytes: raw.param_bytes,
            grad_bytes: raw.grad_bytes,
            peak_param_bytes: raw.peak_param_bytes,
            peak_grad_bytes: raw.peak_grad_bytes,
        })
    }

    /// Returns the running totals of the operations of all groups that this object uses.
    pub fn stats(&self) -> Result<Vec<OpStats>> {
        read_stats(|stats, capacity, count| {
            // SAFETY: stats has capacity elements, and count outlives the call.
            unsafe { sys::dsc_sharded_stats(self.raw(), stats, capacity, count) }
        })
    }

    fn known(&self, call: &str, index: usize) -> Result<&Param> {
        self.params.get(index).ok_or_else(|| {
            let text =
                format!("{}: there is no parameter {}; expected a number below {}", call, index, self.params.len());
            Error::invalid(text)
        })
    }

    /// Checks that a gradient is in host memory, and has as many elements as its parameter.
    fn fit(&self, call: &str, index: usize, gradient: Span) -> Result<Span> {
        let param = self.known(call, index)?;
        if gradient.device != HOST {
            return Err(Error::invalid(format!("{}: the gradient is on a GPU; expected host memory", call)));
        }
        if gradient.count != param.count {
            let text = format!(
                "{}: the gradient has {} elements; parameter {} has {}",
                call, gradient.count, index, param.count
            );
            return Err(Error::invalid(text));
        }
        Ok(gradient)
    }

    fn check(&self, result: sys::dsc_result_t, op: &str) -> Result<()> {
        check(result).map_err(|error| error.in_op(op).in_group(&self.group))
    }
}

fn expect_type<T: Element>(what: &str, dtype: Dtype) -> Result<()> {
    if T::DTYPE == dtype {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the {} has elements of {:?}, but the call is for elements of {:?}",
        what,
        dtype,
        T::DTYPE
    )))
}

impl fmt::Debug for Sharded {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Sharded({} parameters in {} units, group {:?})", self.params.len(), self.units, self.group)
    }
}
