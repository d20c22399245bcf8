//! Scaling gradients, and limiting their norm.

use std::fmt;
use std::ptr;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::defaults;
use crate::error::{Error, Result};
use crate::numbers::Norm;
use crate::reducer::BucketReducer;

/// Options of [`Iteration::finish_and_clip`](crate::Iteration::finish_and_clip) and
/// [`Sharded::clip`](crate::Sharded::clip). Use the same options on all ranks. The defaults only compute the norm.
#[derive(Clone, Default)]
pub struct ClipOptions<'c> {
    max_norm: Option<f64>,
    scale: Option<f64>,
    norm: Option<Norm>,
    shards: Option<&'c Comm>,
    counted: Option<Vec<u8>>,
}

impl<'c> ClipOptions<'c> {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The largest norm: gradients are scaled down to it. By default there is no limit.
    #[must_use]
    pub fn max_norm(mut self, most: f64) -> Self {
        self.max_norm = Some(most);
        self
    }

    /// A factor that all gradients are multiplied by first, such as 1 / loss scale; 1 by default.
    #[must_use]
    pub fn scale(mut self, factor: f64) -> Self {
        self.scale = Some(factor);
        self
    }

    /// The kind of norm; [`Norm::Two`] by default.
    #[must_use]
    pub fn norm(mut self, norm: Norm) -> Self {
        self.norm = Some(norm);
        self
    }

    /// The ranks that hold the other parts of the same model, as in tensor or pipeline parallelism. The norm is
    /// computed over all of them. By default this rank holds the whole model.
    #[must_use]
    pub fn shards(mut self, shards: &'c Comm) -> Self {
        self.shards = Some(shards);
        self
    }

    /// For each parameter, `false` if another rank of `shards` counts it in the norm, as for tied parameters. The
    /// parameter is scaled nevertheless. By default all are counted.
    #[must_use]
    pub fn counted(mut self, counted: &[bool]) -> Self {
        self.counted = Some(counted.iter().map(|counts| u8::from(*counts)).collect());
        self
    }

    /// Returns the options as a C struct, which points into this object.
    pub(crate) fn raw(&self, params: usize) -> Result<sys::dsc_clip_options_t> {
        // SAFETY: the struct has this size.
        let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_clip_options_init(raw, bytes) })?;
        if let Some(counted) = &self.counted {
            if counted.len() != params {
                let text = format!("counted has {} entries; expected {}, one per parameter", counted.len(), params);
                return Err(Error::invalid(text));
            }
            raw.counted = counted.as_ptr();
        }
        raw.shards = self.shards.map_or(ptr::null_mut(), Comm::raw);
        raw.max_norm = self.max_norm.unwrap_or(raw.max_norm);
        raw.scale = self.scale.unwrap_or(raw.scale);
        raw.norm = self.norm.map_or(raw.norm, Norm::number);
        Ok(raw)
    }
}

impl fmt::Debug for ClipOptions<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (max_norm, scale) = (self.max_norm.unwrap_or(f64::INFINITY), self.scale.unwrap_or(1.0));
        write!(out, "ClipOptions(max_norm {}, scale {}, norm {:?})", max_norm, scale, self.norm.unwrap_or(Norm::Two))
    }
}

impl BucketReducer {
    /// # Safety
    ///
    /// The gradients that were marked ready in the latest iteration must still be borrowed, because they are written.
    pub(crate) unsafe fn clip(&mut self, options: &ClipOptions<'_>) -> Result<f64> {
        let raw = options.raw(self.params.len())?;
        let _turn = options.shards.map(|shards| shards.turn("bucket_reducer_clip")).transpose()?;
        let mut norm = 0.0;
        // SAFETY: the library checks the handles. The options, the memory they point to, and norm outlive the call. The
        // caller guarantees that the gradients are valid.
        let result = unsafe { sys::dsc_bucket_reducer_clip(self.raw(), &raw, &mut norm) };
        self.check(result, "bucket_reducer_clip")?;
        Ok(norm)
    }
}
