//! Options of reducers.

use dsc_sys as sys;

use crate::convert::defaults;
use crate::error::Result;
use crate::numbers::{Average, Dtype, Rebuild};

/// Options of [`BucketReducer::new`](crate::BucketReducer::new). Use the same options on all ranks.
#[derive(Clone, Debug, Default)]
pub struct ReducerOptions {
    bucket_bytes: Option<usize>,
    first_bucket_bytes: Option<usize>,
    buckets: Vec<Vec<usize>>,
    average: Option<Average>,
    keep_own: bool,
    single_first_bucket: bool,
    find_unused: bool,
    static_graph: bool,
    rebuild: Option<Rebuild>,
    small_bucket_first: bool,
    grad_dtype: Option<Dtype>,
    keep_sparse_rows: bool,
}

impl ReducerOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// A bucket is closed when it holds this many bytes; 25 MiB by default.
    #[must_use]
    pub fn bucket_bytes(mut self, bytes: usize) -> Self {
        self.bucket_bytes = Some(bytes);
        self
    }

    /// The limit for the bucket of the first parameters, which is launched last; 1 MiB by default.
    #[must_use]
    pub fn first_bucket_bytes(mut self, bytes: usize) -> Self {
        self.first_bucket_bytes = Some(bytes);
        self
    }

    /// Explicit buckets: lists of parameter indices in launch order. By default buckets are planned.
    #[must_use]
    pub fn buckets(mut self, buckets: &[Vec<usize>]) -> Self {
        self.buckets = buckets.to_vec();
        self
    }

    /// How gradients are averaged; [`Average::Pre`] by default.
    #[must_use]
    pub fn average(mut self, average: Average) -> Self {
        self.average = Some(average);
        self
    }

    /// Whether rank 0's parameters are copied to all ranks at creation; on by default.
    #[must_use]
    pub fn sync(mut self, on: bool) -> Self {
        self.keep_own = !on;
        self
    }

    /// Makes one bucket per element type, as in PyTorch's first iteration.
    #[must_use]
    pub fn single_first_bucket(mut self, on: bool) -> Self {
        self.single_first_bucket = on;
        self
    }

    /// Allows parameters without a gradient. A parameter that is not marked before [`finish`](crate::Iteration::finish)
    /// has no gradient on this rank, and [`unused`](crate::BucketReducer::unused) returns those without a gradient on
    /// any rank. By default `finish` fails for unmarked parameters.
    #[must_use]
    pub fn find_unused(mut self, on: bool) -> Self {
        self.find_unused = on;
        self
    }

    /// Declares that every iteration uses the same parameters equally often. The first iteration counts the marks of
    /// each parameter and is reduced at its end. In later iterations a parameter is ready after the same number of
    /// marks.
    ///
    /// For a parameter that is used several times, call [`accumulate`](crate::Iteration::accumulate) with each
    /// gradient, followed by [`mark_accumulated`](crate::Iteration::mark_accumulated).
    #[must_use]
    pub fn static_graph(mut self, on: bool) -> Self {
        self.static_graph = on;
        self
    }

    /// Sets when buckets are rebuilt in the order in which gradients become ready; [`Rebuild::Once`] by default. They
    /// are never rebuilt with explicit buckets, with `find_unused`, or after a rank has requested a view.
    #[must_use]
    pub fn rebuild(mut self, when: Rebuild) -> Self {
        self.rebuild = Some(when);
        self
    }

    /// Whether, in a rebuilt plan, `first_bucket_bytes` is the limit of the bucket that is launched first, as in
    /// PyTorch. By default it is the limit of the bucket that is launched last.
    #[must_use]
    pub fn small_bucket_first(mut self, on: bool) -> Self {
        self.small_bucket_first = on;
        self
    }

    /// The element type of buckets and views, such as [`Dtype::F32`] for parameters of 16 bits. Gradients have the
    /// parameters' type. They are converted when they are marked, and the result is rounded once.
    #[must_use]
    pub fn grad_dtype(mut self, dtype: Dtype) -> Self {
        self.grad_dtype = Some(dtype);
        self
    }

    /// Returns [sparse](crate::Tensor::expect_sparse) results as the rows of all ranks one after another. By default
    /// each index occurs once, in ascending order, with the sum of its rows.
    #[must_use]
    pub fn keep_sparse_rows(mut self, on: bool) -> Self {
        self.keep_sparse_rows = on;
        self
    }

    /// Returns the type of the views of parameters that have the type `dtype`.
    pub(crate) fn view_dtype(&self, dtype: Dtype) -> Dtype {
        self.grad_dtype.unwrap_or(dtype)
    }

    /// Whether a parameter may be marked several times in an iteration.
    pub(crate) fn marks_repeat(&self) -> bool {
        self.static_graph
    }

    /// Calls a function with the options as a C struct.
    pub(crate) fn with_raw<T>(&self, call: impl FnOnce(&sys::dsc_bucket_reducer_options_t) -> T) -> Result<T> {
        // SAFETY: `defaults` passes memory for the struct, and its size.
        let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_bucket_reducer_options_init(raw, bytes) })?;
        let indices: Vec<usize> = self.buckets.concat();
        let mut starts = vec![0];
        for bucket in &self.buckets {
            starts.push(starts[starts.len() - 1] + bucket.len());
        }
        if !self.buckets.is_empty() {
            raw.bucket_indices = indices.as_ptr();
            raw.bucket_starts = starts.as_ptr();
            raw.n_buckets = self.buckets.len();
        }
        raw.bucket_bytes = self.bucket_bytes.unwrap_or(raw.bucket_bytes);
        raw.first_bucket_bytes = self.first_bucket_bytes.unwrap_or(raw.first_bucket_bytes);
        raw.average = self.average.map_or(raw.average, Average::number);
        raw.sync = i32::from(!self.keep_own);
        raw.single_first_bucket = i32::from(self.single_first_bucket);
        raw.find_unused = i32::from(self.find_unused);
        raw.static_graph = i32::from(self.static_graph);
        raw.rebuild = self.rebuild.map_or(raw.rebuild, Rebuild::number);
        raw.small_bucket_first = i32::from(self.small_bucket_first);
        raw.keep_sparse_rows = i32::from(self.keep_sparse_rows);
        raw.grad_dtype = self.grad_dtype.map_or(raw.grad_dtype, Dtype::number);
        Ok(call(&raw))
    }
}
