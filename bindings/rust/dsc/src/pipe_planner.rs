//! Makes pipeline schedules, from a name or from user-defined orders, with options.

use dsc_sys as sys;

use crate::convert::{c_string, defaults, number};
use crate::error::{Error, Result};
use crate::handles::ScheduleHandle;
use crate::numbers::{PipeMessages, PipeOp, PipePlacement};
use crate::pipe_plan::PipePlan;

/// Stands for the whole pipeline where the C interface expects a stage.
pub(crate) const WHOLE: i32 = -1;

/// Makes pipeline schedules. [`plan`](PipePlanner::plan) makes the schedule with a name,
/// [`custom`](PipePlanner::custom) makes one from user-defined orders, and [`find`](PipePlanner::find) finds the best
/// one for given costs.
///
/// It only computes, and needs no communicator.
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
    /// The name of a schedule in `dsc/pipe.h`, such as "1f1b", "zb_v" or "auto", the number of stages, and the number
    /// of micro-batches in a batch. Both numbers are 1 or more. For [`custom`](PipePlanner::custom) the name may be any
    /// text.
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

    /// The number of parts of the model on every stage, 1 or more. By default it is what the schedule needs, and 1 for
    /// user-defined orders.
    #[must_use]
    pub fn chunks(mut self, chunks: usize) -> Self {
        self.chunks = Some(chunks);
        self
    }

    /// For "interleaved_1f1b": the number of micro-batches that run through a chunk before the next chunk, 1 or more.
    /// By default it is the number of stages, or a number that divides the batch evenly.
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

    /// Merges two halves of a backward pass if one directly follows the other.
    #[must_use]
    pub fn merge_backward(mut self) -> Self {
        self.merge_backward = true;
        self
    }

    /// Sends messages right after they are computed, and receives them as early as possible, as in PyTorch 2.7. By
    /// default they are exchanged when they are needed, with the fewest buffers.
    #[must_use]
    pub fn messages_at_once(mut self) -> Self {
        self.messages = PipeMessages::AtOnce;
        self
    }

    /// For user-defined orders: places parts from the first stage to the last, then back. Two chunks make a V.
    #[must_use]
    pub fn zigzag(self) -> Self {
        self.placement(PipePlacement::Zigzag)
    }

    /// For user-defined orders: how the parts of the model are placed on stages; [`PipePlacement::Loop`] by default.
    #[must_use]
    pub fn placement(mut self, placement: PipePlacement) -> Self {
        self.placement = placement;
        self
    }

    /// Makes the schedule with the name. For "auto", it is the result of [`find`](PipePlanner::find) for equal costs
    /// and no limits.
    #[doc(alias = "dsc_pipe_schedule_create")]
    #[doc(alias = "dsc_pipe_schedule_options_init")]
    pub fn plan(&self) -> Result<PipePlan> {
        self.make(WHOLE).map(PipePlan::of)
    }

    /// Makes one stage of the schedule; -1 stands for the whole pipeline.
    pub(crate) fn make(&self, stage: i32) -> Result<ScheduleHandle> {
        self.with_raw(|options| {
            let options = sys::dsc_pipe_schedule_options_t { stage, ..*options };
            // SAFETY: the options, their name and the pointer for the schedule outlive the call.
            ScheduleHandle::made(|schedule| unsafe { sys::dsc_pipe_schedule_create(&options, schedule) })
        })
    }

    /// Makes a schedule from the order in which each stage computes, with a list for every stage.
    ///
    /// Every part of the model needs a forward pass of each micro-batch. Unless the planner is
    /// [`forward_only`](PipePlanner::forward_only), it also needs a backward pass or both halves of one. For orders
    /// that cannot be run, the error names stage and operation, and the stages that wait for each other.
    ///
    /// ```
    /// use dsc::{PipeCompute, PipeOp, PipePlanner};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let forward = PipeCompute::new(PipeOp::Forward, 0, 0); // chunk 0, micro-batch 0
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
                // SAFETY: there are stages + 1 starts, and the last start is the number of operations. Both lists, the
                // options and the pointer for the schedule outlive the call.
                unsafe { sys::dsc_pipe_schedule_create_custom(options, operations, starts, schedule) }
            })
        })
        .map(PipePlan::of)
    }

    /// Returns where the entries of each stage begin in the concatenated lists, and where the last ones end.
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

    /// Calls a function with the options for the whole pipeline as a C struct.
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

/// Returns the library's default options, for the whole pipeline.
pub(crate) fn default_options() -> Result<sys::dsc_pipe_schedule_options_t> {
    // SAFETY: `defaults` passes memory for the struct, and its size.
    let mut options = defaults(|raw, bytes| unsafe { sys::dsc_pipe_schedule_options_init(raw, bytes) })?;
    options.stage = WHOLE;
    Ok(options)
}

/// Converts an optional number. In the C interface 0 means "not set", so a value of 0 is refused.
fn given(name: &str, value: Option<usize>) -> Result<i32> {
    match value {
        None => Ok(0),
        Some(0) => Err(Error::invalid(format!("{} is 0; expected at least 1", name))),
        Some(value) => number(name, value),
    }
}

/// One operation in the order of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PipeCompute {
    /// `Forward`, `Backward`, `BackwardInput` or `BackwardWeight`; `None`: the stage is idle for a step.
    pub op: Option<PipeOp>,
    /// The chunk, which is one of the parts of the model on this stage; `None` in an idle step.
    pub chunk: Option<usize>,
    /// The micro-batch; `None` in an idle step.
    pub micro_batch: Option<usize>,
    /// Whether the operation overlaps with the next operation. A forward pass can overlap with a backward pass.
    pub overlaps: bool,
}

impl PipeCompute {
    /// Makes a pass of one micro-batch through one chunk of this stage.
    pub fn new(op: PipeOp, chunk: usize, micro_batch: usize) -> Self {
        PipeCompute { op: Some(op), chunk: Some(chunk), micro_batch: Some(micro_batch), overlaps: false }
    }

    /// Makes an idle step.
    pub fn idle() -> Self {
        PipeCompute { op: None, chunk: None, micro_batch: None, overlaps: false }
    }

    /// Lets this operation overlap with the next one.
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

/// Converts an optional number. In the C interface -1 stands for a missing value.
pub(crate) fn or_none(name: &str, value: Option<usize>) -> Result<i32> {
    value.map_or(Ok(-1), |value| number(name, value))
}
