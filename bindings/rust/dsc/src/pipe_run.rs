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

use crate::callback_error::{text_of, write_error};
use crate::comm::Comm;
use crate::convert::{defaults, number};
use crate::data::{Element, HOST};
use crate::device::Stream;
use crate::error::{check, Error, Result};
use crate::numbers::{ErrorCode, PipeOp};
use crate::pipe::{PipeInstruction, PipeSchedule};
use crate::tensor::{RawTensors, Tensor};

/// The result of a callback. Any error ends the run on all ranks, and its text becomes part of the run's error.
pub type PipeResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// The ops for which there are callbacks.
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

/// The shapes of one micro-batch at both ends of a stage, as [described](Tensor::described) tensors.
#[derive(Debug, Default)]
pub struct PipeShapes {
    /// The tensors from the previous stage; empty on the first stage.
    pub inputs: Vec<Tensor<'static>>,
    /// The tensors for the next stage; empty on the last stage.
    pub outputs: Vec<Tensor<'static>>,
    /// Whether the shapes above are upper limits. Forward may then [`resize`](PipeTensors::resize) its outputs.
    pub variable: bool,
}

/// The callbacks of [`Comm::pipe_run`], with a state that the caller passes. Every kind of pass in the schedule needs a
/// callback; other callbacks are optional.
///
/// Callbacks may hold shared references. For example, a backward pass can mark gradients in the
/// [`Iteration`](crate::Iteration) of a reducer; see [`mark_ready_copy`](crate::Iteration::mark_ready_copy).
pub struct PipeCallbacks<'f, S> {
    table: Vec<(PipeOp, Callback<'f, S>)>,
}

impl<'f, S> PipeCallbacks<'f, S> {
    /// Makes an object without callbacks.
    pub fn new() -> Self {
        PipeCallbacks { table: Vec::new() }
    }

    /// Sets the callback for an op: `LoadMicroBatch`, `Forward`, `Backward`, `BackwardInput`, `BackwardWeight`,
    /// `ReduceTiedGrads`, `ReduceGrads` or `OptimizerStep`. The library itself sends and receives.
    #[must_use]
    pub fn on(mut self, op: PipeOp, callback: impl Fn(&mut S, &mut PipeCall<'_>) -> PipeResult + 'f) -> Self {
        self.table.retain(|(known, _)| *known != op);
        self.table.push((op, Box::new(callback)));
        self
    }

    fn find(&self, op: PipeOp) -> Option<&Callback<'f, S>> {
        self.table.iter().find(|(known, _)| *known == op).map(|(_, callback)| callback)
    }

    /// Returns an error for callbacks that would never be called.
    fn check(&self) -> Result<()> {
        match self.table.iter().find(|(op, _)| !COMPUTING.contains(op)) {
            Some((op, _)) => Err(Error::invalid(format!(
                "pipe_run: there is a callback for {}, but the library performs this operation itself",
                op
            ))),
            None => Ok(()),
        }
    }

    /// Makes the table for the C interface, with one function for all ops that have a callback.
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

/// The tensors at one end of a stage, in the library's memory.
pub struct PipeTensors<'c> {
    list: &'c [sys::dsc_tensor_t],
    places: *const *mut c_void,
    sizes: *const *mut i64, // written by forward
    writable: bool,
    memory: PhantomData<&'c mut ()>,
}

impl<'c> PipeTensors<'c> {
    /// # Safety
    ///
    /// `places` must be NULL or have an entry for each of the n tensors. During 'c, only the callback may use their
    /// memory. The same applies to `sizes`, in which each entry has a number per dimension of its tensor.
    unsafe fn new(
        tensors: *const sys::dsc_tensor_t,
        n: usize,
        places: *const *mut c_void,
        sizes: *const *mut i64,
        writable: bool,
    ) -> Self {
        let is_there = !places.is_null() && !tensors.is_null();
        // SAFETY: the library guarantees n entries.
        let list = if is_there { unsafe { slice::from_raw_parts(tensors, n) } } else { &[] };
        PipeTensors { list, places, sizes, writable, memory: PhantomData }
    }

    /// The number of tensors; 0 if this end of the stage has none, or this callback does not get them.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The shape of a tensor in this micro-batch; empty if the tensor was described without a shape.
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

    /// Sets the shape of an output in forward, if the run's shapes are [`variable`](PipeShapes::variable). It must have
    /// as many dimensions as described, and at most as many elements. An output that is not resized has the described
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
            // SAFETY: sizes has an entry for every tensor, with a number per dimension, and self is borrowed mutably.
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
        // SAFETY: the library aligns the memory, which has count elements and is used only by the callback.
        Ok(unsafe { slice::from_raw_parts(place, count) })
    }

    /// The elements of a tensor, for writing.
    pub fn get_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T]> {
        if !self.writable {
            let text = "these tensors are read-only in this callback; forward writes its outputs, and backward its input_grads";
            return Err(Error::new(ErrorCode::State, text.into()));
        }
        let (place, count) = self.find::<T>(index)?;
        // SAFETY: as in get(). self is borrowed mutably, and no two tensors share memory.
        Ok(unsafe { slice::from_raw_parts_mut(place, count) })
    }

    /// The address of a tensor, for work that the callback queues on the run's stream. In a [run on the
    /// GPU](Comm::pipe_run_on) it is an address on the GPU. It is NULL for the gradient of an integer tensor. The
    /// memory stays valid until the backward pass of the micro-batch.
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
                "tensor {} has elements of {:?}, but the call is for elements of {:?}",
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
    /// The instruction that the callback must run.
    pub instruction: PipeInstruction,
    /// Activations from the previous stage.
    pub inputs: PipeTensors<'c>,
    /// Activations for the next stage, written by forward.
    pub outputs: PipeTensors<'c>,
    /// Gradients of the outputs, in backward passes.
    pub output_grads: PipeTensors<'c>,
    /// Gradients of the inputs, written by backward passes.
    pub input_grads: PipeTensors<'c>,
    /// The loss of the micro-batch, written by forward on the last stage.
    pub loss: Option<&'c mut f64>,
}

/// The memory for the tensors of a run.
enum Place<'m> {
    /// Host memory of the caller; `None`: memory that the library allocates.
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
    /// `raw` must be the struct that the library passed to the callback, which has not returned yet.
    unsafe fn carry_out(&mut self, raw: &sys::dsc_pipe_call_t) -> PipeResult {
        // SAFETY: every call of the library contains an instruction.
        let instruction = PipeInstruction::from_raw(unsafe { &*raw.instruction });
        let op = instruction.op;
        let backward = matches!(op, PipeOp::Backward | PipeOp::BackwardInput | PipeOp::BackwardWeight);
        let fixed = ptr::null();
        let (inputs, outputs) = (raw.input_tensors, raw.output_tensors);
        let (grads_in, grads_out) = if backward { (raw.n_inputs, raw.n_outputs) } else { (0, 0) };
        // SAFETY: arrays that are not NULL have one entry for each tensor of their end. loss is NULL or points to a
        // number.
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

/// The function that the library calls. It returns 0 to continue, 1 to end the run.
unsafe extern "C" fn receive<S>(context: *mut c_void, call: *const sys::dsc_pipe_call_t) -> i32 {
    // SAFETY: the context is the Run of pipe_run, which outlives the run. Only this thread uses it.
    let run = unsafe { &mut *context.cast::<Run<'_, '_, S>>() };
    // SAFETY: the library passes a call that is valid until this function returns.
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
    // SAFETY: as above. Nothing else uses the call now.
    unsafe { write_error((*call).error, (*call).error_capacity, &words) };
    1
}

impl Comm {
    /// Runs a schedule from its first to its last instruction. It calls the callbacks with a state, and sends and
    /// receives activations and gradients between them. Rank s is stage s. Collective. Returns the mean loss on all
    /// ranks.
    ///
    /// Before the first callback, all ranks compare schedules and shapes. If they do not fit together, or a callback is
    /// missing, the call fails without side effects. A later failure revokes this communicator, and every rank returns
    /// the first cause. A panic in a callback has the same effect, and then continues in this call.
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

    /// Does the same as [`pipe_run`](Comm::pipe_run), with activations and gradients in memory of the caller. It needs
    /// at least [`run_bytes`](PipeSchedule::run_bytes) bytes. Either all ranks of a run pass memory, or none.
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
    /// is bound to. A callback queues its work on the stream, and gets the addresses of [inputs](PipeTensors::place)
    /// and outputs. The call returns when all work is queued. Later work on this stream runs after the run.
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
        // SAFETY: all arguments outlive the call, which keeps no pointer: the table, the target of its context, the
        // options, the shapes, and the memory, which is borrowed mutably. Only the callbacks use the context during the
        // call.
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
    /// Returns the number of bytes that [`Comm::pipe_run_in`] needs with these shapes.
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
    // SAFETY: `defaults` passes memory for the struct, and its size.
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
