//! Planning without communication: which layers are on which stage, and seeds that do not depend on the stage.

use std::ffi::CString;
use std::ptr;

use dsc_sys as sys;

use crate::convert::{c_string, number};
use crate::error::{check, Error, Result};
use crate::init::pointer;

/// Divides a list of layers into consecutive parts, one per stage.
///
/// ```
/// use dsc::Partitioner;
///
/// # fn main() -> dsc::Result<()> {
/// assert_eq!(Partitioner::new(&[4.0, 1.0, 1.0, 1.0, 1.0, 4.0], 3).plan()?, [0, 1, 5, 6]);
/// assert_eq!(Partitioner::new(&[1.0; 10], 4).method("uniform").plan()?, [0, 3, 6, 8, 10]);
/// let sizes = [1, 1, 1, 1, 1, 5];
/// assert_eq!(Partitioner::new(&[1.0; 6], 2).limits(&sizes, &[6]).plan()?, [0, 4, 6]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Partitioner {
    weights: Vec<f64>,
    parts: usize,
    method: Option<String>,
    layer_bytes: Vec<u64>,
    part_limits: Vec<u64>,
}

impl Partitioner {
    /// Takes layers with their weights (0 or more, in any unit) to divide into `parts`, with the method "bottleneck".
    pub fn new(weights: &[f64], parts: usize) -> Self {
        let (layer_bytes, part_limits) = (Vec::new(), Vec::new());
        Partitioner { weights: weights.to_vec(), parts, method: None, layer_bytes, part_limits }
    }

    /// Sets the method. "bottleneck" makes the heaviest part as light as possible, then the next-heaviest, and so on,
    /// without empty parts. "uniform" and "deepspeed_balanced" give the parts of DeepSpeed; "uniform_v0" and
    /// "deepspeed_balanced_v0" those of earlier versions of DeepSpeed.
    #[must_use]
    pub fn method(mut self, name: &str) -> Self {
        self.method = Some(name.to_string());
        self
    }

    /// Sets the bytes that each layer takes, and the largest number of bytes for each part (or one number for all
    /// parts). They are for the method "bottleneck".
    #[must_use]
    pub fn limits(mut self, layer_bytes: &[u64], part_limits: &[u64]) -> Self {
        self.layer_bytes = layer_bytes.to_vec();
        self.part_limits = part_limits.to_vec();
        self
    }

    /// Computes the boundaries: part p holds the layers from boundary p up to, but not including, boundary p + 1.
    #[doc(alias = "dsc_pipe_partition")]
    #[doc(alias = "dsc_pipe_partition_options_init")]
    pub fn plan(&self) -> Result<Vec<usize>> {
        let n = self.weights.len();
        if !self.layer_bytes.is_empty() && self.layer_bytes.len() != n {
            let text = format!("layer_bytes has {} entries; expected {}, one per layer", self.layer_bytes.len(), n);
            return Err(Error::invalid(text));
        }
        number("parts", self.parts)?;
        let method: Option<CString> = self.method.as_deref().map(|name| c_string("method", name)).transpose()?;
        let options = sys::dsc_pipe_partition_options_t {
            struct_size: std::mem::size_of::<sys::dsc_pipe_partition_options_t>(),
            method: pointer(&method),
            layer_bytes: first(&self.layer_bytes),
            part_limits: first(&self.part_limits),
            n_part_limits: self.part_limits.len(),
        };
        let mut boundaries = vec![0; self.parts + 1];
        // SAFETY: the lengths of the lists are right, and boundaries is large enough.
        check(unsafe {
            sys::dsc_pipe_partition(self.weights.as_ptr(), n, self.parts, &options, boundaries.as_mut_ptr())
        })?;
        Ok(boundaries)
    }
}

fn first<T>(list: &[T]) -> *const T {
    if list.is_empty() {
        ptr::null()
    } else {
        list.as_ptr()
    }
}

/// Returns the seed of one layer. It depends on the run's seed and the layer's index in the whole model, never on
/// stages or ranks. The method is "split_mix" (`None`), or "deepspeed", which is seed + layer.
///
/// ```
/// assert_eq!(dsc::seed_layer(0, 0, None)?, 0xa706dd2f4d197e6f);
/// assert_eq!(dsc::seed_layer(1234, 7, Some("deepspeed"))?, 1241);
/// # Ok::<(), dsc::Error>(())
/// ```
#[doc(alias = "dsc_rng_layer_seed")]
pub fn seed_layer(seed: u64, layer: u64, method: Option<&str>) -> Result<u64> {
    let (method, mut found) = (method.map(|name| c_string("method", name)).transpose()?, 0);
    // SAFETY: method and found outlive the call.
    check(unsafe { sys::dsc_rng_layer_seed(seed, layer, pointer(&method), &mut found) })?;
    Ok(found)
}

/// The region of a model that a seed is for, with this rank's numbers in its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeedRegion {
    /// The seed is the same on all ranks of a tensor-parallel group.
    Data,
    /// The seed is different on each rank of a tensor-parallel group.
    Tensor {
        /// The number of this rank in that group.
        rank: usize,
    },
    /// The seed is different on ranks that hold different experts, or different parts of experts.
    Expert {
        /// The number of this rank in the expert-parallel group.
        rank: usize,
        /// The number of this rank in the tensor-parallel group of the experts.
        tensor_rank: usize,
    },
}

/// The seed of a region on one rank, with Megatron's numbers.
///
/// ```
/// use dsc::SeedRegion;
///
/// # fn main() -> dsc::Result<()> {
/// assert_eq!(dsc::seed_region(1234, SeedRegion::Tensor { rank: 3 })?, 1234 + 2718 + 3);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "dsc_rng_region_seed")]
pub fn seed_region(seed: u64, region: SeedRegion) -> Result<u64> {
    let (region, tensor, expert, expert_tensor) = match region {
        SeedRegion::Data => (sys::DSC_RNG_REGION_DATA, 0, 0, 0),
        SeedRegion::Tensor { rank } => (sys::DSC_RNG_REGION_TENSOR, rank, 0, 0),
        SeedRegion::Expert { rank, tensor_rank } => (sys::DSC_RNG_REGION_EXPERT, 0, rank, tensor_rank),
    };
    let tensor = number("rank", tensor)?;
    let (expert, expert_tensor) = (number("rank", expert)?, number("tensor_rank", expert_tensor)?);
    let mut found = 0;
    // SAFETY: found outlives the call.
    check(unsafe { sys::dsc_rng_region_seed(seed, region, tensor, expert, expert_tensor, &mut found) })?;
    Ok(found)
}
