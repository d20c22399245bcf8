//! Runs a pipeline schedule: callbacks compute, and the library sends and receives between them.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::size_of;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr::{self, NonNull};
use std::slice;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{defaults, number};
use crate::data::{Element, HOST};
use crate::device::Stream;
use crate::error::{check, Error, Result};
use crate::numbers::{ErrorCode, PipeOp};
use crate::pipe::{PipeInstruction, PipeSchedule};
use crate::tensor::{RawTensors, Tensor};
use crate::user_op::text_of;

/// What a callback returns. Any error ends the run on all ranks, and its text is part of the run's error.
pub type PipeResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// The ops that callbacks carry out.
const COMPUTING: [PipeOp; 8] = [
    PipeOp::LoadMicroBatch,
    PipeOp::Forward,
    PipeOp::Backward,
    PipeOp::BackwardInput,
    PipeOp::BackwardWeight,
    PipeOp::ReduceTiedGrads,
    PipeOp::ReduceGrads,
    PipeOp::OptimizerStep,
];

type Callback<'f, S> = Box<dyn Fn(&mut S, &mut PipeCall<'_>) -> PipeResult + 'f>;

/// Shapes of one micro-batch at the two ends of a stage, as [described](Tensor::described) tensors.
#[derive(Debug, Default)]
pub struct PipeShapes {
    /// What the previous stage sends; empty on the first stage.
    pub inputs: Vec<Tensor<'static>>,
    /// What the next stage receives; empty on the last stage.
    pub outputs: Vec<Tensor<'static>>,
    /// Whether the shapes above are upper limits: forward may [`resize`](PipeTensors::resize) its outputs.
    pub variable: bool,
}

/// The functions that [`Comm::pipe_run`] calls, with a state that the caller passes. Set a callback for every pass in
/// the schedule; any other may be missing.
///
/// Callbacks may share references, so a backward pass can mark gradients in the
/// [`Iteration`](crate::Iteration) of a reducer; see [`mark_ready_copy`](crate::Iteration::mark_ready_copy).
pub struct PipeCallbacks<'f, S> {
    table: Vec<(PipeOp, Callback<'f, S>)>,
}

impl<'f, S> PipeCallbacks<'f, S> {
    /// An empty table.
    pub fn new() -> Self {
        PipeCallbacks { table: Vec::new() }
    }

    /// Sets the callback for an op that computes: `LoadMicroBatch`, `Forward`, `Backward`, `BackwardInput`,
    /// `BackwardWeight`, `ReduceTiedGrads`, `ReduceGrads` or `OptimizerStep`. The library itself sends and receives.
    #[must_use]
    pub fn on(mut self, op: PipeOp, callback: impl Fn(&mut S, &mut PipeCall<'_>) -> PipeResult + 'f) -> Self {
        self.table.retain(|(known, _)| *known != op);
        self.table.push((op, Box::new(callback)));
        self
    }

    fn find(&self, op: PipeOp) -> Option<&Callback<'f, S>> {
        self.table.iter().find(|(known, _)| *known == op).map(|(_, callback)| callback)
    }

    /// Finds callbacks that would never be called.
    fn check(&self) -> Result<()> {
        match self.table.iter().find(|(op, _)| !COMPUTING.contains(op)) {
            Some((op, _)) => Err(Error::invalid(format!(
                "pipe_run: there is a callback for {}, but the library performs this operation itself",
                op
            ))),
            None => Ok(()),
        }
    }

    /// The table of the C interface: one function for all ops that have a callback.
    fn raw(&self, context: *mut c_void) -> sys::dsc_pipe_callbacks_t {
        let entry = |op| self.find(op).and(Some(receive::<S> as unsafe extern "C" fn(_, _) -> _));
        sys::dsc_pipe_callbacks_t {
            struct_size: size_of::<sys::dsc_pipe_callbacks_t>(),
            context,
            load_micro_batch: entry(PipeOp::LoadMicroBatch),
            forward: entry(PipeOp::Forward),
            backward: entry(PipeOp::Backward),
            backward_input: entry(PipeOp::BackwardInput),
            backward_weight: entry(PipeOp::BackwardWeight),
            reduce_tied_grads: entry(PipeOp::ReduceTiedGrads),
            reduce_grads: entry(PipeOp::ReduceGrads),
            optimizer_step: entry(PipeOp::OptimizerStep),
        }
    }
}

impl<S> Default for PipeCallbacks<'_, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> fmt::Debug for PipeCallbacks<'_, S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.table.iter().map(|(op, _)| op)).finish()
    }
}

/// Tensors of one end of a stage, in the library's memory.
pub struct PipeTensors<'c> {
    list: &'c [sys::dsc_tensor_t],
    places: *const *mut c_void,
    sizes: *const *mut i64, // which forward writes
    writable: bool,
    memory: PhantomData<&'c mut ()>,
}

impl<'c> PipeTensors<'c> {
    /// # Safety
    ///
    /// `places` must be NULL, or have an entry for every one of n tensors, whose memory only the callback uses during
    /// 'c. The same holds for `sizes`; each has as many entries as its tensor has dimensions.
    unsafe fn new(
        tensors: *const sys::dsc_tensor_t,
        n: usize,
        places: *const *mut c_void,
        sizes: *const *mut i64,
        writable: bool,
    ) -> Self {
        let is_there = !places.is_null() && !tensors.is_null();
        // SAFETY: there are n of them, as the library says.
        let list = if is_there { unsafe { slice::from_raw_parts(tensors, n) } } else { &[] };
        PipeTensors { list, places, sizes, writable, memory: PhantomData }
    }

    /// The number of tensors; 0 if this end of the stage, or this callback, has none.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The shape of a tensor in this micro-batch; empty for one that was described without a shape.
    pub fn shape(&self, index: usize) -> Result<&[i64]> {
        let tensor = self.tensor(index)?;
        // SAFETY: sizes has an entry for every tensor.
        let shape = if self.sizes.is_null() { tensor.shape } else { unsafe { *self.sizes.add(index) } };
        if shape.is_null() {
            return Ok(&[]);
        }
        // SAFETY: a shape has ndim entries, which only resize() changes.
        Ok(unsafe { slice::from_raw_parts(shape, usize::try_from(tensor.ndim).unwrap_or(0)) })
    }

    /// Sets the shape of an output of forward, if the run's shapes are [`variable`](PipeShapes::variable). It has as
    /// many dimensions as described, and at most as many elements. An output that is not resized has the described
    /// shape.
    pub fn resize(&mut self, index: usize, shape: &[usize]) -> Result<()> {
        if self.sizes.is_null() {
            let text =
                "these tensors cannot be resized; only the outputs of forward can, and only with variable shapes";
            return Err(Error::new(ErrorCode::State, text.into()));
        }
        let tensor = self.tensor(index)?;
        let dimensions = usize::try_from(tensor.ndim).unwrap_or(0);
        let sizes = shape.iter().map(|size| i64::try_from(*size).ok()).collect::<Option<Vec<i64>>>();
        let product = shape.iter().try_fold(1, |product: usize, size| product.checked_mul(*size));
        let elements = if shape.contains(&0) { Some(0) } else { product };
        let fits = shape.len() == dimensions && elements.map_or(false, |elements| elements <= tensor.count);
        let sizes = match sizes {
            Some(sizes) if fits => sizes,
            _ => {
                let text = format!(
                    "the shape of tensor {} is {:?}; expected {} dimensions and at most {} elements",
                    index, shape, dimensions, tensor.count
                );
                return Err(Error::invalid(text));
            }
        };
        for (axis, size) in sizes.into_iter().enumerate() {
            // SAFETY: sizes has an entry for every tensor, with as many sizes as it has dimensions; self is borrowed
            // mutably.
            unsafe { *(*self.sizes.add(index)).add(axis) = size };
        }
        Ok(())
    }

    fn tensor(&self, index: usize) -> Result<&sys::dsc_tensor_t> {
        let n = self.list.len();
        self.list
            .get(index)
            .ok_or_else(|| Error::invalid(format!("there is no tensor {}; the number of tensors is {}", index, n)))
    }

    fn count(&self, index: usize, tensor: &sys::dsc_tensor_t) -> Result<usize> {
        if self.sizes.is_null() {
            return Ok(tensor.count);
        }
        let sizes = self.shape(index)?;
        Ok(sizes.iter().map(|size| usize::try_from(*size).unwrap_or(0)).product())
    }

    /// The elements of a tensor.
    pub fn get<T: Element>(&self, index: usize) -> Result<&[T]> {
        let (place, count) = self.find::<T>(index)?;
        // SAFETY: the library aligns the memory, which has that many elements and is used by the callback only.
        Ok(unsafe { slice::from_raw_parts(place, count) })
    }

    /// The elements of a tensor, to be written.
    pub fn get_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T]> {
        if !self.writable {
            let text = "these tensors are read-only in this callback; forward writes its outputs, and backward its input_grads";
            return Err(Error::new(ErrorCode::State, text.into()));
        }
        let (place, count) = self.find::<T>(index)?;
        // SAFETY: as in get(), and self is borrowed mutably; no two tensors share memory.
        Ok(unsafe { slice::from_raw_parts_mut(place, count) })
    }

    /// The address of a tensor, for work that the callback puts on the run's stream; it is on the GPU in a [run
    /// there](Comm::pipe_run_on). NULL for the gradient of a tensor of an integer type. The memory stays valid until
    /// the backward pass of the micro-batch.
    pub fn place(&self, index: usize) -> Result<*mut c_void> {
        self.tensor(index)?;
        // SAFETY: places has an entry for every tensor of the list.
        Ok(unsafe { *self.places.add(index) })
    }

    fn find<T: Element>(&self, index: usize) -> Result<(*mut T, usize)> {
        let tensor = self.tensor(index)?;
        if tensor.device != HOST {
            let text =
                format!("tensor {} is on device {} and cannot be a slice; use place() instead", index, tensor.device);
            return Err(Error::invalid(text));
        }
        if tensor.dtype != T::DTYPE.number() {
            let dtype = crate::Dtype::from_number(tensor.dtype);
            return Err(Error::invalid(format!(
                "tensor {} has elements of {:?}; expected a call for this type, got {:?}",
                index,
                dtype,
                T::DTYPE
            )));
        }
        let count = self.count(index, tensor)?;
        if count == 0 {
            return Ok((NonNull::dangling().as_ptr(), 0));
        }
        // SAFETY: places has an entry for every tensor of the list.
        let place = unsafe { *self.places.add(index) };
        if place.is_null() {
            return Err(Error::invalid(format!("tensor {} has no gradient, because it has an integer type", index)));
        }
        Ok((place.cast(), count))
    }
}

impl fmt::Debug for PipeTensors<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PipeTensors({}, writable: {})", self.list.len(), self.writable)
    }
}

/// The argument of a callback of [`Comm::pipe_run`].
#[derive(Debug)]
#[non_exhaustive]
pub struct PipeCall<'c> {
    /// The instruction to carry out.
    pub instruction: PipeInstruction,
    /// Activations from the previous stage.
    pub inputs: PipeTensors<'c>,
    /// Activations for the next stage: written by forward.
    pub outputs: PipeTensors<'c>,
    /// Gradients of the outputs, in backward passes.
    pub output_grads: PipeTensors<'c>,
    /// Gradients of the inputs: written by backward passes.
    pub input_grads: PipeTensors<'c>,
    /// The micro-batch's loss: written by forward on the last stage.
    pub loss: Option<&'c mut f64>,
}

/// Where the tensors of a run are.
enum Place<'m> {
    /// In memory of the caller; `None`: in memory that the library allocates.
    Host(Option<&'m mut [u8]>),
    Device(u32, Stream<'m>),
}

/// The target of the library's context pointer.
struct Run<'a, 'f, S> {
    callbacks: &'a PipeCallbacks<'f, S>,
    state: &'a mut S,
    panic: Option<Box<dyn Any + Send>>,
    failure: Option<String>,
}

impl<S> Run<'_, '_, S> {
    /// # Safety
    ///
    /// The call must be as the library describes it.
    unsafe fn carry_out(&mut self, raw: &sys::dsc_pipe_call_t) -> PipeResult {
        // SAFETY: the library gives an instruction with every call.
        let instruction = PipeInstruction::from_raw(unsafe { &*raw.instruction });
        let op = instruction.op;
        let backward = matches!(op, PipeOp::Backward | PipeOp::BackwardInput | PipeOp::BackwardWeight);
        let fixed = ptr::null();
        let (inputs, outputs) = (raw.input_tensors, raw.output_tensors);
        let (grads_in, grads_out) = if backward { (raw.n_inputs, raw.n_outputs) } else { (0, 0) };
        // SAFETY: arrays that are not NULL have one entry per tensor of their end; loss is NULL or a number.
        let mut call = unsafe {
            PipeCall {
                instruction,
                inputs: PipeTensors::new(inputs, raw.n_inputs, raw.inputs, fixed, false),
                outputs: PipeTensors::new(
                    outputs,
                    raw.n_outputs,
                    raw.outputs,
                    raw.output_shapes,
                    op == PipeOp::Forward,
                ),
                output_grads: PipeTensors::new(outputs, grads_out, raw.output_grads, fixed, false),
                input_grads: PipeTensors::new(inputs, grads_in, raw.input_grads, fixed, op != PipeOp::BackwardWeight),
                loss: raw.loss.as_mut(),
            }
        };
        match self.callbacks.find(op) {
            Some(callback) => callback(self.state, &mut call),
            None => Err(format!("there is no callback for {}", op).into()),
        }
    }
}

/// What the library calls: 0 to go on, 1 to end the run.
unsafe extern "C" fn receive<S>(context: *mut c_void, call: *const sys::dsc_pipe_call_t) -> i32 {
    // SAFETY: the context is the Run that pipe_run made, which outlives the run and is used by this thread alone.
    let run = unsafe { &mut *context.cast::<Run<'_, '_, S>>() };
    // SAFETY: the library gives a call that is valid until this function returns.
    let caught = catch_unwind(AssertUnwindSafe(|| unsafe { run.carry_out(&*call) }.map_err(|cause| cause.to_string())));
    let words = match caught {
        Ok(Ok(())) => return 0,
        Ok(Err(cause)) => run.failure.insert(cause).clone(),
        Err(panic) => {
            let words = format!("panicked: {}", text_of(&*panic));
            run.panic = Some(panic);
            words
        }
    };
    // SAFETY: as above; nobody else has the call now.
    unsafe { explain(&*call, &words) };
    1
}

/// Tells the other ranks why a callback fails.
///
/// # Safety
///
/// The call must be as the library describes it.
unsafe fn explain(call: &sys::dsc_pipe_call_t, words: &str) {
    let room = call.error_capacity.saturating_sub(1);
    let end = (0..=words.len().min(room)).rev().find(|end| words.is_char_boundary(*end)).unwrap_or(0);
    if call.error.is_null() || call.error_capacity == 0 {
        return;
    }
    // SAFETY: there is room for error_capacity, of which these are at most all.
    unsafe {
        ptr::copy_nonoverlapping(words.as_ptr(), call.error.cast(), end);
        *call.error.add(end) = 0;
    }
}

impl Comm {
    /// Runs a schedule from its first to its last instruction: calls the callbacks with a state, and sends and receives
    /// activations and gradients between them. Rank s is stage s. Collective. Returns the mean loss, on all ranks.
    ///
    /// Before the first callback, all ranks compare schedules and shapes. If they do not fit, or a callback is missing,
    /// the call fails without side effects. A failure after that revokes this communicator, and every rank returns the
    /// first cause. So does a panic in a callback; the panic then continues here.
    ///
    /// Callbacks run on this thread. They may use other communicators, but not this one.
    ///
    /// ```
    /// use dsc::{PipeCallbacks, PipeOp, PipeSchedule, PipeShapes};
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let mut schedule = PipeSchedule::new("gpipe", world.size(), world.rank(), 4)?;
    /// let callbacks = PipeCallbacks::new()
    ///     .on(PipeOp::LoadMicroBatch, |xs: &mut Vec<f64>, call| {
    ///         xs.push(call.instruction.micro_batch.unwrap_or(0) as f64);
    ///         Ok(())
    ///     })
    ///     .on(PipeOp::Forward, |xs, call| {
    ///         if let Some(loss) = &mut call.loss {
    ///             **loss = xs[call.instruction.micro_batch.unwrap_or(0)];
    ///         }
    ///         Ok(())
    ///     })
    ///     .on(PipeOp::Backward, |_, _| Ok(()));
    /// let mean_loss = world.pipe_run(&mut schedule, &mut Vec::new(), &callbacks, &PipeShapes::default())?;
    /// assert_eq!(mean_loss, 1.5);
    /// world.finalize()
    /// # }
    /// ```
    pub fn pipe_run<S>(
        &self,
        schedule: &mut PipeSchedule,
        state: &mut S,
        callbacks: &PipeCallbacks<'_, S>,
        shapes: &PipeShapes,
    ) -> Result<f64> {
        self.run_schedule(schedule, state, callbacks, shapes, Place::Host(None))
    }

    /// Does the same as [`pipe_run`](Comm::pipe_run), with activations and gradients in memory of the caller: at least
    /// [`run_bytes`](PipeSchedule::run_bytes). Either all ranks of a run pass memory, or none.
    pub fn pipe_run_in<S>(
        &self,
        schedule: &mut PipeSchedule,
        state: &mut S,
        callbacks: &PipeCallbacks<'_, S>,
        shapes: &PipeShapes,
        memory: &mut [u8],
    ) -> Result<f64> {
        self.run_schedule(schedule, state, callbacks, shapes, Place::Host(Some(memory)))
    }

    /// Does the same as [`pipe_run`](Comm::pipe_run), with activations and gradients on the GPU that this communicator
    /// is bound to: a callback puts its work on the stream, and finds [inputs](PipeTensors::place) and outputs there.
    /// The call returns when all work is on the streams; later work on this stream runs after the run.
    pub fn pipe_run_on<S>(
        &self,
        schedule: &mut PipeSchedule,
        state: &mut S,
        callbacks: &PipeCallbacks<'_, S>,
        shapes: &PipeShapes,
        stream: Stream<'_>,
    ) -> Result<f64> {
        let device = self.device()?.ok_or_else(|| {
            Error::invalid(
                "pipe_run_on: this communicator is not bound to a GPU; expected pipe_run() without a stream".into(),
            )
        })?;
        self.run_schedule(schedule, state, callbacks, shapes, Place::Device(device, stream))
    }

    fn run_schedule<S>(
        &self,
        schedule: &mut PipeSchedule,
        state: &mut S,
        callbacks: &PipeCallbacks<'_, S>,
        shapes: &PipeShapes,
        place: Place<'_>,
    ) -> Result<f64> {
        callbacks.check()?;
        let (mut inputs, mut outputs) = (RawTensors::new(&shapes.inputs)?, RawTensors::new(&shapes.outputs)?);
        if let Place::Device(device, _) = place {
            let device = number("device", device as usize)?;
            inputs.list.iter_mut().chain(&mut outputs.list).for_each(|tensor| tensor.device = device);
        }
        let mut options = raw_options(&inputs, &outputs, shapes.variable)?;
        match place {
            Place::Host(None) => {}
            Place::Host(Some(memory)) => {
                (options.memory, options.memory_bytes) = (memory.as_mut_ptr().cast(), memory.len());
            }
            Place::Device(_, stream) => options.stream = stream.as_raw(),
        }
        let mut run = Run { callbacks, state, panic: None, failure: None };
        let context: *mut Run<'_, '_, S> = &mut run;
        let table = callbacks.raw(context.cast());
        let mut mean_loss = 0.0;
        // SAFETY: the table, the target of its context, the options, the shapes and the memory, which is borrowed
        // mutably, outlive the call, which keeps no pointer; the context is used by the callbacks only while the call
        // runs.
        let result = unsafe { sys::dsc_pipe_run(schedule.raw(), self.raw(), &table, &options, &mut mean_loss) };
        if let Some(panic) = run.panic {
            resume_unwind(panic);
        }
        self.check(result, "pipe_run").map_err(|error| match run.failure {
            Some(cause) if !error.message.contains(&cause) => {
                Error { message: format!("{}: {}", error.message, cause), ..error }
            }
            _ => error,
        })?;
        Ok(mean_loss)
    }
}

impl PipeSchedule {
    /// The bytes that [`Comm::pipe_run_in`] needs with these shapes.
    #[doc(alias = "dsc_pipe_run_bytes")]
    pub fn run_bytes(&mut self, shapes: &PipeShapes) -> Result<usize> {
        let (inputs, outputs) = (RawTensors::new(&shapes.inputs)?, RawTensors::new(&shapes.outputs)?);
        let options = raw_options(&inputs, &outputs, shapes.variable)?;
        let mut bytes = 0;
        // SAFETY: the library checks the handle; the options, the shapes and bytes outlive the call.
        check(unsafe { sys::dsc_pipe_run_bytes(self.raw(), &options, &mut bytes) })?;
        Ok(bytes)
    }
}

fn raw_options(inputs: &RawTensors, outputs: &RawTensors, variable: bool) -> Result<sys::dsc_pipe_run_options_t> {
    // SAFETY: the struct has this size.
    let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_pipe_run_options_init(raw, bytes) })?;
    if !inputs.list.is_empty() {
        (raw.inputs, raw.n_inputs) = (inputs.list.as_ptr(), inputs.list.len());
    }
    if !outputs.list.is_empty() {
        (raw.outputs, raw.n_outputs) = (outputs.list.as_ptr(), outputs.list.len());
    }
    raw.variable_shapes = i32::from(variable);
    Ok(raw)
}
