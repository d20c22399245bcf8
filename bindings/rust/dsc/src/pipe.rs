//! Pipeline schedules: what each stage computes, sends and receives, and in which order.

use std::ffi::CStr;
use std::fmt;

use dsc_sys as sys;

use crate::convert::{number, sized};
use crate::error::{check, Result};
use crate::handles::ScheduleHandle;
use crate::numbers::PipeOp;
use crate::pipe_planner::PipePlanner;

/// One instruction of a [`PipeSchedule`]. Fields that do not apply to its op are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PipeInstruction {
    /// The step, 0 to [`steps`](PipeSchedule::steps) - 1, in ascending order.
    pub step: usize,
    /// The operation.
    pub op: PipeOp,
    /// The micro-batch.
    pub micro_batch: Option<usize>,
    /// The chunk: one of the parts of the model on this stage, numbered from 0.
    pub chunk: Option<usize>,
    /// The buffer that holds the micro-batch on this stage, 0 to [`buffers`](PipeSchedule::buffers) - 1.
    pub buffer: Option<usize>,
    /// The stage that receives or sends the message.
    pub peer: Option<usize>,
}

impl PipeInstruction {
    pub(crate) fn from_raw(raw: &sys::dsc_pipe_instruction_t) -> Self {
        let known = |field: i32| usize::try_from(field).ok();
        PipeInstruction {
            step: usize::try_from(raw.step).unwrap_or(0),
            op: PipeOp::from_number(raw.op),
            micro_batch: known(raw.micro_batch),
            chunk: known(raw.chunk),
            buffer: known(raw.buffer),
            peer: known(raw.peer),
        }
    }
}

/// The computation of one step of a [`PipeSchedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PipeStep {
    /// The micro-batch; `None` if this stage computes nothing in this step.
    pub micro_batch: Option<usize>,
    /// Whether the computation is a forward pass; otherwise it is a backward pass.
    pub is_forward: bool,
}

/// The instructions of one stage for one batch: an iterator that can be [`reset`](PipeSchedule::reset).
///
/// It needs no communicator. [`Comm::pipe_run`](crate::Comm::pipe_run) runs it. A [`PipePlanner`] has more options, and
/// also makes the schedule of the whole pipeline.
///
/// ```
/// use dsc::{PipeOp, PipeSchedule};
///
/// # fn main() -> dsc::Result<()> {
/// let mut schedule = PipeSchedule::new("1f1b", 2, 0, 4)?; // stage 0 of 2, 4 micro-batches
/// let instructions = schedule.by_ref().collect::<dsc::Result<Vec<_>>>()?;
/// assert_eq!((instructions[0].op, instructions[0].micro_batch), (PipeOp::LoadMicroBatch, Some(0)));
/// let passes = instructions.iter().filter(|instruction| instruction.op == PipeOp::Forward).count();
/// assert_eq!((passes, schedule.buffers()?), (4, 2));
/// # Ok(())
/// # }
/// ```
pub struct PipeSchedule {
    handle: ScheduleHandle,
}

impl PipeSchedule {
    /// Makes the schedule of one stage by its name in `dsc/pipe.h`, such as "1f1b" or "zb_v". Every stage has as many
    /// parts of the model as the schedule needs.
    pub fn new(name: &str, stages: usize, stage: usize, micro_batches: usize) -> Result<Self> {
        Self::with_chunks(name, stages, stage, micro_batches, 0)
    }

    /// Does the same as [`new`](PipeSchedule::new), with the number of parts of the model on every stage. 0 stands for
    /// the number that the schedule needs.
    pub fn with_chunks(name: &str, stages: usize, stage: usize, micro_batches: usize, chunks: usize) -> Result<Self> {
        let planner = PipePlanner::new(name, stages, micro_batches);
        let planner = if chunks == 0 { planner } else { planner.chunks(chunks) };
        planner.make(number("stage", stage)?).map(Self::of)
    }

    pub(crate) fn of(handle: ScheduleHandle) -> Self {
        PipeSchedule { handle }
    }

    pub(crate) fn raw(&self) -> *mut sys::dsc_pipe_schedule_t {
        self.handle.raw()
    }

    /// Returns to the first instruction.
    pub fn reset(&mut self) -> Result<()> {
        // SAFETY: the library checks the handle.
        check(unsafe { sys::dsc_pipe_schedule_reset(self.raw()) })
    }

    /// The number of steps.
    pub fn steps(&self) -> Result<usize> {
        let mut steps = 0;
        // SAFETY: the library checks the handle, and steps outlives the call.
        check(unsafe { sys::dsc_pipe_schedule_steps(self.raw(), &mut steps) })?;
        Ok(usize::try_from(steps).unwrap_or(0))
    }

    /// Returns what this stage computes in a step.
    pub fn step(&self, step: usize) -> Result<PipeStep> {
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        let (mut micro_batch, mut is_forward) = (0, 0);
        // SAFETY: the library checks handle and step, and both outlive the call.
        check(unsafe { sys::dsc_pipe_schedule_step(self.raw(), step, &mut micro_batch, &mut is_forward) })?;
        Ok(PipeStep { micro_batch: usize::try_from(micro_batch).ok(), is_forward: is_forward != 0 })
    }

    /// The number of micro-batches that this stage must hold at the same time.
    pub fn buffers(&self) -> Result<usize> {
        let mut buffers = 0;
        // SAFETY: the library checks the handle, and buffers outlives the call.
        check(unsafe { sys::dsc_pipe_schedule_buffers(self.raw(), &mut buffers) })?;
        Ok(usize::try_from(buffers).unwrap_or(0))
    }
}

impl Iterator for PipeSchedule {
    type Item = Result<PipeInstruction>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut raw = sized!(sys::dsc_pipe_instruction_t);
        // SAFETY: the library checks the handle; raw has the size that it says, and outlives the call.
        let result = unsafe { sys::dsc_pipe_schedule_next(self.raw(), &mut raw) };
        if result == sys::DSC_DONE {
            return None;
        }
        Some(check(result).map(|()| PipeInstruction::from_raw(&raw)))
    }
}

impl fmt::Debug for PipeSchedule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PipeSchedule").field("steps", &self.steps()).finish()
    }
}

impl fmt::Display for PipeOp {
    /// The name in the C interface, such as "send_activation".
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: any number is a valid argument; the result is a static string.
        let name = unsafe { CStr::from_ptr(sys::dsc_pipe_op_name(self.number())) };
        out.write_str(&name.to_string_lossy())
    }
}
