//! Checks of instructions that another program has made: whether they can be run.

use std::mem::size_of;

use dsc_sys as sys;

use crate::error::{check, Result};
use crate::numbers::PipeOp;
use crate::pipe::PipeInstruction;
use crate::pipe_planner::{or_none, PipePlanner};

impl PipeInstruction {
    /// Makes an instruction for [`PipePlanner::validate`] with only step and op.
    pub fn new(step: usize, op: PipeOp) -> Self {
        PipeInstruction { step, op, micro_batch: None, chunk: None, buffer: None, peer: None }
    }

    /// Adds a micro-batch, and a chunk of the stage.
    #[must_use]
    pub fn of(self, chunk: usize, micro_batch: usize) -> Self {
        PipeInstruction { chunk: Some(chunk), micro_batch: Some(micro_batch), ..self }
    }

    /// Adds the buffer that holds the micro-batch.
    #[must_use]
    pub fn in_buffer(self, buffer: usize) -> Self {
        PipeInstruction { buffer: Some(buffer), ..self }
    }

    /// Adds the stage that receives or sends the message.
    #[must_use]
    pub fn with_peer(self, stage: usize) -> Self {
        PipeInstruction { peer: Some(stage), ..self }
    }

    fn raw(&self) -> Result<sys::dsc_pipe_instruction_t> {
        Ok(sys::dsc_pipe_instruction_t {
            struct_size: size_of::<sys::dsc_pipe_instruction_t>(),
            step: i64::try_from(self.step).unwrap_or(i64::MAX),
            op: self.op.number(),
            micro_batch: or_none("micro_batch", self.micro_batch)?,
            chunk: or_none("chunk", self.chunk)?,
            buffer: or_none("buffer", self.buffer)?,
            peer: or_none("peer", self.peer)?,
            reserved: 0,
        })
    }
}

impl PipePlanner {
    /// Checks instructions that another program has made, with a list for every stage. It treats sends and receives as
    /// blocking.
    ///
    /// It uses the planner's stages, micro-batches, chunks (1 by default), placement and
    /// [`forward_only`](PipePlanner::forward_only). It ignores loads, the instructions that end a batch, and "overlap".
    /// It also checks buffers if they are set.
    ///
    /// The error names the stage and step of an instruction that is repeated, too early or missing, of a message
    /// without its counterpart or with a wrong peer, or of a buffer that is in use. If stages wait for each other in a
    /// circle, it names these stages.
    ///
    /// ```
    /// use dsc::{PipeInstruction, PipeOp, PipePlanner};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let planner = PipePlanner::new("theirs", 2, 1).forward_only();
    /// let first = vec![
    ///     PipeInstruction::new(0, PipeOp::Forward).of(0, 0),
    ///     PipeInstruction::new(0, PipeOp::SendActivation).of(0, 0).with_peer(1),
    /// ];
    /// let second = vec![
    ///     PipeInstruction::new(0, PipeOp::RecvActivation).of(0, 0).with_peer(0),
    ///     PipeInstruction::new(0, PipeOp::Forward).of(0, 0),
    /// ];
    /// planner.validate(&[first.clone(), second.clone()])?;
    /// let error = planner.validate(&[first[..1].to_vec(), second]).unwrap_err();
    /// assert!(error.message.contains("waits for a send that stage 0 does not make"), "{}", error);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "dsc_pipe_validate")]
    pub fn validate(&self, instructions: &[Vec<PipeInstruction>]) -> Result<()> {
        let starts = self.starts("instructions", instructions)?;
        let all = instructions.iter().flatten().map(PipeInstruction::raw).collect::<Result<Vec<_>>>()?;
        self.with_raw(|options| {
            // SAFETY: there are stages + 1 starts, and the last start is the number of instructions. Both lists and the
            // options outlive the call.
            check(unsafe { sys::dsc_pipe_validate(options, all.as_ptr(), starts.as_ptr()) })
        })
    }
}
