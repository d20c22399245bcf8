//! Planning without communication: which tensor goes into which bucket, and which sample goes to which rank.

use std::mem::size_of;
use std::ptr;

use dsc_sys as sys;

use crate::convert::list;
use crate::error::{check, Error, Result};
use crate::numbers::Dtype;

/// Groups tensors into buckets of about equal bytes, by PyTorch's rules. No memory is read or written.
///
/// ```
/// use dsc::{BucketPlanner, Dtype};
///
/// # fn main() -> dsc::Result<()> {
/// let plan = BucketPlanner::new(&[100, 10, 50, 5], &[Dtype::F32; 4]).limits(&[200]).plan()?;
/// assert_eq!(plan.buckets, [vec![0], vec![1, 2], vec![3]]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BucketPlanner {
    counts: Vec<usize>,
    dtypes: Vec<i32>,
    devices: Option<Vec<i32>>,
    expect_sparse: Option<Vec<u8>>,
    order: Option<Vec<usize>>,
    limits: Option<Vec<usize>>,
}

/// The plan of a [`BucketPlanner`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketPlan {
    /// The indices of the tensors in each bucket.
    pub buckets: Vec<Vec<usize>>,
    /// The limit in bytes of each bucket.
    pub limits: Vec<usize>,
}

impl BucketPlanner {
    /// Takes tensors by their element counts and types. By default the limits are 1 MiB for the first bucket and 25 MiB
    /// for all others.
    pub fn new(counts: &[usize], dtypes: &[Dtype]) -> Self {
        BucketPlanner {
            counts: counts.to_vec(),
            dtypes: dtypes.iter().map(|dtype| dtype.number()).collect(),
            devices: None,
            expect_sparse: None,
            order: None,
            limits: None,
        }
    }

    /// Sets the limits. For each element type and device, the first bucket is closed when it holds `limits[0]` bytes,
    /// the next one at `limits[1]`, and so on. The last limit applies to all further buckets.
    #[must_use]
    pub fn limits(mut self, bytes: &[usize]) -> Self {
        self.limits = Some(bytes.to_vec());
        self
    }

    /// Sets the device of each tensor, as any numbers. Only tensors with the same number share a bucket.
    #[must_use]
    pub fn devices(mut self, devices: &[i32]) -> Self {
        self.devices = Some(devices.to_vec());
        self
    }

    /// Sets, by tensor index, which tensors need a separate bucket.
    #[must_use]
    pub fn expect_sparse(mut self, sparse: &[bool]) -> Self {
        self.expect_sparse = Some(sparse.iter().map(|sparse| u8::from(*sparse)).collect());
        self
    }

    /// Sets the tensor index at each position, if the tensors are not in order.
    #[must_use]
    pub fn order(mut self, order: &[usize]) -> Self {
        self.order = Some(order.to_vec());
        self
    }

    /// Makes the plan.
    #[doc(alias = "dsc_bucket_plan")]
    pub fn plan(&self) -> Result<BucketPlan> {
        let n = self.counts.len();
        self.check_lengths(n)?;
        let (mut indices, mut starts, mut limits, mut n_buckets) = (vec![0; n], vec![0; n + 1], vec![0; n], 0);
        let options = sys::dsc_bucket_plan_options_t {
            struct_size: size_of::<sys::dsc_bucket_plan_options_t>(),
            devices: first(&self.devices),
            expect_sparse: first(&self.expect_sparse),
            order: first(&self.order),
            limits: first(&self.limits),
            n_limits: self.limits.as_ref().map_or(0, Vec::len),
        };
        let (indices_at, starts_at) = (indices.as_mut_ptr(), starts.as_mut_ptr());
        // SAFETY: the input lists have n entries each, and the output lists are large enough.
        check(unsafe {
            let (counts, dtypes) = (self.counts.as_ptr(), self.dtypes.as_ptr());
            sys::dsc_bucket_plan(
                counts,
                dtypes,
                n,
                &options,
                indices_at,
                starts_at,
                limits.as_mut_ptr(),
                &mut n_buckets,
            )
        })?;
        limits.truncate(n_buckets);
        Ok(BucketPlan { buckets: bucket_lists(&indices, &starts, n_buckets), limits })
    }

    fn check_lengths(&self, n: usize) -> Result<()> {
        let lists = [
            ("dtypes", Some(self.dtypes.len())),
            ("devices", self.devices.as_ref().map(Vec::len)),
            ("expect_sparse", self.expect_sparse.as_ref().map(Vec::len)),
            ("order", self.order.as_ref().map(Vec::len)),
        ];
        for (name, len) in lists {
            if len.map_or(false, |len| len != n) {
                let text = format!("{} has {} entries; expected {}, one per tensor", name, len.unwrap_or(0), n);
                return Err(Error::invalid(text));
            }
        }
        Ok(())
    }
}

fn first<T>(list: &Option<Vec<T>>) -> *const T {
    list.as_ref().map_or(ptr::null(), |list| list.as_ptr())
}

/// Converts the output arrays of the C interface to lists.
pub(crate) fn bucket_lists(indices: &[usize], starts: &[usize], n_buckets: usize) -> Vec<Vec<usize>> {
    (0..n_buckets).map(|bucket| indices[starts[bucket]..starts[bucket + 1]].to_vec()).collect()
}

/// Returns the samples of one shard: position p of the sequence belongs to shard p modulo `shards`.
///
/// So the same positions of all shards are consecutive samples, and a global batch does not depend on the number of
/// shards. With a seed, for example run seed plus epoch, the sequence is shuffled, in the same way on every machine.
/// `drop_last` leaves out the last samples that do not fill all shards; otherwise samples from the start are repeated.
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// assert_eq!(dsc::shard_indices(10, 4, 1, None, true)?, [1, 5]);
/// assert_eq!(dsc::shard_indices(10, 4, 1, None, false)?, [1, 5, 9]);
/// assert_eq!(dsc::shard_indices(10, 4, 1, Some(7), true)?.len(), 2);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "dsc_sampler_indices")]
pub fn shard_indices(
    count: usize,
    shards: usize,
    shard: usize,
    seed: Option<u64>,
    drop_last: bool,
) -> Result<Vec<usize>> {
    let (shuffle, seed) = (i32::from(seed.is_some()), seed.unwrap_or(0));
    list(0, 0, |indices, capacity, found| {
        // SAFETY: indices has capacity entries, and found outlives the call.
        unsafe {
            sys::dsc_sampler_indices(
                count,
                shards,
                shard,
                shuffle,
                seed,
                i32::from(drop_last),
                indices,
                capacity,
                found,
            )
        }
    })
}
