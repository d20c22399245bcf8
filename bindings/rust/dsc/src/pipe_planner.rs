//! Makes schedules of pipelines: from a name or custom orders, and options.

use dsc_sys as sys;

use crate::convert::{c_string, defaults, number};
use crate::error::{Error, Result};
use crate::handles::ScheduleHandle;
use crate::numbers::{PipeMessages, PipeOp, PipePlacement};
use crate::pipe_plan::PipePlan;

/// Instead of a stage: all stages.
pub(crate) const WHOLE: i32 = -1;

/// Makes schedules of pipelines. [`plan`](PipePlanner::plan) makes the schedule with a name,
/// [`custom`](PipePlanner::custom) one from custom orders, and [`find`](PipePlanner::find) the best one for given
/// costs.
///
/// It is plain arithmetic and needs no communicator.
///
/// ```
/// use dsc::{PipeFormat, PipePlanner};
///
/// # fn main() -> dsc::Result<()> {
/// let plan = PipePlanner::new("1f1b", 2, 2).plan()?;
/// assert_eq!(plan.write(PipeFormat::PyTorch)?, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
/// let forward = PipePlanner::new("1f1b", 2, 2).forward_only().plan()?;
/// assert_eq!(forward.write(PipeFormat::PyTorch)?, "0F0,0F1\n1F0,1F1\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipePlanner {
    name: String,
    pub(crate) stages: usize,
    micro_batches: usize,
    chunks: Option<usize>,
    micro_batch_group: Option<usize>,
    forward_only: bool,
    merge_backward: bool,
    messages: PipeMessages,
    placement: PipePlacement,
}

impl PipePlanner {
    /// The name of a schedule in `dsc/pipe.h`, such as "1f1b", "zb_v" or "auto" (for [`custom`](PipePlanner::custom):
    /// any name), the number of stages and the micro-batches of a batch; both are 1 or more.
    pub fn new(name: &str, stages: usize, micro_batches: usize) -> Self {
        PipePlanner {
            name: name.to_owned(),
            stages,
            micro_batches,
            chunks: None,
            micro_batch_group: None,
            forward_only: false,
            merge_backward: false,
            messages: PipeMessages::WhenNeeded,
            placement: PipePlacement::Loop,
        }
    }

    /// Parts of the model on every stage, 1 or more; by default as many as the schedule needs, and 1 for custom orders.
    #[must_use]
    pub fn chunks(mut self, chunks: usize) -> Self {
        self.chunks = Some(chunks);
        self
    }

    /// For "interleaved_1f1b": micro-batches that run through a chunk before the next chunk, 1 or more; by default as
    /// many as there are stages, or a number that divides the batch evenly.
    #[must_use]
    pub fn micro_batch_group(mut self, micro_batches: usize) -> Self {
        self.micro_batch_group = Some(micro_batches);
        self
    }

    /// Makes schedules without backward passes.
    #[must_use]
    pub fn forward_only(mut self) -> Self {
        self.forward_only = true;
        self
    }

    /// Merges two halves of a backward pass that follow each other.
    #[must_use]
    pub fn merge_backward(mut self) -> Self {
        self.merge_backward = true;
        self
    }

    /// Messages are sent right after they are computed, and received as early as possible, as in PyTorch 2.7. By
    /// default they are exchanged when they are needed, with the fewest buffers.
    #[must_use]
    pub fn messages_at_once(mut self) -> Self {
        self.messages = PipeMessages::AtOnce;
        self
    }

    /// For custom orders: parts are placed from the first stage to the last, then back; two chunks make a V.
    #[must_use]
    pub fn zigzag(self) -> Self {
        self.placement(PipePlacement::Zigzag)
    }

    /// For custom orders: where the parts of the model are; [`PipePlacement::Loop`] by default.
    #[must_use]
    pub fn placement(mut self, placement: PipePlacement) -> Self {
        self.placement = placement;
        self
    }

    /// The schedule with the name; for "auto", the result of [`find`](PipePlanner::find) for equal costs and no limits.
    #[doc(alias = "dsc_pipe_schedule_create")]
    #[doc(alias = "dsc_pipe_schedule_options_init")]
    pub fn plan(&self) -> Result<PipePlan> {
        self.make(WHOLE).map(PipePlan::of)
    }

    /// One stage of the schedule; -1: the whole schedule.
    pub(crate) fn make(&self, stage: i32) -> Result<ScheduleHandle> {
        self.with_raw(|options| {
            let options = sys::dsc_pipe_schedule_options_t { stage, ..*options };
            // SAFETY: the options and their name outlive the call, as the pointer for the schedule does.
            ScheduleHandle::made(|schedule| unsafe { sys::dsc_pipe_schedule_create(&options, schedule) })
        })
    }

    /// A schedule from the order in which each stage computes, with a list for every stage.
    ///
    /// Every part of the model needs a forward pass of each micro-batch, and unless it is
    /// [`forward_only`](PipePlanner::forward_only) a backward pass or both halves of one. For orders that
    /// cannot be run, the error names stage and operation, and the stages that wait for each other.
    ///
    /// ```
    /// use dsc::{PipeCompute, PipeOp, PipePlanner};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let forward = PipeCompute::new(PipeOp::Forward, 0, 0); // of chunk 0 and micro-batch 0
    /// let backward = PipeCompute::new(PipeOp::Backward, 0, 0);
    /// let first = vec![forward, PipeCompute::idle(), backward];
    /// let plan = PipePlanner::new("mine", 2, 1).custom(&[first.clone(), vec![forward, backward]])?;
    /// assert_eq!((plan.name()?, plan.order(0)?), ("mine".into(), first.clone()));
    ///
    /// let error = PipePlanner::new("mine", 2, 1).custom(&[first, vec![backward, forward]]).unwrap_err();
    /// assert!(error.message.contains("stage 1: operation 0, backward of micro-batch 0 in chunk 0, comes before"));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dsc_pipe_schedule_create_custom")]
    pub fn custom(&self, orders: &[Vec<PipeCompute>]) -> Result<PipePlan> {
        let starts = self.starts("orders", orders)?;
        let operations = orders.iter().flatten().map(PipeCompute::raw).collect::<Result<Vec<_>>>()?;
        self.with_raw(|options| {
            let (operations, starts) = (operations.as_ptr(), starts.as_ptr());
            ScheduleHandle::made(|schedule| {
                // SAFETY: there are stages + 1 starts, and as many operations as the last one says; both and the
                // options outlive the call, as the pointer for the schedule does.
                unsafe { sys::dsc_pipe_schedule_create_custom(options, operations, starts, schedule) }
            })
        })
        .map(PipePlan::of)
    }

    /// Where the entries of each stage begin in the concatenated lists, then the end.
    pub(crate) fn starts<T>(&self, name: &str, lists: &[Vec<T>]) -> Result<Vec<usize>> {
        if lists.len() != self.stages {
            let text = format!("{} has {} lists; expected {}, one per stage", name, lists.len(), self.stages);
            return Err(Error::invalid(text));
        }
        let ends = lists.iter().scan(0, |end, list| {
            *end += list.len();
            Some(*end)
        });
        Ok(std::iter::once(0).chain(ends).collect())
    }

    /// Calls with the options for the whole pipeline, in the form of the C interface.
    pub(crate) fn with_raw<T>(&self, call: impl FnOnce(&sys::dsc_pipe_schedule_options_t) -> Result<T>) -> Result<T> {
        let name = c_string("the name of a schedule", &self.name)?;
        let mut options = default_options()?;
        options.name = name.as_ptr();
        options.stages = number("stages", self.stages)?;
        options.micro_batches = number("micro_batches", self.micro_batches)?;
        options.chunks = given("chunks", self.chunks)?;
        options.micro_batch_group = given("micro_batch_group", self.micro_batch_group)?;
        options.forward_only = i32::from(self.forward_only);
        options.merge_backward = i32::from(self.merge_backward);
        options.messages = self.messages.number();
        options.placement = self.placement.number();
        call(&options)
    }
}

/// Options for the whole pipeline, with the library's defaults.
pub(crate) fn default_options() -> Result<sys::dsc_pipe_schedule_options_t> {
    // SAFETY: the struct has this size.
    let mut options = defaults(|raw, bytes| unsafe { sys::dsc_pipe_schedule_options_init(raw, bytes) })?;
    options.stage = WHOLE;
    Ok(options)
}

/// 0 means "not set" in the C interface, so it is refused.
fn given(name: &str, value: Option<usize>) -> Result<i32> {
    match value {
        None => Ok(0),
        Some(0) => Err(Error::invalid(format!("{} is 0; expected at least 1", name))),
        Some(value) => number(name, value),
    }
}

/// One operation of a stage's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PipeCompute {
    /// `Forward`, `Backward`, `BackwardInput` or `BackwardWeight`; `None`: the stage is idle for a step.
    pub op: Option<PipeOp>,
    /// The part of the model on this stage; `None` when idle.
    pub chunk: Option<usize>,
    /// The micro-batch; `None` when idle.
    pub micro_batch: Option<usize>,
    /// Whether it runs at the same time as the next one, a forward with a backward pass.
    pub overlaps: bool,
}

impl PipeCompute {
    /// A pass of one micro-batch through one chunk of this stage.
    pub fn new(op: PipeOp, chunk: usize, micro_batch: usize) -> Self {
        PipeCompute { op: Some(op), chunk: Some(chunk), micro_batch: Some(micro_batch), overlaps: false }
    }

    /// An idle step.
    pub fn idle() -> Self {
        PipeCompute { op: None, chunk: None, micro_batch: None, overlaps: false }
    }

    /// The same, at the same time as the operation that follows it.
    ///
    /// ```
    /// use dsc::{PipeCompute, PipeOp, PipePlanner};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let forward = |micro_batch| PipeCompute::new(PipeOp::Forward, 0, micro_batch);
    /// let backward = |micro_batch| PipeCompute::new(PipeOp::Backward, 0, micro_batch);
    /// let order = vec![forward(0), forward(1).with_next(), backward(0), backward(1)];
    /// let plan = PipePlanner::new("pair", 1, 2).custom(&[order])?;
    /// assert_eq!(plan.simulate(&dsc::PipeCosts::new().overlap(0.5))?.makespan, 1.0 + 1.5 + 2.0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_next(self) -> Self {
        PipeCompute { overlaps: true, ..self }
    }

    pub(crate) fn raw(&self) -> Result<sys::dsc_pipe_compute_t> {
        Ok(sys::dsc_pipe_compute_t {
            op: self.op.map_or(0, PipeOp::number),
            chunk: or_none("chunk", self.chunk)?,
            micro_batch: or_none("micro_batch", self.micro_batch)?,
            overlaps: i32::from(self.overlaps),
        })
    }

    pub(crate) fn from_raw(raw: &sys::dsc_pipe_compute_t) -> Self {
        PipeCompute {
            op: Some(raw.op).filter(|op| *op != 0).map(PipeOp::from_number),
            chunk: usize::try_from(raw.chunk).ok(),
            micro_batch: usize::try_from(raw.micro_batch).ok(),
            overlaps: raw.overlaps != 0,
        }
    }
}

/// Fields without a value are -1 in the C interface.
pub(crate) fn or_none(name: &str, value: Option<usize>) -> Result<i32> {
    value.map_or(Ok(-1), |value| number(name, value))
}
