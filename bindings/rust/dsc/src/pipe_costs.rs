//! Costs of a pipeline: time of computation and messages, and memory.

use dsc_sys as sys;

use crate::convert::defaults;
use crate::error::{Error, Result};

/// Costs of a pipeline: time of computation and messages, and memory. By default every operation takes time 1, and
/// everything else costs nothing.
///
/// Times are in a unit of your choice. A list has one number for all parts of the model, or one for each part, in the
/// order in which data flows through them. All numbers must be finite and 0 or more.
///
/// ```
/// use dsc::{PipeCosts, PipePlanner};
///
/// # fn main() -> dsc::Result<()> {
/// let plan = PipePlanner::new("1f1b", 2, 3).plan()?;
/// assert_eq!(plan.simulate(&PipeCosts::new())?.makespan, 12.0);
/// let costs = PipeCosts::new().forward(&[1.0, 4.0]).backward_input(&[2.0]).latency(0.5);
/// assert_eq!(plan.simulate(&costs)?.makespan, 26.0);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "dsc_pipe_costs_t")]
#[doc(alias = "dsc_pipe_costs_init")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PipeCosts {
    forward: Option<Vec<f64>>,
    backward_input: Option<Vec<f64>>,
    backward_weight: Option<Vec<f64>>,
    message_bytes: Option<Vec<f64>>,
    activation_bytes: Option<Vec<f64>>,
    static_bytes: Option<Vec<f64>>,
    gradient_bytes: Option<Vec<f64>>,
    overlap: Option<f64>,
    latency: f64,
    bytes_per_time: f64,
    bucket_bytes: f64,
    reduce_latency: f64,
    reduce_bytes_per_time: f64,
}

impl PipeCosts {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The time of a forward pass; 1 by default.
    #[must_use]
    pub fn forward(mut self, times: &[f64]) -> Self {
        self.forward = Some(times.to_vec());
        self
    }

    /// The time of the first half of a backward pass, which computes gradients of inputs; 1 by default.
    #[must_use]
    pub fn backward_input(mut self, times: &[f64]) -> Self {
        self.backward_input = Some(times.to_vec());
        self
    }

    /// The time of the second half, which computes gradients of weights; 1 by default. A whole backward pass takes the
    /// sum of both times.
    #[must_use]
    pub fn backward_weight(mut self, times: &[f64]) -> Self {
        self.backward_weight = Some(times.to_vec());
        self
    }

    /// The bytes that a part sends to the next part, and receives back as gradients; 0 by default.
    #[must_use]
    pub fn message_bytes(mut self, bytes: &[f64]) -> Self {
        self.message_bytes = Some(bytes.to_vec());
        self
    }

    /// The bytes held for a micro-batch from its forward pass to the end of its backward pass; 0 by default.
    #[must_use]
    pub fn activation_bytes(mut self, bytes: &[f64]) -> Self {
        self.activation_bytes = Some(bytes.to_vec());
        self
    }

    /// The bytes of weights, their gradients and the optimizer's state; 0 by default.
    #[must_use]
    pub fn static_bytes(mut self, bytes: &[f64]) -> Self {
        self.static_bytes = Some(bytes.to_vec());
        self
    }

    /// The bytes of gradients that are reduced over data-parallel ranks at the end. With 0 (the default) there is no
    /// reduction.
    #[must_use]
    pub fn gradient_bytes(mut self, bytes: &[f64]) -> Self {
        self.gradient_bytes = Some(bytes.to_vec());
        self
    }

    /// The time of a forward and a backward pass that overlap, as a fraction of the sum of their times; 1 by default.
    #[must_use]
    pub fn overlap(mut self, part: f64) -> Self {
        self.overlap = Some(part);
        self
    }

    /// The latency of a message between stages; 0 by default.
    #[must_use]
    pub fn latency(mut self, time: f64) -> Self {
        self.latency = time;
        self
    }

    /// The bandwidth of a link between two stages, in each direction; 0 (the default) is unlimited.
    #[must_use]
    pub fn bytes_per_time(mut self, bytes: f64) -> Self {
        self.bytes_per_time = bytes;
        self
    }

    /// The bytes of gradients in one bucket. With 0 (the default), all gradients of a part are in one bucket.
    #[must_use]
    pub fn bucket_bytes(mut self, bytes: f64) -> Self {
        self.bucket_bytes = bytes;
        self
    }

    /// The latency of an all-reduce; 0 by default.
    #[must_use]
    pub fn reduce_latency(mut self, time: f64) -> Self {
        self.reduce_latency = time;
        self
    }

    /// The bandwidth of an all-reduce, in bytes of gradients; 0 (the default) is unlimited.
    #[must_use]
    pub fn reduce_bytes_per_time(mut self, bytes: f64) -> Self {
        self.reduce_bytes_per_time = bytes;
        self
    }

    /// Calls a function with the costs as a C struct, in which all lists have the same length.
    pub(crate) fn with_raw<T>(&self, call: impl FnOnce(&sys::dsc_pipe_costs_t) -> Result<T>) -> Result<T> {
        // SAFETY: `defaults` passes memory for the struct, and its size.
        let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_pipe_costs_init(raw, bytes) })?;
        raw.n = self.length()?;
        let repeated = self.lists().map(|(_, list)| list.as_ref().map(|list| repeat(list, raw.n)));
        let first = |i: usize| repeated[i].as_ref().map_or(std::ptr::null(), |list| list.as_ptr());
        raw.forward = first(0);
        raw.backward_input = first(1);
        raw.backward_weight = first(2);
        raw.message_bytes = first(3);
        raw.activation_bytes = first(4);
        raw.static_bytes = first(5);
        raw.gradient_bytes = first(6);
        raw.overlap = self.overlap.unwrap_or(raw.overlap);
        raw.latency = self.latency;
        raw.bytes_per_time = self.bytes_per_time;
        raw.bucket_bytes = self.bucket_bytes;
        raw.reduce_latency = self.reduce_latency;
        raw.reduce_bytes_per_time = self.reduce_bytes_per_time;
        call(&raw)
    }

    /// The lists in the order of the C interface.
    fn lists(&self) -> [(&'static str, &Option<Vec<f64>>); 7] {
        [
            ("forward", &self.forward),
            ("backward_input", &self.backward_input),
            ("backward_weight", &self.backward_weight),
            ("message_bytes", &self.message_bytes),
            ("activation_bytes", &self.activation_bytes),
            ("static_bytes", &self.static_bytes),
            ("gradient_bytes", &self.gradient_bytes),
        ]
    }

    /// The length of the longest list. A list of one number fits any length.
    fn length(&self) -> Result<usize> {
        let given = self.lists().into_iter().filter_map(|(name, list)| Some((name, list.as_ref()?.len())));
        let (longest, n) = given.clone().fold(("", 1), |most, it| if it.1 > most.1 { it } else { most });
        for (name, len) in given {
            if len == 0 {
                let text = format!("{} is []; expected one number, or one for each part of the model", name);
                return Err(Error::invalid(text));
            }
            if len != 1 && len != n {
                let text = format!("{} has {} numbers; expected 1 or {}, like {}", name, len, n, longest);
                return Err(Error::invalid(text));
            }
        }
        Ok(n)
    }
}

fn repeat(list: &[f64], n: usize) -> Vec<f64> {
    if list.len() == n {
        list.to_vec()
    } else {
        vec![list[0]; n]
    }
}
