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

/// Options of [`Comm::moe_plan`], the same on all ranks.
#[derive(Clone, Debug)]
pub struct MoeOptions {
    experts: usize,
    top_k: usize,
    capacity: usize,
    drop: MoeDrop,
    padded: bool,
}

impl MoeOptions {
    /// So many experts on all ranks together, and `top_k` slots of each token; no row is dropped.
    pub fn new(experts: usize, top_k: usize) -> Self {
        MoeOptions { experts, top_k, capacity: 0, drop: MoeDrop::Latest, padded: false }
    }

    /// The most rows of each pair of expert and source rank, and which are dropped beyond that.
    #[must_use]
    pub fn capacity(mut self, rows: usize, drop: MoeDrop) -> Self {
        self.capacity = rows;
        self.drop = drop;
        self
    }

    /// Whether each pair of expert and source rank has exactly as many rows as the capacity says.
    #[must_use]
    pub fn padded(mut self, on: bool) -> Self {
        self.padded = on;
        self
    }

    #[doc(alias = "dsc_moe_options_init")]
    fn raw(&self) -> Result<sys::dsc_moe_options_t> {
        // SAFETY: `defaults` gives room for the struct, and its size.
        let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_moe_options_init(raw, bytes) })?;
        raw.experts = self.experts;
        raw.top_k = self.top_k;
        raw.capacity = self.capacity;
        raw.drop = self.drop.number();
        raw.padded = i32::from(self.padded);
        Ok(raw)
    }
}

/// Says which token goes to which rank for its experts, for one layer and step.
///
/// The rows that a rank receives are grouped by its experts, and within an expert by the rank that sent them, then by slot.
/// The buffers of a call are memory of the host, or all of the GPU that the communicator is bound to; a call returns when it
/// is complete. The numbers are those of dsc/expert_parallel.h.
///
/// ```
/// use dsc::{MoeOptions, MoePayload};
///
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let (tokens, experts, weights) = ([1f32, 2., 3., 4.], [0, 1, 1, -1], [0.5f32, 0.5, 1., 1.]); // 2 tokens of 2 elements
/// let mut plan = world.moe_plan(&experts, None, &MoeOptions::new(2, 2))?;
/// let mut rows = vec![0f32; plan.rows() * 2];
/// plan.dispatch(&tokens, 2, MoePayload::Plain, &mut rows)?;
/// if world.size() == 1 {
///     assert_eq!(rows, [1., 2., 1., 2., 3., 4.]); // of expert 0, then of expert 1
/// }
/// let mut out = [0f32; 4];
/// plan.combine(&rows, Some(&weights), 2, &mut out, None::<&mut [f32]>)?; // experts that change nothing
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
    /// `experts` has `top_k` numbers for each token, -1 for a slot that goes nowhere. `weights`, one for each of these numbers,
    /// are needed where [`MoeDrop::Lightest`] decides which rows are dropped. Rank r holds the experts of
    /// [`split_range`](crate::split_range)`(experts, size, r)`.
    #[doc(alias = "dsc_moe_plan_create")]
    #[doc(alias = "dsc_moe_plan_info")]
    pub fn moe_plan(&self, experts: &[i32], weights: Option<&[f32]>, options: &MoeOptions) -> Result<MoePlan<'_>> {
        let raw = options.raw()?;
        let tokens = experts.len() / options.top_k.max(1);
        if tokens * options.top_k != experts.len() {
            let text = format!("experts has {} numbers; expected a multiple of {}", experts.len(), options.top_k);
            return Err(Error::invalid(text).in_op("moe_plan_create"));
        }
        if let Some(weights) = weights.filter(|weights| weights.len() != experts.len()) {
            let text = format!("weights has {} numbers; expected {}", weights.len(), experts.len());
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
        let text = "the library gave no plan and no error";
        let handle = handle.ok_or_else(|| Error::new(ErrorCode::Internal, text.into()))?;
        let mut info = sized!(sys::dsc_moe_plan_info_t);
        // SAFETY: the library checks the handle; info has the size that it says, and outlives the call.
        check(unsafe { sys::dsc_moe_plan_info(handle.raw(), &mut info) })?;
        Ok(MoePlan { comm: self, handle, info })
    }
}

impl MoePlan<'_> {
    /// Tokens of this rank.
    pub fn tokens(&self) -> usize {
        self.info.tokens
    }

    /// The experts that this rank holds, by their numbers among all.
    pub fn experts(&self) -> Range<usize> {
        self.info.first_expert..self.info.first_expert + self.info.local_experts
    }

    /// Rows that this rank's experts receive, with padding.
    pub fn rows(&self) -> usize {
        self.info.rows
    }

    /// Slots of this rank that are sent, to itself or to others.
    pub fn sent(&self) -> usize {
        self.info.sent
    }

    /// Slots of this rank that were dropped for lack of capacity.
    pub fn dropped(&self) -> usize {
        self.info.dropped
    }

    /// How many rows each expert of this rank receives, without padding.
    #[doc(alias = "dsc_moe_plan_expert_rows")]
    pub fn expert_rows(&self) -> Result<Vec<usize>> {
        // SAFETY: the library checks the handle; room has capacity entries, and count outlives the call.
        list(self.info.local_experts, 0, |room, capacity, count| unsafe {
            sys::dsc_moe_plan_expert_rows(self.handle.raw(), room, capacity, count)
        })
    }

    /// How many rows each expert of this rank receives from each rank: entry `expert * size + source`.
    #[doc(alias = "dsc_moe_plan_source_rows")]
    pub fn source_rows(&self) -> Result<Vec<usize>> {
        // SAFETY: as for expert_rows().
        list(self.info.local_experts * self.comm.size(), 0, |room, capacity, count| unsafe {
            sys::dsc_moe_plan_source_rows(self.handle.raw(), room, capacity, count)
        })
    }

    /// Where the row of each slot stands among those that this rank sends; none if it goes nowhere or was dropped.
    #[doc(alias = "dsc_moe_plan_positions")]
    pub fn positions(&self) -> Result<Vec<Option<usize>>> {
        // SAFETY: as for expert_rows().
        let positions = list(self.slots(), 0, |room, capacity, count| unsafe {
            sys::dsc_moe_plan_positions(self.handle.raw(), room, capacity, count)
        })?;
        Ok(positions.into_iter().map(|at: i64| usize::try_from(at).ok()).collect())
    }

    /// Sends each token, `hidden` elements of `tokens`, to its experts. Collective.
    #[doc(alias = "dsc_moe_dispatch")]
    pub fn dispatch<X, R>(&mut self, tokens: &X, hidden: usize, payload: MoePayload, rows: &mut R) -> Result<()>
    where
        X: Data + ?Sized,
        R: DataMut<Kind = X::Kind> + ?Sized,
    {
        const OP: &str = "moe_dispatch";
        let (from, to) = (tokens.span(), rows.span_mut());
        self.expect(OP, "tokens", from, self.tokens(), hidden)?;
        self.expect_like(OP, "rows", to, self.rows(), hidden, from.dtype)?;
        let (plan, dtype, payload) = (self.handle.raw(), from.dtype.number(), payload.number());
        // SAFETY: the lengths were compared; rows is borrowed mutably, and exchange() returns when it is complete.
        self.exchange(OP, &[Some(from), Some(to)], |stream, work| unsafe {
            sys::dsc_moe_dispatch(plan, from.ptr, hidden, dtype, payload, to.ptr, stream, work)
        })
    }

    /// Computes the gradients of [`dispatch`](MoePlan::dispatch): each token gets the sum of those of its rows. Collective.
    #[doc(alias = "dsc_moe_dispatch_backward")]
    pub fn dispatch_backward<G, T>(&mut self, row_gradients: &G, hidden: usize, token_gradients: &mut T) -> Result<()>
    where
        G: Data + ?Sized,
        T: DataMut<Kind = G::Kind> + ?Sized,
    {
        const OP: &str = "moe_dispatch_backward";
        let (from, to) = (row_gradients.span(), token_gradients.span_mut());
        self.expect(OP, "row_gradients", from, self.rows(), hidden)?;
        self.expect_like(OP, "token_gradients", to, self.tokens(), hidden, from.dtype)?;
        let (plan, dtype) = (self.handle.raw(), from.dtype.number());
        // SAFETY: as in dispatch().
        self.exchange(OP, &[Some(from), Some(to)], |stream, work| unsafe {
            sys::dsc_moe_dispatch_backward(plan, from.ptr, hidden, dtype, to.ptr, stream, work)
        })
    }

    /// Sends the rows of the experts back, and sums those of each token with their weights. Collective.
    ///
    /// `weights` has a number for each slot, f64 for rows of f64 and otherwise f32; without it all are 1. `returned` gets the
    /// rows without their weights, `hidden` elements for each slot, which the gradients of the weights need.
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
        const OP: &str = "moe_combine";
        let (from, to) = (rows.span(), out.span_mut());
        let (factors, kept) = (weights.map(|w| w.span()), returned.map(|kept| kept.span_mut()));
        self.expect(OP, "rows", from, self.rows(), hidden)?;
        self.expect_like(OP, "out", to, self.tokens(), hidden, from.dtype)?;
        self.expect_weights(OP, "weights", factors, from.dtype)?;
        if let Some(kept) = kept {
            self.expect_like(OP, "returned", kept, self.slots(), hidden, from.dtype)?;
        }
        let (plan, dtype) = (self.handle.raw(), from.dtype.number());
        let (weights, returned) = (address(factors), address(kept));
        // SAFETY: as in dispatch().
        self.exchange(OP, &[Some(from), factors, Some(to), kept], |stream, work| unsafe {
            sys::dsc_moe_combine(plan, from.ptr, weights, hidden, dtype, to.ptr, returned, stream, work)
        })
    }

    /// Computes the gradients of [`combine`](MoePlan::combine) for the rows, where the experts are. Collective.
    ///
    /// `of_weights` are what [`combine`](MoePlan::combine) returned, and where the gradients of the weights go.
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
        const OP: &str = "moe_combine_backward";
        let (from, to) = (out_gradients.span(), row_gradients.span_mut());
        let factors = weights.map(|w| w.span());
        self.expect(OP, "out_gradients", from, self.tokens(), hidden)?;
        self.expect_like(OP, "row_gradients", to, self.rows(), hidden, from.dtype)?;
        self.expect_weights(OP, "weights", factors, from.dtype)?;
        let of_weights = of_weights.map(|(kept, written)| (kept.span(), written.span_mut()));
        let (kept, written) = (of_weights.map(|both| both.0), of_weights.map(|both| both.1));
        if let Some(kept) = kept {
            self.expect_like(OP, "returned", kept, self.slots(), hidden, from.dtype)?;
        }
        self.expect_weights(OP, "weight_gradients", written, from.dtype)?;
        // SAFETY: as in dispatch().
        self.exchange(OP, &[Some(from), factors, kept, Some(to), written], |stream, work| unsafe {
            sys::dsc_moe_combine_backward(
                self.handle.raw(),
                from.ptr,
                address(factors),
                address(kept),
                hidden,
                from.dtype.number(),
                to.ptr,
                address(written),
                stream,
                work,
            )
        })
    }

    /// Makes a call on these buffers and returns when it is complete: on a GPU, on its default stream, with a work object.
    fn exchange(
        &self,
        op: &'static str,
        buffers: &[Option<Span>],
        call: impl FnOnce(*mut c_void, *mut *mut sys::dsc_work_t) -> sys::dsc_result_t,
    ) -> Result<()> {
        let turn = self.comm.turn(op)?;
        if !buffers.iter().flatten().any(|span| span.is_on_device()) {
            return self.comm.check(call(ptr::null_mut(), ptr::null_mut()), op);
        }
        let mut work = ptr::null_mut();
        let result = call(LEGACY as *mut c_void, &mut work);
        drop(turn);
        self.comm.check(result, op)?;
        complete_work(self.comm, work, op)
    }

    fn slots(&self) -> usize {
        self.info.tokens * self.info.top_k
    }

    fn expect(&self, op: &str, name: &str, found: Span, rows: usize, hidden: usize) -> Result<()> {
        if rows.checked_mul(hidden) == Some(found.count) {
            return Ok(());
        }
        let text = format!("{}: {} has {} elements; expected {} rows of {}", op, name, found.count, rows, hidden);
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

    fn expect_type(&self, op: &str, name: &str, found: Span, dtype: Dtype) -> Result<()> {
        if found.dtype == dtype {
            return Ok(());
        }
        let text = format!("{}: {} is of {:?}; expected {:?}", op, name, found.dtype, dtype);
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
