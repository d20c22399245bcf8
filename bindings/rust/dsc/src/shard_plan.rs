//! Layouts of sharded parameters, and the copies from the shards of one layout to those of another layout.

use dsc_sys as sys;

use crate::convert::{defaults, list, sized};
use crate::error::{Error, Result};
use crate::numbers::{Dtype, ShardLayout};

/// Rules for the layout of parameters in buckets that are divided among shards. Use the same rules on all ranks.
///
/// ```
/// use dsc::{Dtype, ShardLayout, ShardRules};
///
/// # fn main() -> dsc::Result<()> {
/// let rules = ShardRules::new().layout(ShardLayout::Deepspeed);
/// let plan = rules.plan(&[5, 2], &[Dtype::F32; 2], 3)?;
/// assert_eq!((plan.buckets[0].used, plan.buckets[0].size), (7, 12)); // the size is a multiple of 2 x 3
/// assert_eq!(plan.starts, [0, 5]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ShardRules {
    layout: Option<ShardLayout>,
    units: Vec<usize>,
    alone: Vec<usize>,
    bucket_elements: Option<usize>,
    alignment: Option<usize>,
    wide_padding: bool,
}

/// A flat buffer of one element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardBucket {
    /// The unit of the bucket. Units are numbered in the order of their parameters.
    pub unit: usize,
    /// The number of elements without the padding at the end.
    pub used: usize,
    /// The number of elements, a multiple of the number of shards.
    pub size: usize,
    /// The element type.
    pub dtype: Dtype,
}

/// A layout of parameters in buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardPlan {
    /// The buckets.
    pub buckets: Vec<ShardBucket>,
    /// The bucket of each parameter.
    pub places: Vec<usize>,
    /// The position of each parameter's first element in its bucket.
    pub starts: Vec<usize>,
}

/// Elements that a shard copies from a shard of another layout. `from_start` and `to_start` are offsets in these
/// shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardCopy {
    /// The parameter to which the elements belong.
    pub param: usize,
    /// The shard of the old layout that has the elements.
    pub from_shard: usize,
    /// The bucket of the old layout.
    pub from_bucket: usize,
    /// The offset in the old shard of that bucket.
    pub from_start: usize,
    /// The bucket of the new layout.
    pub to_bucket: usize,
    /// The offset in the new shard of that bucket.
    pub to_start: usize,
    /// The number of elements.
    pub count: usize,
}

impl ShardRules {
    /// The defaults: [`ShardLayout::Unit`], with planned units.
    pub fn new() -> Self {
        Self::default()
    }

    /// The layout.
    #[must_use]
    pub fn layout(mut self, layout: ShardLayout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// The first parameter of each unit, in ascending order from 0. By default units are planned.
    #[must_use]
    pub fn units(mut self, starts: &[usize]) -> Self {
        self.units = starts.to_vec();
        self
    }

    /// The parameters that each get their own planned unit.
    #[must_use]
    pub fn alone(mut self, params: &[usize]) -> Self {
        self.alone = params.to_vec();
        self
    }

    /// A planned unit ends with the parameter that brings it to this many elements; 0: no limit.
    #[must_use]
    pub fn bucket_elements(mut self, elements: usize) -> Self {
        self.bucket_elements = Some(elements);
        self
    }

    /// The size of a shard in [`ShardLayout::Unit`] is a multiple of this many elements; 16 by default.
    #[must_use]
    pub fn alignment(mut self, elements: usize) -> Self {
        self.alignment = Some(elements);
        self
    }

    /// Whether the ends of buckets in [`ShardLayout::Megatron`] are also multiples of 65,536 elements.
    #[must_use]
    pub fn wide_padding(mut self, on: bool) -> Self {
        self.wide_padding = on;
        self
    }

    /// Calls a function with the rules for n parameters as a C struct.
    pub(crate) fn with_raw<T>(
        &self,
        n: usize,
        call: impl FnOnce(&sys::dsc_shard_plan_options_t) -> Result<T>,
    ) -> Result<T> {
        // SAFETY: `defaults` passes memory for the struct, and its size.
        let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_shard_plan_options_init(raw, bytes) })?;
        let mut alone = vec![0u8; n];
        for &param in &self.alone {
            *alone.get_mut(param).ok_or_else(|| {
                Error::invalid(format!("alone contains parameter {}; expected parameters below {}", param, n))
            })? = 1;
        }
        if !self.alone.is_empty() {
            raw.alone = alone.as_ptr();
        }
        if !self.units.is_empty() {
            raw.unit_starts = self.units.as_ptr();
            raw.n_units = self.units.len();
        }
        raw.layout = self.layout.map_or(raw.layout, ShardLayout::number);
        raw.bucket_elements = self.bucket_elements.unwrap_or(raw.bucket_elements);
        raw.alignment = self.alignment.unwrap_or(raw.alignment);
        raw.wide_padding = i32::from(self.wide_padding);
        call(&raw)
    }

    /// Plans the layout of parameters. No memory is read or written.
    #[doc(alias = "dsc_shard_plan")]
    pub fn plan(&self, counts: &[usize], dtypes: &[Dtype], shards: usize) -> Result<ShardPlan> {
        let (n, codes) = (counts.len(), codes(counts, dtypes)?);
        let (mut places, mut starts) = (vec![0; n], vec![0; n]);
        let buckets = self.with_raw(n, |rules| {
            list(n, sized!(sys::dsc_shard_bucket_t), |buckets, capacity, found| {
                // SAFETY: the lists have n entries each, and buckets has capacity entries.
                unsafe {
                    sys::dsc_shard_plan(
                        counts.as_ptr(),
                        codes.as_ptr(),
                        n,
                        shards,
                        rules,
                        places.as_mut_ptr(),
                        starts.as_mut_ptr(),
                        buckets,
                        capacity,
                        found,
                    )
                }
            })
        })?;
        let bucket = |raw: &sys::dsc_shard_bucket_t| ShardBucket {
            unit: raw.unit,
            used: raw.used,
            size: raw.size,
            dtype: Dtype::from_number(raw.dtype),
        };
        Ok(ShardPlan { buckets: buckets.iter().map(bucket).collect(), places, starts })
    }

    /// Lists the elements that shard number `shard` of another layout takes from the shards of this layout. This layout
    /// has `from_shards` shards. The other layout, `to`, has `to_shards` shards.
    #[doc(alias = "dsc_shard_copies")]
    pub fn copies(
        &self,
        counts: &[usize],
        dtypes: &[Dtype],
        from_shards: usize,
        to: &ShardRules,
        to_shards: usize,
        shard: usize,
    ) -> Result<Vec<ShardCopy>> {
        let (n, codes) = (counts.len(), codes(counts, dtypes)?);
        let copies = self.with_raw(n, |from| {
            to.with_raw(n, |to| {
                list(2 * n, sized!(sys::dsc_shard_copy_t), |copies, capacity, found| {
                    // SAFETY: the lists have n entries each, and copies has capacity entries.
                    unsafe {
                        sys::dsc_shard_copies(
                            counts.as_ptr(),
                            codes.as_ptr(),
                            n,
                            from_shards,
                            from,
                            to_shards,
                            to,
                            shard,
                            copies,
                            capacity,
                            found,
                        )
                    }
                })
            })
        })?;
        Ok(copies.iter().map(ShardCopy::of).collect())
    }
}

impl ShardCopy {
    fn of(raw: &sys::dsc_shard_copy_t) -> Self {
        ShardCopy {
            param: raw.param,
            from_shard: raw.from_shard,
            from_bucket: raw.from_bucket,
            from_start: raw.from_start,
            to_bucket: raw.to_bucket,
            to_start: raw.to_start,
            count: raw.count,
        }
    }
}

fn codes(counts: &[usize], dtypes: &[Dtype]) -> Result<Vec<i32>> {
    if counts.len() != dtypes.len() {
        let text = format!("dtypes has {} entries; expected {}, one per parameter", dtypes.len(), counts.len());
        return Err(Error::invalid(text));
    }
    Ok(dtypes.iter().map(|dtype| dtype.number()).collect())
}
