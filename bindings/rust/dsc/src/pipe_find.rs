//! Finds the best schedule for given costs.

use dsc_sys as sys;

use crate::convert::{defaults, sized};
use crate::error::{text, Error, Result};
use crate::handles::ScheduleHandle;
use crate::pipe_costs::PipeCosts;
use crate::pipe_plan::PipePlan;
use crate::pipe_planner::PipePlanner;

/// Limits for every stage of a schedule; by default there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PipeLimits {
    activations: Option<usize>,
    bytes: Option<f64>,
}

impl PipeLimits {
    /// No limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// The largest number of micro-batches times chunks that a stage may hold, 1 or more.
    #[must_use]
    pub fn activations(mut self, most: usize) -> Self {
        self.activations = Some(most);
        self
    }

    /// The largest number of bytes of a stage, including the static bytes; more than 0.
    #[must_use]
    pub fn bytes(mut self, most: f64) -> Self {
        self.bytes = Some(most);
        self
    }

    /// Returns the limits as a C struct. There, 0 means "not set", so a limit of 0 is refused.
    fn raw(&self) -> Result<sys::dsc_pipe_search_options_t> {
        let activations = self.activations.unwrap_or(0);
        if self.activations == Some(0) {
            return Err(Error::invalid("activations is 0; expected at least 1".into()));
        }
        if self.bytes == Some(0.0) {
            return Err(Error::invalid("bytes is 0; expected more than 0".into()));
        }
        // SAFETY: `defaults` passes memory for the struct, and its size.
        let mut raw: sys::dsc_pipe_search_options_t =
            defaults(|raw, bytes| unsafe { sys::dsc_pipe_search_options_init(raw, bytes) })?;
        raw.activations = i64::try_from(activations).unwrap_or(i64::MAX);
        raw.bytes = self.bytes.unwrap_or(0.0);
        Ok(raw)
    }
}

/// The result of [`PipePlanner::find`].
#[derive(Debug)]
#[non_exhaustive]
pub struct PipeFound {
    /// The schedule.
    pub plan: PipePlan,
    /// The makespan of the schedule for the given costs.
    pub makespan: f64,
    /// A lower bound: no order has a smaller makespan.
    pub bound: f64,
    /// Whether it is proven that no other order is better.
    pub is_optimal: bool,
    /// The best schedule with a name; `None` if no such schedule fits into the limits.
    pub best_named: Option<String>,
    /// The makespan of the schedule `best_named`.
    pub best_named_makespan: Option<f64>,
    /// How the schedule was found: the name of a schedule, "greedy", "repaired" or "exact".
    pub origin: String,
}

impl PipePlanner {
    /// Finds the best schedule for given costs and memory limits. The planner's name must be "auto".
    ///
    /// It tries all named schedules, orders from greedy rules, small changes of the best one and, for small pipelines,
    /// every possible order. With more than one chunk it also tries the zigzag placement. The same arguments give the
    /// same schedule on every rank. It takes several hundred simulations.
    ///
    /// ```
    /// use dsc::{PipeCosts, PipeLimits, PipePlanner};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let costs = PipeCosts::new().forward(&[1.0, 2.0]).backward_input(&[2.0]).latency(0.5);
    /// let it = PipePlanner::new("auto", 2, 3).find(&costs, &PipeLimits::new().activations(2))?;
    /// assert!(it.is_optimal && it.bound <= it.makespan);
    /// assert_eq!(it.plan.simulate(&costs)?.makespan, it.makespan);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dsc_pipe_search")]
    pub fn find(&self, costs: &PipeCosts, limits: &PipeLimits) -> Result<PipeFound> {
        let (search, mut result) = (limits.raw()?, sized!(sys::dsc_pipe_search_result_t));
        let handle = self.with_raw(|options| {
            costs.with_raw(|costs| {
                ScheduleHandle::made(|schedule| {
                    // SAFETY: all arguments, including the pointer for the schedule, outlive the call.
                    unsafe { sys::dsc_pipe_search(options, costs, &search, &mut result, schedule) }
                })
            })
        })?;
        let best_named = Some(text(&result.best_named)).filter(|name| !name.is_empty());
        Ok(PipeFound {
            plan: PipePlan::of(handle),
            makespan: result.makespan,
            bound: result.bound,
            is_optimal: result.is_optimal != 0,
            best_named_makespan: best_named.as_ref().map(|_| result.best_named_makespan),
            best_named,
            origin: text(&result.origin),
        })
    }
}
