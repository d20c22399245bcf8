//! The communication half of distributed training: start-up, groups, collectives, gradient buckets, pipelines.
//!
//! A safe interface to libdsc's C library. Every rank is a process (or a thread) that runs the same program:
//!
//! ```
//! fn main() -> dsc::Result<()> {
//!     let world = dsc::init()?; // finds the other ranks; without any, makes a world of one rank
//!     let mut x = vec![world.rank() as f32; 4];
//!     world.all_reduce(&mut x, dsc::Op::Sum)?;
//!     println!("rank {} of {}: {:?}", world.rank(), world.size(), x);
//!     world.finalize()
//! }
//! ```
//!
//! # Buffers
//!
//! Operations take any type that is [`Data`]: numbers, arrays, slices, `Vec`s, [`SharedBuffer`]s of an [`Element`]
//! type, and [`Raw`] bytes of types that Rust lacks. Blocking operations are methods of [`Comm`]. An asynchronous
//! operation is described by a [`request`] and started in one of two ways:
//!
//! - [`Comm::scope`] takes borrowed buffers. Like [`std::thread::scope`], it waits for all its operations before it
//!   returns; the handles only test and wait earlier.
//! - [`Comm::start`] takes owned buffers, which [`Work::wait`] returns.
//!
//! In both cases, safe code cannot access or free a buffer that the library may still write, even if it drops or
//! forgets the handles. A guard that waits when it is dropped would not be enough, because safe code may forget it.
//!
//! GPU memory, as [`DeviceBuffer`] or [`DeviceSlice`], is also [`Data`], but not a slice. A [`Stream`] orders the
//! operations on it.
//!
//! # Errors
//!
//! Every call returns a [`Result`]. An [`Error`] contains what happened and, if it is known, which rank is at fault.
//! Only a bug causes a panic, and drop never panics.
//!
//! # Threads
//!
//! All types can be shared between threads. A call that the library allows for one thread at a time takes `&mut self`,
//! or is an operation of a [`Comm`], where a second thread gets [`ErrorCode::Busy`].
//!
//! # Half-precision floats
//!
//! With the feature `half`, the types `f16` and `bf16` of the crate `half` are [`Element`]s. Without it, [`Raw`] takes
//! their bytes.
#![deny(missing_docs, missing_debug_implementations)]
#![deny(unsafe_op_in_unsafe_fn)]

mod awaiting;
mod batch;
mod blocks;
mod callback_error;
mod clip;
mod collectives;
mod comm;
mod convert;
mod cross_entropy;
mod data;
mod device;
mod error;
mod expert_parallel;
mod expert_parallel_scope;
mod group;
mod handles;
mod hook;
mod init;
mod iteration;
mod join;
pub mod log;
mod memory;
mod mesh;
mod named_arrays;
mod nonfinite;
mod numbers;
mod operation;
mod partition;
mod pipe;
mod pipe_check;
mod pipe_costs;
mod pipe_find;
mod pipe_plan;
mod pipe_planner;
mod pipe_run;
mod pipe_simulate;
mod plan;
mod premul;
mod recovery;
mod reducer;
mod reducer_features;
mod reducer_options;
mod reduction;
pub mod request;
mod ring;
mod ring_device;
mod rms_norm;
mod scope;
mod scope_operations;
mod sequence_heads;
mod sequence_order;
mod shard_plan;
mod sharded;
mod started;
mod stats;
mod store;
mod tensor;
mod tensor_map;
mod tied;
mod trace;
mod user_op;
mod version;
mod watch;
mod words;
mod work;

pub use batch::Batch;
pub use clip::ClipOptions;
pub use comm::Comm;
pub use cross_entropy::{CrossEntropy, CrossEntropyOptions};
pub use data::{Data, DataMut, Element, Raw, RawElement};
pub use device::{DeviceBuffer, DeviceSlice, Stream};
pub use error::{Error, Result};
pub use expert_parallel::{MoeOptions, MoePlan};
pub use group::GroupOptions;
pub use hook::{hooks, Bucket, HookResult};
pub use init::{init, is_initialized, sources, world, InitOptions};
pub use iteration::{Iteration, View};
pub use join::{Join, JoinOptions};
pub use memory::{Registered, SharedBuffer};
pub use mesh::{prime_factors, Mesh, MeshPlanOptions};
pub use named_arrays::NamedArray;
pub use nonfinite::{NonFiniteInput, NonFiniteInputs};
pub use numbers::{
    Average, Backend, BufferSync, Dtype, ErrorCode, Mapping, MoeDrop, MoePayload, NonFiniteCheck, Norm, Op, Rebuild,
    ShardLayout,
};
pub use numbers::{PipeFormat, PipeMessages, PipeOp, PipePicture, PipePlacement};
pub use partition::{seed_layer, seed_region, Partitioner, SeedRegion};
pub use pipe::{PipeInstruction, PipeSchedule, PipeStep};
pub use pipe_costs::PipeCosts;
pub use pipe_find::{PipeFound, PipeLimits};
pub use pipe_plan::{PipeInfo, PipePlan, PipeReadOptions};
pub use pipe_planner::{PipeCompute, PipePlanner};
pub use pipe_run::{PipeCall, PipeCallbacks, PipeResult, PipeShapes, PipeTensors};
pub use pipe_simulate::{PipeReport, PipeSpan, PipeStageReport};
pub use plan::{shard_indices, BucketPlan, BucketPlanner};
pub use premul::PremulSum;
pub use reducer::BucketReducer;
pub use reducer_options::ReducerOptions;
pub use reduction::{Reduction, TypedOp};
pub use ring::{Ring, RingBackward, RingBlock, RingGrads, RingPass};
pub use ring_device::{DeviceRingBlock, DeviceRingPass};
pub use scope::{Borrowed, Scope, ScopedWork};
pub use sequence_heads::SequenceHeads;
pub use sequence_order::{CausalWork, SequenceOrder};
pub use shard_plan::{ShardBucket, ShardCopy, ShardPlan, ShardRules};
pub use sharded::{ShardInfo, ShardRange, Sharded, ShardedMemory, ShardedOptions};
pub use stats::OpStats;
pub use store::{Store, StoreOptions};
pub use tensor::Tensor;
pub use tensor_map::{split_range, TensorMap};
pub use tied::{tied_stages, TiedKey, TiedLayers, TiedOptions};
pub use trace::request_trace_dump;
pub use user_op::UserOp;
pub use version::{feature, version};
pub use watch::Watch;
pub use work::{Owned, Work};

/// Compiles and tests the code in the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
