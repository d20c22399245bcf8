//! The exchange of tokens for mixture-of-experts layers (expert parallelism).

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::ptr::{self, NonNull};

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{defaults, list, sized};
use crate::data::{Data, DataMut, Span};
use crate::device::LEGACY;
use crate::error::{check, Error, Result};
use crate::handles::MoePlanHandle;
use crate::numbers::{Dtype, ErrorCode, MoeDrop, MoePayload};
use crate::started::complete_work;

/// Options of [`Comm::moe_plan`]. Use the same options on all ranks.
#[derive(Clone, Debug)]
pub struct MoeOptions {
    experts: usize,
    top_k: usize,
    capacity: usize,
    drop: MoeDrop,
    padded: bool,
}

impl MoeOptions {
    /// Options for `experts` experts on all ranks together, and `top_k` slots per token. No row is dropped.
    pub fn new(experts: usize, top_k: usize) -> Self {
        MoeOptions { experts, top_k, capacity: 0, drop: MoeDrop::Latest, padded: false }
    }

    /// Sets the largest number of rows for each pair of expert and source rank, and which rows beyond it are dropped.
    #[must_use]
    pub fn capacity(mut self, rows: usize, drop: MoeDrop) -> Self {
        self.capacity = rows;
        self.drop = drop;
        self
    }

    /// Sets whether each pair of expert and source rank is padded to exactly the capacity.
    #[must_use]
    pub fn padded(mut self, on: bool) -> Self {
        self.padded = on;
        self
    }

    #[doc(alias = "dsc_moe_plan_options_init")]
    fn raw(&self) -> Result<sys::dsc_moe_plan_options_t> {
        // SAFETY: `defaults` passes memory for the struct, and its size.
        let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_moe_plan_options_init(raw, bytes) })?;
        raw.experts = self.experts;
        raw.top_k = self.top_k;
        raw.capacity = self.capacity;
        raw.drop = self.drop.number();
        raw.padded = i32::from(self.padded);
        Ok(raw)
    }
}

/// The routing of tokens to the ranks of their experts, for one layer and step.
///
/// The rows that a rank receives are grouped by its experts, within an expert by the rank that sent them, and then by
/// slot. All buffers of a call are in host memory, or all are on the GPU that the communicator is bound to. A call
/// returns when it is complete. The C header dsc/expert_parallel.h explains tokens, slots and rows.
///
/// ```
/// use dsc::{MoeOptions, MoePayload};
///
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let (tokens, experts, weights) = ([1f32, 2., 3., 4.], [0, 1, 1, -1], [0.5f32, 0.5, 1., 1.]); // 2 tokens
/// let mut plan = world.moe_plan(&experts, None, &MoeOptions::new(2, 2))?;
/// let mut rows = vec![0f32; plan.rows() * 2];
/// plan.dispatch(&tokens, 2, MoePayload::Plain, &mut rows)?;
/// if world.size() == 1 {
///     assert_eq!(rows, [1., 2., 1., 2., 3., 4.]); // the rows of expert 0, then of expert 1
/// }
/// let mut out = [0f32; 4];
/// plan.combine(&rows, Some(&weights), 2, &mut out, None::<&mut [f32]>)?; // the experts change nothing
/// assert_eq!(out, tokens);
/// drop(plan);
/// world.finalize()
/// # }
/// ```
pub struct MoePlan<'a> {
    comm: &'a Comm,
    handle: MoePlanHandle,
    info: sys::dsc_moe_plan_info_t,
}

impl Comm {
    /// Makes a plan from the experts that the router chose for this rank's tokens. Collective.
    ///
    /// `experts` has `top_k` numbers for each token; -1 means that a slot is not sent. `weights`, one for each of these
    /// numbers, are needed if [`MoeDrop::Lightest`] decides which rows are dropped. Rank r holds the experts of
    /// [`split_range`](crate::split_range)`(experts, size, r)`.
    #[doc(alias = "dsc_moe_plan_create")]
    #[doc(alias = "dsc_moe_plan_info")]
    pub fn moe_plan(&self, experts: &[i32], weights: Option<&[f32]>, options: &MoeOptions) -> Result<MoePlan<'_>> {
        let raw = options.raw()?;
        let tokens = experts.len() / options.top_k.max(1);
        if tokens * options.top_k != experts.len() {
            let text = format!(
                "experts has {} numbers; expected a multiple of {}, the value of top_k",
                experts.len(),
                options.top_k
            );
            return Err(Error::invalid(text).in_op("moe_plan_create"));
        }
        if let Some(weights) = weights.filter(|weights| weights.len() != experts.len()) {
            let text = format!("weights has {} numbers; expected {}, like experts", weights.len(), experts.len());
            return Err(Error::invalid(text).in_op("moe_plan_create"));
        }
        let mut plan = ptr::null_mut();
        let factors = weights.map_or(ptr::null(), <[f32]>::as_ptr);
        let turn = self.turn("moe_plan_create")?;
        // SAFETY: the lengths were compared above; options and plan outlive the call.
        let result =
            unsafe { sys::dsc_moe_plan_create(self.raw(), &raw, experts.as_ptr(), tokens, factors, &mut plan) };
        drop(turn);
        self.check(result, "moe_plan_create")?;
        let handle = NonNull::new(plan).map(MoePlanHandle);
        let text = "the library returned neither a plan nor an error";
        let handle = handle.ok_or_else(|| Error::new(ErrorCode::Internal, text.into()))?;
        let mut info = sized!(sys::dsc_moe_plan_info_t);
        // SAFETY: the library checks the handle; info has the size that it says, and outlives the call.
        check(unsafe { sys::dsc_moe_plan_info(handle.raw(), &mut info) })?;
        Ok(MoePlan { comm: self, handle, info })
    }
}

impl MoePlan<'_> {
    /// The number of tokens of this rank.
    pub fn tokens(&self) -> usize {
        self.info.tokens
    }

    /// The numbers of the experts that this rank holds.
    pub fn experts(&self) -> Range<usize> {
        self.info.first_expert..self.info.first_expert + self.info.local_experts
    }

    /// The number of rows that this rank's experts receive, including padding.
    pub fn rows(&self) -> usize {
        self.info.rows
    }

    /// The number of slots of this rank that are sent, to this rank or to others.
    pub fn sent(&self) -> usize {
        self.info.sent
    }

    /// The number of slots of this rank that were dropped for lack of capacity.
    pub fn dropped(&self) -> usize {
        self.info.dropped
    }

    /// The number of rows that each expert of this rank receives, without padding.
    #[doc(alias = "dsc_moe_plan_expert_rows")]
    pub fn expert_rows(&self) -> Result<Vec<usize>> {
        // SAFETY: the library checks the handle; room has capacity entries, and count outlives the call.
        list(self.info.local_experts, 0, |room, capacity, count| unsafe {
            sys::dsc_moe_plan_expert_rows(self.handle.raw(), room, capacity, count)
        })
    }

    /// The number of rows that each expert of this rank receives from each rank, at index `expert * size + source`.
    #[doc(alias = "dsc_moe_plan_source_rows")]
    pub fn source_rows(&self) -> Result<Vec<usize>> {
        // SAFETY: as in expert_rows().
        list(self.info.local_experts * self.comm.size(), 0, |room, capacity, count| unsafe {
            sys::dsc_moe_plan_source_rows(self.handle.raw(), room, capacity, count)
        })
    }

    /// The position of each slot's row among the rows that this rank sends; `None` if the slot is not sent or was
    /// dropped.
    #[doc(alias = "dsc_moe_plan_positions")]
    pub fn positions(&self) -> Result<Vec<Option<usize>>> {
        // SAFETY: as in expert_rows().
        let positions = list(self.slots(), 0, |room, capacity, count| unsafe {
            sys::dsc_moe_plan_positions(self.handle.raw(), room, capacity, count)
        })?;
        Ok(positions.into_iter().map(|at: i64| usize::try_from(at).ok()).collect())
    }

    /// Sends each token to its experts. `tokens` has `hidden` elements for each token. Collective.
    #[doc(alias = "dsc_moe_dispatch")]
    pub fn dispatch<X, R>(&mut self, tokens: &X, hidden: usize, payload: MoePayload, rows: &mut R) -> Result<()>
    where
        X: Data + ?Sized,
        R: DataMut<Kind = X::Kind> + ?Sized,
    {
        // SAFETY: the buffers are borrowed until the call returns, and it returns when it is complete.
        unsafe { self.launch_dispatch(tokens.span(), hidden, payload, rows.span_mut(), ptr::null_mut()) }
    }

    /// Computes the gradients of [`dispatch`](MoePlan::dispatch): each token gets the sum over its rows. Collective.
    #[doc(alias = "dsc_moe_dispatch_backward")]
    pub fn dispatch_backward<G, T>(&mut self, row_gradients: &G, hidden: usize, token_gradients: &mut T) -> Result<()>
    where
        G: Data + ?Sized,
        T: DataMut<Kind = G::Kind> + ?Sized,
    {
        let (from, to) = (row_gradients.span(), token_gradients.span_mut());
        // SAFETY: as in dispatch().
        unsafe { self.launch_dispatch_backward(from, hidden, to, ptr::null_mut()) }
    }

    /// Sends the rows of the experts back, and computes the weighted sum for each token. Collective.
    ///
    /// `weights` has a number for each slot, f64 for rows of f64 and otherwise f32; `None`: all are 1. `returned` gets
    /// the rows without their weights, `hidden` elements for each slot. The gradients of the weights need these rows.
    #[doc(alias = "dsc_moe_combine")]
    pub fn combine<R, W, O, K>(
        &mut self,
        rows: &R,
        weights: Option<&W>,
        hidden: usize,
        out: &mut O,
        returned: Option<&mut K>,
    ) -> Result<()>
    where
        R: Data + ?Sized,
        W: Data + ?Sized,
        O: DataMut<Kind = R::Kind> + ?Sized,
        K: DataMut<Kind = R::Kind> + ?Sized,
    {
        let (factors, kept) = (weights.map(|w| w.span()), returned.map(|kept| kept.span_mut()));
        // SAFETY: as in dispatch().
        unsafe { self.launch_combine(rows.span(), factors, hidden, out.span_mut(), kept, ptr::null_mut()) }
    }

    /// Computes the gradients of [`combine`](MoePlan::combine) for the rows, on the ranks of the experts. Collective.
    ///
    /// `of_weights` is a pair: the rows that [`combine`](MoePlan::combine) wrote to `returned`, and a buffer for the
    /// gradients of the weights.
    #[doc(alias = "dsc_moe_combine_backward")]
    pub fn combine_backward<G, W, K, R, V>(
        &mut self,
        out_gradients: &G,
        weights: Option<&W>,
        hidden: usize,
        row_gradients: &mut R,
        of_weights: Option<(&K, &mut V)>,
    ) -> Result<()>
    where
        G: Data + ?Sized,
        W: Data + ?Sized,
        K: Data<Kind = G::Kind> + ?Sized,
        R: DataMut<Kind = G::Kind> + ?Sized,
        V: DataMut + ?Sized,
    {
        let (from, factors) = (out_gradients.span(), weights.map(|w| w.span()));
        let of_weights = of_weights.map(|(kept, written)| (kept.span(), written.span_mut()));
        // SAFETY: as in dispatch().
        unsafe {
            self.launch_combine_backward(from, factors, hidden, row_gradients.span_mut(), of_weights, ptr::null_mut())
        }
    }

    /// Checks the buffers of dispatch() and calls the library.
    ///
    /// # Safety
    ///
    /// The buffers must be valid, rows for writing, and nothing else may use them until the call is complete.
    pub(crate) unsafe fn launch_dispatch(
        &mut self,
        tokens: Span,
        hidden: usize,
        payload: MoePayload,
        rows: Span,
        work: *mut *mut sys::dsc_work_t,
    ) -> Result<()> {
        const OP: &str = "moe_dispatch";
        self.expect(OP, "tokens", tokens, self.tokens(), hidden)?;
        self.expect_like(OP, "rows", rows, self.rows(), hidden, tokens.dtype)?;
        let (plan, dtype, payload) = (self.handle.raw(), tokens.dtype.number(), payload.number());
        self.exchange(OP, &[Some(tokens), Some(rows)], work, |stream, work| {
            // SAFETY: the lengths were compared; the caller guarantees the rest.
            unsafe { sys::dsc_moe_dispatch(plan, tokens.ptr, hidden, dtype, payload, rows.ptr, stream, work) }
        })
    }

    /// Checks the buffers of dispatch_backward() and calls the library.
    ///
    /// # Safety
    ///
    /// The requirements of launch_dispatch() apply.
    pub(crate) unsafe fn launch_dispatch_backward(
        &mut self,
        row_gradients: Span,
        hidden: usize,
        token_gradients: Span,
        work: *mut *mut sys::dsc_work_t,
    ) -> Result<()> {
        const OP: &str = "moe_dispatch_backward";
        let (from, to) = (row_gradients, token_gradients);
        self.expect(OP, "row_gradients", from, self.rows(), hidden)?;
        self.expect_like(OP, "token_gradients", to, self.tokens(), hidden, from.dtype)?;
        let (plan, dtype) = (self.handle.raw(), from.dtype.number());
        self.exchange(OP, &[Some(from), Some(to)], work, |stream, work| {
            // SAFETY: as in launch_dispatch().
            unsafe { sys::dsc_moe_dispatch_backward(plan, from.ptr, hidden, dtype, to.ptr, stream, work) }
        })
    }

    /// Checks the buffers of combine() and calls the library.
    ///
    /// # Safety
    ///
    /// The requirements of launch_dispatch() apply.
    pub(crate) unsafe fn launch_combine(
        &mut self,
        rows: Span,
        weights: Option<Span>,
        hidden: usize,
        out: Span,
        returned: Option<Span>,
        work: *mut *mut sys::dsc_work_t,
    ) -> Result<()> {
        const OP: &str = "moe_combine";
        self.expect(OP, "rows", rows, self.rows(), hidden)?;
        self.expect_like(OP, "out", out, self.tokens(), hidden, rows.dtype)?;
        self.expect_weights(OP, "weights", weights, rows.dtype)?;
        self.expect_returned(OP, returned, hidden, rows.dtype)?;
        let (plan, dtype) = (self.handle.raw(), rows.dtype.number());
        let (factors, kept) = (address(weights), address(returned));
        self.exchange(OP, &[Some(rows), weights, Some(out), returned], work, |stream, work| {
            // SAFETY: as in launch_dispatch().
            unsafe { sys::dsc_moe_combine(plan, rows.ptr, factors, hidden, dtype, out.ptr, kept, stream, work) }
        })
    }

    /// Checks the buffers of combine_backward() and calls the library.
    ///
    /// # Safety
    ///
    /// The requirements of launch_dispatch() apply.
    pub(crate) unsafe fn launch_combine_backward(
        &mut self,
        out_gradients: Span,
        weights: Option<Span>,
        hidden: usize,
        row_gradients: Span,
        of_weights: Option<(Span, Span)>,
        work: *mut *mut sys::dsc_work_t,
    ) -> Result<()> {
        const OP: &str = "moe_combine_backward";
        let (from, to) = (out_gradients, row_gradients);
        let (kept, written) = (of_weights.map(|both| both.0), of_weights.map(|both| both.1));
        self.expect(OP, "out_gradients", from, self.tokens(), hidden)?;
        self.expect_like(OP, "row_gradients", to, self.rows(), hidden, from.dtype)?;
        self.expect_weights(OP, "weights", weights, from.dtype)?;
        self.expect_returned(OP, kept, hidden, from.dtype)?;
        self.expect_weights(OP, "weight_gradients", written, from.dtype)?;
        let (plan, dtype) = (self.handle.raw(), from.dtype.number());
        let addresses = (address(weights), address(kept), address(written));
        self.exchange(OP, &[Some(from), weights, kept, Some(to), written], work, |stream, work| {
            let (factors, kept, written) = addresses;
            // SAFETY: as in launch_dispatch().
            unsafe {
                sys::dsc_moe_combine_backward(
                    plan, from.ptr, factors, kept, hidden, dtype, to.ptr, written, stream, work,
                )
            }
        })
    }

    /// Calls the library. On a GPU it uses the default stream. Without a work object it returns when the exchange is
    /// complete.
    fn exchange(
        &self,
        op: &'static str,
        buffers: &[Option<Span>],
        work: *mut *mut sys::dsc_work_t,
        call: impl FnOnce(*mut c_void, *mut *mut sys::dsc_work_t) -> sys::dsc_result_t,
    ) -> Result<()> {
        let turn = self.comm.turn(op)?;
        let on_device = buffers.iter().flatten().any(|span| span.is_on_device());
        let stream = if on_device { LEGACY as *mut c_void } else { ptr::null_mut() };
        if !on_device || !work.is_null() {
            return self.comm.check(call(stream, work), op);
        }
        let mut own = ptr::null_mut();
        let result = call(stream, &mut own);
        drop(turn);
        self.comm.check(result, op)?;
        complete_work(self.comm, own, op)
    }

    pub(crate) fn comm(&self) -> &Comm {
        self.comm
    }

    fn slots(&self) -> usize {
        self.info.tokens * self.info.top_k
    }

    fn expect(&self, op: &str, name: &str, found: Span, rows: usize, hidden: usize) -> Result<()> {
        if rows.checked_mul(hidden) == Some(found.count) {
            return Ok(());
        }
        let text =
            format!("{}: {} has {} elements; expected {} rows of {} elements", op, name, found.count, rows, hidden);
        Err(Error::invalid(text).in_op(op))
    }

    fn expect_like(&self, op: &str, name: &str, found: Span, rows: usize, hidden: usize, dtype: Dtype) -> Result<()> {
        self.expect(op, name, found, rows, hidden)?;
        self.expect_type(op, name, found, dtype)
    }

    fn expect_weights(&self, op: &str, name: &str, found: Option<Span>, rows: Dtype) -> Result<()> {
        let wanted = if rows == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
        found.map_or(Ok(()), |found| self.expect_like(op, name, found, self.slots(), 1, wanted))
    }

    fn expect_returned(&self, op: &str, found: Option<Span>, hidden: usize, dtype: Dtype) -> Result<()> {
        found.map_or(Ok(()), |found| self.expect_like(op, "returned", found, self.slots(), hidden, dtype))
    }

    fn expect_type(&self, op: &str, name: &str, found: Span, dtype: Dtype) -> Result<()> {
        if found.dtype == dtype {
            return Ok(());
        }
        let text = format!("{}: {} has type {:?}; expected {:?}", op, name, found.dtype, dtype);
        Err(Error::invalid(text).in_op(op))
    }
}

fn address(span: Option<Span>) -> *mut c_void {
    span.map_or(ptr::null_mut(), |span| span.ptr)
}

impl fmt::Debug for MoePlan<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tokens, rows, experts) = (self.tokens(), self.rows(), self.experts());
        write!(out, "MoePlan({} tokens, {} rows for experts {:?}, group {:?})", tokens, rows, experts, self.comm.name())
    }
}
