//! Uneven inputs: ranks that have run out of batches take part in the iterations of the others.

use std::fmt;
use std::mem::take;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{defaults, natural};
use crate::error::{check, Error, Result};
use crate::handles::JoinHandle;
use crate::numbers::ErrorCode;
use crate::reducer::BucketReducer;
use crate::tensor::{RawTensors, Tensor};

/// Options of [`Join::new`]. Use the same options on all ranks.
#[derive(Clone, Debug, Default)]
pub struct JoinOptions {
    divide_by_active: bool,
    throw_on_early_end: bool,
}

impl JoinOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether means are over all ranks (the default), where ranks without batches contribute zeros. `false`: means are
    /// over the ranks that still have batches.
    #[must_use]
    pub fn divide_by_initial(mut self, on: bool) -> Self {
        self.divide_by_active = !on;
        self
    }

    /// Whether all ranks get [`ErrorCode::State`] as soon as one rank has no more batches; off by default.
    #[must_use]
    pub fn throw_on_early_end(mut self, on: bool) -> Self {
        self.throw_on_early_end = on;
        self
    }

    fn raw(&self) -> Result<sys::dsc_join_options_t> {
        // SAFETY: the struct has this size.
        let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_join_options_init(raw, bytes) })?;
        raw.divide_by_initial = i32::from(!self.divide_by_active);
        raw.throw_on_early_end = i32::from(self.throw_on_early_end);
        Ok(raw)
    }
}

/// Lets ranks run different numbers of iterations. A rank that has run out of batches takes part with zeros until all
/// ranks have run out.
///
/// While a join exists, [`sync_buffers`](BucketReducer::sync_buffers), and [`begin`](BucketReducer::begin) of
/// iterations that are reduced, are collective. A rank without batches calls [`finish`](Join::finish). Dropping a join
/// before that is an error on the ranks that continue. It works like PyTorch's `Join`.
///
/// ```
/// use dsc::{BucketReducer, Join, JoinOptions, ReducerOptions, Tensor};
///
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let mut param = vec![1.0f32; 4];
/// let mut reducer = BucketReducer::new(&world, &mut [Tensor::new(&mut param)], &ReducerOptions::new())?;
///
/// let join = Join::new(&world, &mut [&mut reducer], &JoinOptions::new())?;
/// for _batch in 0..world.rank() + 1 { // the number of batches differs between ranks
///     let mut grad = vec![1.0f32; 4];
///     let iteration = reducer.begin()?;
///     iteration.mark_ready(0, &mut grad)?;
///     iteration.finish()?;
///     param.iter_mut().zip(&grad).for_each(|(x, slope)| *x -= 0.1 * slope);
/// }
/// let last_rank = join.finish(&mut [&mut reducer], &mut [Tensor::new(&mut param)])?;
/// assert_eq!(last_rank, world.size() - 1); // all ranks now have its parameters
/// world.finalize()
/// # }
/// ```
pub struct Join {
    handle: JoinHandle,
    /// The handles of the reducers, only for comparison.
    reducers: Vec<usize>,
    group: Arc<str>,
}

impl Join {
    /// Puts reducers under a join. They must have been made from this communicator, and be in the same order on all
    /// ranks. Collective.
    ///
    /// The program continues to use the reducers until [`finish`](Join::finish), which takes them as an argument again.
    pub fn new(comm: &Comm, reducers: &mut [&mut BucketReducer], options: &JoinOptions) -> Result<Self> {
        let raw = options.raw()?;
        let handles: Vec<_> = reducers.iter().map(|reducer| reducer.raw()).collect();
        let mut join = ptr::null_mut();
        // SAFETY: the library checks the handles; the list and the options outlive the call.
        let result = unsafe { sys::dsc_join_create(comm.raw(), handles.as_ptr(), handles.len(), &raw, &mut join) };
        comm.check(result, "join_create")?;
        let handle = NonNull::new(join).ok_or_else(|| {
            Error::new(ErrorCode::Internal, "the library returned neither a join nor an error".into())
        })?;
        let turn = Arc::new(Mutex::new(()));
        for reducer in reducers {
            reducer.joined = Some(turn.clone());
        }
        let reducers = handles.into_iter().map(|reducer| reducer as usize).collect();
        Ok(Join { handle: JoinHandle(handle), reducers, group: comm.shared.name.clone() })
    }

    /// Ends the batches of this rank. It takes part in the iterations of the other ranks until no rank has batches.
    /// Then tensors, usually the parameters, are copied to all ranks from the rank that finished last. If several did,
    /// the highest one is used. Returns that rank. Collective.
    ///
    /// The reducers must be those of [`new`](Join::new), in the same order.
    pub fn finish(self, reducers: &mut [&mut BucketReducer], params: &mut [Tensor<'_>]) -> Result<usize> {
        let mut none: Vec<&mut [Tensor<'_>]> = reducers.iter().map(|_| -> &mut [Tensor<'_>] { &mut [] }).collect();
        self.finish_with_buffers(reducers, params, &mut none)
    }

    /// Does the same as [`finish`](Join::finish) for reducers with [buffers](BucketReducer::set_buffers): a list for
    /// each reducer. The buffers are written when other ranks synchronize theirs.
    pub fn finish_with_buffers(
        mut self,
        reducers: &mut [&mut BucketReducer],
        params: &mut [Tensor<'_>],
        buffers: &mut [&mut [Tensor<'_>]],
    ) -> Result<usize> {
        self.expect(reducers, buffers)?;
        let raw = RawTensors::new(params)?;
        let at_rest: Vec<bool> = reducers.iter_mut().map(|reducer| take(&mut reducer.at_rest)).collect();
        // SAFETY: the tensors, the reducers' views and their buffers are all borrowed mutably. The reducers keep their
        // hooks alive.
        let last_rank = unsafe { self.finish_raw(&raw) }.map_err(|error| self.explain(error, reducers))?;
        for (reducer, at_rest) in reducers.iter_mut().zip(at_rest) {
            reducer.at_rest = at_rest;
            if !reducer.sync {
                reducer.set_sync(false)?; // iterations for other ranks have changed it
            }
        }
        Ok(last_rank)
    }

    /// # Safety
    ///
    /// The call writes the tensors, and the views and buffers of the reducers, and calls their hooks. All must be
    /// valid.
    unsafe fn finish_raw(&mut self, params: &RawTensors) -> Result<usize> {
        let (list, count, mut last_rank) = (params.list.as_ptr(), params.list.len(), 0);
        // SAFETY: the library checks the handle. The list and the number outlive the call. The caller guarantees the
        // rest.
        check(unsafe { sys::dsc_join_finish(self.handle.0.as_ptr(), list, count, &mut last_rank) })?;
        Ok(natural(last_rank))
    }

    /// Checks that the caller has borrowed all memory that the library may write. These are the reducers of the join,
    /// and the buffers of each reducer.
    fn expect(&self, reducers: &[&mut BucketReducer], buffers: &[&mut [Tensor<'_>]]) -> Result<()> {
        let wrong = |text: String| Err(Error::invalid(format!("finish: {}", text)).in_group(&self.group));
        if reducers.len() != self.reducers.len() || buffers.len() != self.reducers.len() {
            let (got, lists, expected) = (reducers.len(), buffers.len(), self.reducers.len());
            return wrong(format!(
                "there are {} reducers and {} lists of buffers; expected {} of each",
                got, lists, expected
            ));
        }
        for (index, (reducer, joined)) in reducers.iter().zip(&self.reducers).enumerate() {
            if reducer.raw() as usize != *joined {
                return wrong(format!(
                    "reducer {} is not the reducer that the join was created with, or it has ended",
                    index
                ));
            }
            reducer.expect_buffers("finish_with_buffers", buffers[index])?;
        }
        Ok(())
    }

    /// Replaces an error by the error of a reducer's hook, if that was the cause.
    fn explain(&self, error: Error, reducers: &[&mut BucketReducer]) -> Error {
        let error = error.in_op("join_finish").in_group(&self.group);
        reducers.iter().filter_map(|reducer| reducer.hook.as_ref()).fold(error, |error, hook| hook.explain(error))
    }
}

impl fmt::Debug for Join {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Join({} reducers, group {:?})", self.reducers.len(), self.group)
    }
}
