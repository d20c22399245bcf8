//! Schedules of whole pipelines: queries, text formats and printing.

use std::fmt;

use dsc_sys as sys;

use crate::convert::{list, natural, number, sized, text};
use crate::error::{check, Result};
use crate::handles::ScheduleHandle;
use crate::numbers::{PipeFormat, PipeMessages, PipePicture, PipePlacement};
use crate::pipe::PipeSchedule;
use crate::pipe_costs::PipeCosts;
use crate::pipe_planner::{default_options, PipeCompute, WHOLE};

/// Properties of a [`PipePlan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PipeInfo {
    /// The number of stages.
    pub stages: usize,
    /// The number of micro-batches in a batch.
    pub micro_batches: usize,
    /// The number of parts of the model on every stage.
    pub chunks: usize,
    /// The micro-batch group of the planner; `None` for a schedule that does not use it.
    pub micro_batch_group: Option<usize>,
    /// Whether the schedule has no backward passes.
    pub forward_only: bool,
    /// When messages are sent and received.
    pub messages: PipeMessages,
    /// How the parts of the model are placed on stages.
    pub placement: PipePlacement,
}

/// Options of [`PipePlan::read_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeReadOptions {
    /// Whether two halves of a backward pass are merged if one directly follows the other.
    pub merge_backward: bool,
    /// When messages are sent and received, if the text contains no messages.
    pub messages: PipeMessages,
}

impl Default for PipeReadOptions {
    fn default() -> Self {
        PipeReadOptions { merge_backward: false, messages: PipeMessages::WhenNeeded }
    }
}

/// The schedule of a whole pipeline. It can be printed, simulated, drawn and exported. One [`stage`](PipePlan::stage)
/// of it can be run. It is immutable, and any thread may use it.
///
/// `{}` prints a grid with a line per stage, for costs of 1. For more than 200,000 operations it prints only the name.
///
/// ```
/// use dsc::{PipeCosts, PipePlanner};
///
/// # fn main() -> dsc::Result<()> {
/// let plan = PipePlanner::new("1f1b", 2, 2).plan()?;
/// assert!(plan.to_string().starts_with("1f1b: 2 stages"));
/// let costs = PipeCosts::new().forward(&[1.0, 2.0]).latency(0.5);
/// println!("{}: {}", plan, plan.simulate(&costs)?.makespan);
/// let mut mine = plan.stage(1)?; // for Comm::pipe_run
/// assert_eq!(mine.buffers()?, 1);
/// # Ok(())
/// # }
/// ```
pub struct PipePlan {
    handle: ScheduleHandle,
}

impl PipePlan {
    pub(crate) fn of(handle: ScheduleHandle) -> Self {
        PipePlan { handle }
    }

    pub(crate) fn raw(&self) -> *mut sys::dsc_pipe_schedule_t {
        self.handle.raw()
    }

    /// Returns the instructions of one stage, 0 to stages - 1.
    #[doc(alias = "dsc_pipe_schedule_at_stage")]
    pub fn stage(&self, stage: usize) -> Result<PipeSchedule> {
        at_stage(self.raw(), number("stage", stage)?).map(PipeSchedule::of)
    }

    /// Returns the properties of the schedule.
    ///
    /// ```
    /// use dsc::{PipePlacement, PipePlanner};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let info = PipePlanner::new("zb_v", 4, 8).plan()?.info()?;
    /// assert_eq!((info.stages, info.chunks, info.placement), (4, 2, PipePlacement::Zigzag));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dsc_pipe_schedule_info")]
    pub fn info(&self) -> Result<PipeInfo> {
        let mut raw = sized!(sys::dsc_pipe_schedule_info_t);
        // SAFETY: the library checks the handle; raw has the size that it says, and outlives the call.
        check(unsafe { sys::dsc_pipe_schedule_info(self.raw(), &mut raw) })?;
        Ok(PipeInfo {
            stages: natural(raw.stages),
            micro_batches: natural(raw.micro_batches),
            chunks: natural(raw.chunks),
            micro_batch_group: Some(natural(raw.micro_batch_group)).filter(|group| *group > 0),
            forward_only: raw.forward_only != 0,
            messages: PipeMessages::from_number(raw.messages),
            placement: PipePlacement::from_number(raw.placement),
        })
    }

    /// Returns the name of the schedule, such as "zb_v".
    #[doc(alias = "dsc_pipe_schedule_name")]
    pub fn name(&self) -> Result<String> {
        text(|room, capacity, bytes| {
            // SAFETY: the library checks the handle; room has capacity bytes, and bytes outlives the call.
            unsafe { sys::dsc_pipe_schedule_name(self.raw(), room, capacity, bytes) }
        })
    }

    /// Returns the order in which a stage computes, without loads, messages and buffers.
    ///
    /// ```
    /// use dsc::{PipeCompute, PipeOp, PipePlanner};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let order = PipePlanner::new("gpipe", 2, 2).plan()?.order(1)?;
    /// assert_eq!((order.len(), order[2]), (4, PipeCompute::new(PipeOp::Backward, 0, 0)));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dsc_pipe_schedule_order")]
    pub fn order(&self, stage: usize) -> Result<Vec<PipeCompute>> {
        let (stage, idle) = (number("stage", stage)?, PipeCompute::idle().raw()?);
        let order = list(0, idle, |room, capacity, total| {
            // SAFETY: the library checks the handle and the stage. room has capacity entries, and total outlives the
            // call.
            unsafe { sys::dsc_pipe_schedule_order(self.raw(), stage, 0, room, capacity, total) }
        })?;
        Ok(order.iter().map(PipeCompute::from_raw).collect())
    }

    /// Returns the orders of all stages, in the form for [`PipePlanner::custom`](crate::PipePlanner::custom).
    pub fn orders(&self) -> Result<Vec<Vec<PipeCompute>>> {
        (0..self.info()?.stages).map(|stage| self.order(stage)).collect()
    }

    /// Exports the schedule as text. If the format cannot express the schedule, the error names the reason.
    ///
    /// ```
    /// use dsc::{PipeFormat, PipePlan, PipePlanner};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let plan = PipePlanner::new("zb_h1", 2, 2).plan()?;
    /// let text = plan.write(PipeFormat::Json)?;
    /// assert_eq!(PipePlan::read(&text, PipeFormat::Json)?.orders()?, plan.orders()?);
    /// assert!(plan.write(PipeFormat::Megatron).unwrap_err().message.contains("expected only forward and backward"));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dsc_pipe_schedule_export")]
    pub fn write(&self, format: PipeFormat) -> Result<String> {
        text(|room, capacity, bytes| {
            // SAFETY: the library checks the handle; room has capacity bytes, and bytes outlives the call.
            unsafe { sys::dsc_pipe_schedule_export(self.raw(), format.number(), room, capacity, bytes) }
        })
    }

    /// Imports a schedule from text. An error in the text is reported with line and column.
    ///
    /// Stages, chunks, placement and micro-batches are determined from the text. Its sends and receives keep their
    /// positions.
    ///
    /// ```
    /// use dsc::{PipeFormat, PipePlan};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let plan = PipePlan::read("[1, 1, -1, -1]\n[1, -1, 1, -1]\n", PipeFormat::Megatron)?;
    /// assert_eq!((plan.info()?.stages, plan.info()?.micro_batches), (2, 2));
    /// let error = PipePlan::read("0F0,0X0", PipeFormat::PyTorch).unwrap_err();
    /// assert!(error.message.contains("line 1, column 6"));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dsc_pipe_schedule_import")]
    pub fn read(text: &str, format: PipeFormat) -> Result<PipePlan> {
        Self::read_with(text, format, &PipeReadOptions::default())
    }

    /// Does the same as [`read`](PipePlan::read), with options.
    ///
    /// ```
    /// use dsc::{PipeFormat, PipePlan, PipeReadOptions};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let options = PipeReadOptions { merge_backward: true, ..Default::default() };
    /// let plan = PipePlan::read_with("0F0,0I0,0W0\n", PipeFormat::PyTorch, &options)?;
    /// assert_eq!(plan.write(PipeFormat::PyTorch)?, "0F0,0B0\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_with(text: &str, format: PipeFormat, options: &PipeReadOptions) -> Result<PipePlan> {
        let mut raw = default_options()?;
        raw.merge_backward = i32::from(options.merge_backward);
        raw.messages = options.messages.number();
        let (bytes, len) = (text.as_ptr().cast(), text.len());
        ScheduleHandle::made(|schedule| {
            // SAFETY: the text has the given length. The text, the options and the pointer for the schedule outlive the
            // call.
            unsafe { sys::dsc_pipe_schedule_import(bytes, len, format.number(), &raw, schedule) }
        })
        .map(PipePlan::of)
    }

    fn summary(&self) -> Result<String> {
        let (name, it) = (self.name()?, self.info()?);
        let chunks = if it.chunks == 1 { String::new() } else { format!(" x {} chunks", it.chunks) };
        Ok(format!("{}: {} stages{}, {} micro-batches", name, it.stages, chunks, it.micro_batches))
    }
}

impl PipeSchedule {
    /// Returns the schedule of the whole pipeline to which this stage belongs.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// let stage = dsc::PipeSchedule::new("1f1b", 4, 1, 8)?;
    /// println!("{}", stage.plan()?);
    /// assert_eq!(stage.plan()?.info()?.stages, 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn plan(&self) -> Result<PipePlan> {
        at_stage(self.raw(), WHOLE).map(PipePlan::of)
    }
}

fn at_stage(schedule: *mut sys::dsc_pipe_schedule_t, stage: i32) -> Result<ScheduleHandle> {
    // SAFETY: the library checks the handle and the stage. The pointer for the other schedule outlives the call.
    ScheduleHandle::made(|other| unsafe { sys::dsc_pipe_schedule_at_stage(schedule, stage, other) })
}

impl fmt::Debug for PipePlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PipePlan").field("name", &self.name()).field("info", &self.info()).finish()
    }
}

impl fmt::Display for PipePlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grid = self.draw(PipePicture::Text, &PipeCosts::new());
        match grid.or_else(|_| self.summary()) {
            Ok(text) => out.write_str(text.trim_end()),
            Err(error) => write!(out, "{}", error),
        }
    }
}
