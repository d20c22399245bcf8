//! Asynchronous exchanges of tokens, on buffers that are borrowed for a scope.

use crate::data::{Data, DataMut};
use crate::error::{Error, Result};
use crate::expert_parallel::MoePlan;
use crate::numbers::MoePayload;
use crate::scope::{Scope, ScopedWork};

/// An exchange that reads one buffer and writes another.
type Pair<'scope, S, R> = Result<ScopedWork<'scope, (&'scope S, &'scope mut R)>>;
/// An exchange that writes a buffer and an optional second one.
type Written<'scope, R, K> = Result<ScopedWork<'scope, (&'scope mut R, Option<&'scope mut K>)>>;

/// # In the background
///
/// Each method starts an exchange in a scope of the plan's communicator. A plan can have only one call in progress:
/// until the program has waited for its work, another call fails with [`ErrorCode::State`](crate::ErrorCode::State).
/// The plan may be dropped while a call is in progress.
///
/// ```
/// use dsc::{MoeOptions, MoePayload};
///
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let (tokens, experts) = ([1f32, 2., 3., 4.], [0, 1]); // 2 tokens of 2 elements, with one expert for each
/// let mut plan = world.moe_plan(&experts, None, &MoeOptions::new(2, 1))?;
/// let (mut rows, mut out) = (vec![0f32; plan.rows() * 2], [0f32; 4]);
/// world.scope(|scope| {
///     let work = plan.start_dispatch(scope, &tokens, 2, MoePayload::Plain, &mut rows)?;
///     let dense: f32 = tokens.iter().sum(); // other computation meanwhile
///     let (_, rows) = work.wait()?;
///     rows.iter_mut().for_each(|x| *x *= 2.0); // here all experts compute the same
///     plan.start_combine(scope, rows, None::<&[f32]>, 2, &mut out, None::<&mut [f32]>)?;
/// #   assert_eq!(dense, 10.0);
///     Ok(()) // the end of the scope waits
/// })?;
/// assert_eq!(out, [2., 4., 6., 8.]);
/// drop(plan);
/// world.finalize()
/// # }
/// ```
///
/// A buffer that the library may write cannot be touched before the work has returned it:
///
/// ```compile_fail
/// # use dsc::{MoeOptions, MoePayload};
/// # fn main() -> dsc::Result<()> {
/// # let world = dsc::init()?;
/// # let mut plan = world.moe_plan(&[0], None, &MoeOptions::new(1, 1))?;
/// # let mut rows = vec![0f32; plan.rows()];
/// world.scope(|scope| {
///     std::mem::forget(plan.start_dispatch(scope, &[1f32], 1, MoePayload::Plain, &mut rows));
///     rows[0] = 1.0;
///     Ok(())
/// })
/// # }
/// ```
impl MoePlan<'_> {
    /// Starts the exchange of [`dispatch`](MoePlan::dispatch).
    pub fn start_dispatch<'scope, X, R>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        tokens: &'scope X,
        hidden: usize,
        payload: MoePayload,
        rows: &'scope mut R,
    ) -> Pair<'scope, X, R>
    where
        X: Data + ?Sized,
        R: DataMut<Kind = X::Kind> + ?Sized,
    {
        self.expect_scope(scope, "moe_dispatch")?;
        scope.start_call("moe_dispatch", (tokens, rows), |(tokens, rows), work| {
            // SAFETY: the buffers are borrowed until the end of the scope, which waits for the call.
            unsafe { self.launch_dispatch(tokens.span(), hidden, payload, rows.span_mut(), work) }
        })
    }

    /// Starts the exchange of [`dispatch_backward`](MoePlan::dispatch_backward).
    pub fn start_dispatch_backward<'scope, G, T>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        row_gradients: &'scope G,
        hidden: usize,
        token_gradients: &'scope mut T,
    ) -> Pair<'scope, G, T>
    where
        G: Data + ?Sized,
        T: DataMut<Kind = G::Kind> + ?Sized,
    {
        self.expect_scope(scope, "moe_dispatch_backward")?;
        scope.start_call("moe_dispatch_backward", (row_gradients, token_gradients), |(from, to), work| {
            // SAFETY: as in start_dispatch().
            unsafe { self.launch_dispatch_backward(from.span(), hidden, to.span_mut(), work) }
        })
    }

    /// Starts the exchange of [`combine`](MoePlan::combine). The work returns `out` and `returned`.
    pub fn start_combine<'scope, R, W, O, K>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        rows: &'scope R,
        weights: Option<&'scope W>,
        hidden: usize,
        out: &'scope mut O,
        returned: Option<&'scope mut K>,
    ) -> Written<'scope, O, K>
    where
        R: Data + ?Sized,
        W: Data + ?Sized,
        O: DataMut<Kind = R::Kind> + ?Sized,
        K: DataMut<Kind = R::Kind> + ?Sized,
    {
        self.expect_scope(scope, "moe_combine")?;
        let (rows, weights) = (rows.span(), weights.map(|w| w.span()));
        scope.start_call("moe_combine", (out, returned), |(out, returned), work| {
            let kept = returned.as_mut().map(|kept| kept.span_mut());
            // SAFETY: as in start_dispatch().
            unsafe { self.launch_combine(rows, weights, hidden, out.span_mut(), kept, work) }
        })
    }

    /// Starts the exchange of [`combine_backward`](MoePlan::combine_backward). The work returns `row_gradients` and the
    /// gradients of the weights.
    pub fn start_combine_backward<'scope, G, W, K, R, V>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        out_gradients: &'scope G,
        weights: Option<&'scope W>,
        hidden: usize,
        row_gradients: &'scope mut R,
        of_weights: Option<(&'scope K, &'scope mut V)>,
    ) -> Written<'scope, R, V>
    where
        G: Data + ?Sized,
        W: Data + ?Sized,
        K: Data<Kind = G::Kind> + ?Sized,
        R: DataMut<Kind = G::Kind> + ?Sized,
        V: DataMut + ?Sized,
    {
        self.expect_scope(scope, "moe_combine_backward")?;
        let (from, weights) = (out_gradients.span(), weights.map(|w| w.span()));
        let (kept, written) = of_weights.map_or((None, None), |(kept, written)| (Some(kept.span()), Some(written)));
        scope.start_call("moe_combine_backward", (row_gradients, written), |(to, written), work| {
            let of_weights = kept.zip(written.as_mut().map(|written| written.span_mut()));
            // SAFETY: as in start_dispatch().
            unsafe { self.launch_combine_backward(from, weights, hidden, to.span_mut(), of_weights, work) }
        })
    }

    /// Checks that the scope is one of this communicator: a scope waits for operations of its own communicator only,
    /// and aborts only that communicator when the closure panics.
    fn expect_scope(&self, scope: &Scope<'_, '_>, op: &str) -> Result<()> {
        if scope.comm().raw() == self.comm().raw() {
            return Ok(());
        }
        let (found, expected) = (scope.comm().name(), self.comm().name());
        let text =
            format!("{}: the scope belongs to group {:?}; expected the group of the plan, {:?}", op, found, expected);
        Err(Error::invalid(text).in_op(op))
    }
}
