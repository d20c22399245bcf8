//! Tied layers: weights that several stages of a pipeline share.

use std::ffi::{c_void, CString};
use std::fmt;
use std::mem::size_of;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{c_string, number};
use crate::device::Stream;
use crate::error::{check, Error, Result};
use crate::handles::TiedHandle;
use crate::numbers::ErrorCode;
use crate::tensor::{RawTensors, Tensor};

/// Returns the stages that hold each key, in the byte order of the keys. The first stage of a key owns its weights.
///
/// `layers` has an entry with its key for every layer that shares weights. `boundaries` are those of a
/// [`Partitioner`](crate::Partitioner).
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// let stages = dsc::tied_stages(&[0, 2, 4, 6], &[("head", 5), ("embed", 0), ("embed", 5)])?;
/// assert_eq!(stages, [("embed".to_string(), vec![0, 2]), ("head".to_string(), vec![2])]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "dsc_tied_plan")]
pub fn tied_stages(boundaries: &[usize], layers: &[(&str, usize)]) -> Result<Vec<(String, Vec<usize>)>> {
    let n = layers.len();
    let names: Vec<CString> = layers.iter().map(|(key, _)| c_string("a key", key)).collect::<Result<_>>()?;
    let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let numbers: Vec<usize> = layers.iter().map(|(_, layer)| *layer).collect();
    let parts = boundaries.len().saturating_sub(1);
    let (mut entries, mut starts, mut stages, mut n_keys) = (vec![0; n], vec![0; n + 1], vec![0; n], 0);
    // SAFETY: the lengths of the lists are right, and the output lists are large enough.
    check(unsafe {
        sys::dsc_tied_plan(
            pointers.as_ptr(),
            numbers.as_ptr(),
            n,
            boundaries.as_ptr(),
            parts,
            entries.as_mut_ptr(),
            starts.as_mut_ptr(),
            stages.as_mut_ptr(),
            &mut n_keys,
        )
    })?;
    let of_key = |k: usize| stages[starts[k]..starts[k + 1]].iter().map(|stage: &i32| *stage as usize).collect();
    Ok((0..n_keys).map(|k| (layers[entries[k]].0.to_string(), of_key(k))).collect())
}

/// Layers that share their weights, and this rank's copy of them.
#[derive(Debug)]
pub struct TiedKey<'a> {
    key: String,
    stages: Vec<usize>,
    weights: Vec<Tensor<'a>>,
}

impl<'a> TiedKey<'a> {
    /// Makes a key with the stages that hold it.
    pub fn new(key: &str, stages: &[usize]) -> Self {
        TiedKey { key: key.to_string(), stages: stages.to_vec(), weights: Vec::new() }
    }

    /// Sets this rank's copy of the weights, if its stage holds the key.
    #[must_use]
    pub fn weights(mut self, weights: Vec<Tensor<'a>>) -> Self {
        self.weights = weights;
        self
    }
}

/// Options of [`TiedLayers::new`]. Use the same options on all ranks.
#[derive(Clone, Debug, Default)]
pub struct TiedOptions {
    pipelines: Vec<Vec<usize>>,
    keep_own: bool,
}

impl TiedOptions {
    /// The defaults: one pipeline, in which rank s is stage s, and weights are copied.
    pub fn new() -> Self {
        Self::default()
    }

    /// The ranks of the stages of each pipeline. All pipelines must have the same number of stages. They do not share
    /// weights with each other.
    #[must_use]
    pub fn pipelines(mut self, ranks: &[Vec<usize>]) -> Self {
        self.pipelines = ranks.to_vec();
        self
    }

    /// Whether the weights of each key are copied from its first stage to the others; on by default.
    #[must_use]
    pub fn sync(mut self, on: bool) -> Self {
        self.keep_own = !on;
        self
    }

    fn table(&self) -> Result<Vec<i32>> {
        let stages = self.pipelines.first().map_or(0, Vec::len);
        if self.pipelines.iter().any(|ranks| ranks.len() != stages) {
            return Err(Error::invalid(format!("pipelines have different lengths; expected {} ranks in each", stages)));
        }
        self.pipelines.iter().flatten().map(|rank| number("a rank of a pipeline", *rank)).collect()
    }
}

/// Keeps weights equal that several stages of a pipeline share. It copies them once, and sums their gradients.
///
/// ```
/// use dsc::{Tensor, TiedKey, TiedLayers, TiedOptions};
///
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let (mut weight, mut grad) = (vec![0.5f32; 8], vec![1.0f32; 8]);
/// let keys = vec![TiedKey::new("embed", &[0]).weights(vec![Tensor::new(&mut weight)])];
/// let mut tied = TiedLayers::new(&world, keys, &TiedOptions::new())?;
/// tied.reduce(&mut [Tensor::new(&mut grad)])?; // once per batch, before the optimizer's step
/// assert_eq!(tied.owner("embed")?, (0, true));
/// drop(tied);
/// world.finalize()
/// # }
/// ```
pub struct TiedLayers {
    handle: TiedHandle,
    group: Arc<str>,
}

impl TiedLayers {
    /// Checks that all ranks pass equal arguments, and copies each key's weights from its first stage to the others.
    /// Collective.
    ///
    /// Every rank must list every key, including those that its stage does not hold. If arguments differ, all ranks get
    /// [`Mismatch`](ErrorCode::Mismatch), and the communicator keeps working.
    #[doc(alias = "dsc_tied_layers_options_init")]
    pub fn new(comm: &Comm, keys: Vec<TiedKey<'_>>, options: &TiedOptions) -> Result<Self> {
        let raw = RawKeys::new(&keys)?;
        let table = options.table()?;
        let raw_options = sys::dsc_tied_layers_options_t {
            struct_size: size_of::<sys::dsc_tied_layers_options_t>(),
            ranks: if table.is_empty() { ptr::null() } else { table.as_ptr() },
            n_stages: options.pipelines.first().map_or(0, Vec::len),
            n_pipelines: options.pipelines.len(),
            sync: i32::from(!options.keep_own),
            reserved: 0,
        };
        let mut tied = ptr::null_mut();
        // SAFETY: lists, options and the weights' memory, which is borrowed mutably, outlive the call.
        let result = unsafe {
            sys::dsc_tied_layers_create(comm.raw(), raw.list.as_ptr(), raw.list.len(), &raw_options, &mut tied)
        };
        comm.check(result, "tied_layers_create")?;
        let handle = NonNull::new(tied).ok_or_else(|| {
            Error::new(ErrorCode::Internal, "the library returned neither an object nor an error".into())
        })?;
        Ok(TiedLayers { handle: TiedHandle(handle), group: comm.shared.name.clone() })
    }

    /// Sums the gradients over the stages that hold each key, in place, without dividing them. Collective.
    ///
    /// `grads` has one gradient for each weight of this rank, in the order of the keys and their weights.
    pub fn reduce(&mut self, grads: &mut [Tensor<'_>]) -> Result<()> {
        if grads.iter().any(|grad| grad.span.is_on_device()) {
            let text =
                "reduce: a gradient is on a GPU, which writes it after this call; expected reduce_on() with a stream";
            return Err(Error::invalid(text.into()));
        }
        // SAFETY: the gradients are in host memory, and borrowed until the call ends.
        unsafe { self.reduce_raw(grads, ptr::null_mut()) }
    }

    /// Does the same as [`reduce`](TiedLayers::reduce) with gradients on the GPU, without waiting for the GPU. Later
    /// work on the stream sees the sums. The next call returns a failure that happens later.
    ///
    /// # Safety
    ///
    /// The gradients are no longer borrowed after the call. They must stay valid until the stream has passed the sums,
    /// and only work on the stream may use them.
    pub unsafe fn reduce_on(&mut self, grads: &mut [Tensor<'_>], stream: Stream<'_>) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.reduce_raw(grads, stream.as_raw()) }
    }

    /// # Safety
    ///
    /// Gradients on a GPU must stay valid until the stream has passed the work of this call.
    unsafe fn reduce_raw(&mut self, grads: &mut [Tensor<'_>], stream: *mut c_void) -> Result<()> {
        let raw = RawTensors::new(grads)?;
        // SAFETY: the list, the memory that it points to, and gradients in host memory, which are borrowed mutably,
        // outlive the call. The caller guarantees that other gradients are valid.
        let result =
            unsafe { sys::dsc_tied_layers_reduce(self.handle.raw(), raw.list.as_ptr(), raw.list.len(), stream) };
        self.check(result, "tied_layers_reduce")
    }

    /// Returns the stage that owns the weights of a key, and whether this rank counts them in a norm over all stages.
    pub fn owner(&self, key: &str) -> Result<(usize, bool)> {
        let key = c_string("key", key)?;
        let (mut stage, mut counts) = (0, 0);
        // SAFETY: the library checks the handle. The text and the pointers for both results outlive the call.
        let result = unsafe { sys::dsc_tied_layers_owner(self.handle.raw(), key.as_ptr(), &mut stage, &mut counts) };
        self.check(result, "tied_layers_owner")?;
        Ok((stage as usize, counts != 0))
    }

    fn check(&self, result: sys::dsc_result_t, op: &str) -> Result<()> {
        check(result).map_err(|error| error.in_op(op).in_group(&self.group))
    }
}

impl fmt::Debug for TiedLayers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "TiedLayers(group {:?})", self.group)
    }
}

/// A list of C structs, with the memory that they point to.
struct RawKeys {
    list: Vec<sys::dsc_tied_key_t>,
    _names: Vec<CString>,
    _stages: Vec<Vec<i32>>,
    _weights: Vec<RawTensors>,
}

impl RawKeys {
    fn new(keys: &[TiedKey<'_>]) -> Result<Self> {
        let (mut list, mut names, mut lists, mut weights) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            let name = c_string("a key", &key.key)?;
            let stages: Vec<i32> = key.stages.iter().map(|stage| number("a stage", *stage)).collect::<Result<_>>()?;
            let tensors = RawTensors::new(&key.weights)?;
            list.push(sys::dsc_tied_key_t {
                struct_size: size_of::<sys::dsc_tied_key_t>(),
                key: name.as_ptr(),
                stages: stages.as_ptr(),
                weights: tensors.list.as_ptr(),
                n_stages: stages.len(),
                n_weights: tensors.list.len(),
            });
            names.push(name); // moving a name does not move its text
            lists.push(stages);
            weights.push(tensors);
        }
        Ok(RawKeys { list, _names: names, _stages: lists, _weights: weights })
    }
}
