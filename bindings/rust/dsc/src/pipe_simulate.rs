//! Simulates a pipeline schedule to find its time and memory, and draws pictures of it.

use std::ptr::{self, NonNull};

use dsc_sys as sys;

use crate::convert::{list, natural, sized, text};
use crate::error::{check, Error, Result};
use crate::handles::ReportHandle;
use crate::numbers::{ErrorCode, PipeOp, PipePicture};
use crate::pipe_costs::PipeCosts;
use crate::pipe_plan::PipePlan;

/// The result of [`PipePlan::simulate`].
#[derive(Debug)]
pub struct PipeReport {
    /// The time at which all stages have computed and reduced.
    pub makespan: f64,
    /// An entry per stage.
    pub stages: Vec<PipeStageReport>,
    handle: ReportHandle,
}

/// A stage in a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PipeStageReport {
    /// The total time in which the stage computes.
    pub busy: f64,
    /// The time at which the stage's first operation starts.
    pub start: f64,
    /// The time at which the stage's last operation ends.
    pub end: f64,
    /// Idle time of the whole makespan: makespan - busy.
    pub idle: f64,
    /// Idle time between the stage's first and last operation: end - start - busy.
    pub own_window_idle: f64,
    /// The time at which the stage's last all-reduce of gradients ends; `None` without one.
    pub reduced: Option<f64>,
    /// The static bytes, plus the largest number of bytes of activations held at the same time.
    pub peak_bytes: f64,
    /// The largest number of micro-batches times chunks held at the same time.
    pub peak_activations: usize,
}

impl PipeStageReport {
    fn from_raw(raw: &sys::dsc_pipe_stage_stats_t) -> Self {
        PipeStageReport {
            busy: raw.busy,
            start: raw.start,
            end: raw.finish,
            idle: raw.idle,
            own_window_idle: raw.own_window_idle,
            reduced: Some(raw.reduced).filter(|end| *end > 0.0),
            peak_bytes: raw.peak_bytes,
            peak_activations: usize::try_from(raw.peak_activations).unwrap_or(0),
        }
    }
}

/// An operation in a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PipeSpan {
    /// The stage.
    pub stage: usize,
    /// A forward pass, a backward pass or a half of one.
    pub op: PipeOp,
    /// The chunk: one of the parts of the model on that stage, numbered from 0.
    pub chunk: usize,
    /// The micro-batch.
    pub micro_batch: usize,
    /// The time at which the operation starts.
    pub start: f64,
    /// The time at which the operation ends. Two operations that overlap have the same times.
    pub end: f64,
}

impl PipeSpan {
    fn from_raw(raw: &sys::dsc_pipe_span_t) -> Self {
        PipeSpan {
            stage: natural(raw.stage),
            op: PipeOp::from_number(raw.op),
            chunk: natural(raw.chunk),
            micro_batch: natural(raw.micro_batch),
            start: raw.start,
            end: raw.finish,
        }
    }
}

impl PipeReport {
    /// Returns all operations, ordered by stage, then by time.
    ///
    /// ```
    /// use dsc::{PipeCosts, PipePlanner};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let spans = PipePlanner::new("gpipe", 2, 1).plan()?.simulate(&PipeCosts::new())?.timeline()?;
    /// let times: Vec<_> = spans.iter().map(|span| (span.stage, span.start, span.end)).collect();
    /// assert_eq!(times, [(0, 0.0, 1.0), (0, 4.0, 6.0), (1, 1.0, 2.0), (1, 2.0, 4.0)]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dsc_pipe_report_timeline")]
    pub fn timeline(&self) -> Result<Vec<PipeSpan>> {
        let spans = list(0, sized!(sys::dsc_pipe_span_t), |spans, capacity, n| {
            // SAFETY: the library checks the handle; spans has capacity entries, and n outlives the call.
            unsafe { sys::dsc_pipe_report_timeline(self.handle.0.as_ptr(), spans, capacity, n) }
        })?;
        Ok(spans.iter().map(PipeSpan::from_raw).collect())
    }

    /// Returns the critical path: a chain of operations that cannot be delayed without a longer makespan, in the order
    /// of their times.
    ///
    /// ```
    /// use dsc::{PipeCosts, PipePlanner};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let it = PipePlanner::new("1f1b", 4, 8).plan()?.simulate(&PipeCosts::new())?;
    /// let path = it.critical_path()?;
    /// assert_eq!((path[0].start, path[path.len() - 1].end), (0.0, it.makespan));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dsc_pipe_report_critical_path")]
    pub fn critical_path(&self) -> Result<Vec<PipeSpan>> {
        let spans = list(0, sized!(sys::dsc_pipe_span_t), |spans, capacity, n| {
            // SAFETY: as in timeline().
            unsafe { sys::dsc_pipe_report_critical_path(self.handle.0.as_ptr(), spans, capacity, n) }
        })?;
        Ok(spans.iter().map(PipeSpan::from_raw).collect())
    }
}

impl PipePlan {
    /// Computes when every operation runs and how much memory is in use. It takes about 0.1 microseconds and 60 bytes
    /// per operation.
    ///
    /// Every stage runs its operations in order, each as soon as its input has arrived. A message waits for its link
    /// and takes bytes / bytes_per_time on it, plus the latency. Meanwhile both stages compute. An activation is held
    /// from the start of its forward pass to the end of the half that computes gradients of weights.
    ///
    /// ```
    /// use dsc::{PipeCosts, PipePlanner};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let it = PipePlanner::new("zb_h1", 4, 8).plan()?.simulate(&PipeCosts::new())?;
    /// assert_eq!(it.makespan, 27.0);
    /// assert!(it.stages.iter().all(|stage| stage.idle == 3.0 && stage.peak_activations == 4));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dsc_pipe_simulate")]
    pub fn simulate(&self, costs: &PipeCosts) -> Result<PipeReport> {
        let (mut report, mut makespan) = (ptr::null_mut(), 0.0);
        // SAFETY: the library checks the handle. costs and the pointer for the report outlive the call.
        costs.with_raw(|costs| check(unsafe { sys::dsc_pipe_simulate(self.raw(), costs, &mut report) }))?;
        let handle = NonNull::new(report).map(ReportHandle).ok_or_else(|| {
            Error::new(ErrorCode::Internal, "the library returned neither a report nor an error".into())
        })?;
        // SAFETY: the library checks the handle, and makespan outlives the call.
        check(unsafe { sys::dsc_pipe_report_makespan(report, &mut makespan) })?;
        let stages = list(0, sized!(sys::dsc_pipe_stage_stats_t), |stages, capacity, n| {
            // SAFETY: the library checks the handle; stages has capacity entries, and n outlives the call.
            unsafe { sys::dsc_pipe_report_stages(report, stages, capacity, n) }
        })?;
        Ok(PipeReport { makespan, stages: stages.iter().map(PipeStageReport::from_raw).collect(), handle })
    }

    /// Draws when every operation runs, for at most 200,000 operations.
    ///
    /// ```
    /// use dsc::{PipeCosts, PipePicture, PipePlanner};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let plan = PipePlanner::new("zb_v", 4, 8).plan()?;
    /// let costs = PipeCosts::new().backward_weight(&[0.8]);
    /// assert!(plan.draw(PipePicture::Text, &costs)?.starts_with("zb_v: 4 stages x 2 chunks, 8 micro-batches\n0 |F0"));
    /// assert!(plan.draw(PipePicture::Svg, &costs)?.starts_with("<svg"));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dsc_pipe_draw")]
    pub fn draw(&self, picture: PipePicture, costs: &PipeCosts) -> Result<String> {
        costs.with_raw(|costs| {
            text(|room, capacity, bytes| {
                // SAFETY: the library checks the handle; room has capacity bytes, and costs and bytes outlive the call.
                unsafe { sys::dsc_pipe_draw(self.raw(), costs, picture.number(), room, capacity, bytes) }
            })
        })
    }
}
