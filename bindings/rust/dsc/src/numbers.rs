//! Rust enums for the enumerations of the C interface. A number without a name is kept as `Unknown`.

/// Declares a Rust enum, with lines `Variant = C_CONSTANT`, and its conversions from and to numbers of the C interface.
macro_rules! numbers {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $constant:ident,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)+
            /// A number for which this version of the crate has no name.
            Unknown(i32),
        }

        impl $name {
            /// The value with this number in the C interface.
            pub fn from_number(number: i32) -> Self {
                match number {
                    $(sys::$constant => Self::$variant,)+
                    other => Self::Unknown(other),
                }
            }

            /// The number in the C interface.
            pub fn number(self) -> i32 {
                match self {
                    $(Self::$variant => sys::$constant,)+
                    Self::Unknown(number) => number,
                }
            }
        }
    };
}

use dsc_sys as sys;

numbers! {
    /// The exchange of a [`TensorMap`](crate::TensorMap): what this rank gets in the forward and in the backward step.
    Mapping {
        /// Forward: this rank's own tensor, without an exchange. Backward: the sum over the ranks.
        Copy = DSC_TENSOR_MAPPING_COPY,
        /// Forward: the sum over the ranks. Backward: this rank's own tensor, without an exchange.
        Reduce = DSC_TENSOR_MAPPING_REDUCE,
        /// Forward: this rank's part of the whole tensor. Backward: the whole tensor, gathered from all ranks.
        Scatter = DSC_TENSOR_MAPPING_SCATTER,
        /// Forward: the whole tensor, gathered from all ranks. Backward: this rank's part of the whole tensor.
        Gather = DSC_TENSOR_MAPPING_GATHER,
        /// Forward: the whole tensor, gathered from all ranks. Backward: this rank's part of the sum over the ranks.
        GatherReduce = DSC_TENSOR_MAPPING_GATHER_REDUCE,
        /// Forward: this rank's part of the sum over the ranks. Backward: the whole tensor, gathered from all ranks.
        ReduceScatter = DSC_TENSOR_MAPPING_REDUCE_SCATTER,
        /// Forward: rank r gets part r of every rank's tensor. Backward: the reverse exchange.
        AllToAll = DSC_TENSOR_MAPPING_ALL_TO_ALL,
        /// Forward: from `[sequence / n, ..., hidden]` to `[sequence, ..., hidden / n]`. Backward: the reverse.
        SequenceToHidden = DSC_TENSOR_MAPPING_SEQUENCE_TO_HIDDEN,
        /// Forward: from `[sequence, ..., hidden / n]` to `[sequence / n, ..., hidden]`. Backward: the reverse.
        HiddenToSequence = DSC_TENSOR_MAPPING_HIDDEN_TO_SEQUENCE,
    }
}

numbers! {
    /// The kind of an [`Error`](crate::Error); docs/errors.md of libdsc describes each.
    ErrorCode {
        /// An argument is wrong; the call had no effect.
        InvalidArg = DSC_ERR_INVALID_ARG,
        /// The object of a handle no longer exists, for example a communicator whose world has ended.
        BadHandle = DSC_ERR_BAD_HANDLE,
        /// The call is not allowed in the current state of the object.
        State = DSC_ERR_STATE,
        /// The call was made in a child process of `fork()`.
        Forked = DSC_ERR_FORKED,
        /// Another thread is in a call on this communicator.
        Busy = DSC_ERR_BUSY,
        /// The call was made in a callback in which it is not allowed.
        Reentrant = DSC_ERR_REENTRANT,
        /// Out of memory.
        NoMem = DSC_ERR_NOMEM,
        /// Shared memory could not be reserved.
        NoSpace = DSC_ERR_NOSPACE,
        /// A system call failed.
        System = DSC_ERR_SYSTEM,
        /// The deadline passed.
        Timeout = DSC_ERR_TIMEOUT,
        /// A rank's process ended without leaving.
        PeerDead = DSC_ERR_PEER_DEAD,
        /// A rank's process no longer runs: it is stopped, swapped out or dumping core.
        PeerStalled = DSC_ERR_PEER_STALLED,
        /// A rank left the group or exited in an orderly way.
        PeerLeft = DSC_ERR_PEER_LEFT,
        /// Ranks called different operations, or the same operation with different arguments.
        Mismatch = DSC_ERR_MISMATCH,
        /// The communicator failed earlier.
        Revoked = DSC_ERR_REVOKED,
        /// Authentication failed.
        Auth = DSC_ERR_AUTH,
        /// The peer does not use this protocol.
        Protocol = DSC_ERR_PROTOCOL,
        /// The ranks' versions of libdsc do not work together.
        Version = DSC_ERR_VERSION,
        /// Settings are impossible or differ between ranks.
        Config = DSC_ERR_CONFIG,
        /// Another job uses the address or name where the ranks meet.
        AddrInUse = DSC_ERR_ADDR_IN_USE,
        /// A library, driver or symbol is missing.
        NoBackend = DSC_ERR_NO_BACKEND,
        /// A backend failed.
        Backend = DSC_ERR_BACKEND,
        /// A call of a backend does not return.
        BackendStuck = DSC_ERR_BACKEND_STUCK,
        /// The call is valid, but this version does not support it.
        Unsupported = DSC_ERR_UNSUPPORTED,
        /// A size is too large.
        Overflow = DSC_ERR_OVERFLOW,
        /// A callback failed.
        Callback = DSC_ERR_CALLBACK,
        /// A NaN or an infinity was found.
        NonFinite = DSC_ERR_NONFINITE,
        /// A bug in the library.
        Internal = DSC_ERR_INTERNAL,
    }
}

numbers! {
    /// Element type of a buffer.
    Dtype {
        /// `i8`
        I8 = DSC_DTYPE_I8,
        /// `u8`
        U8 = DSC_DTYPE_U8,
        /// `i32`
        I32 = DSC_DTYPE_I32,
        /// `u32`
        U32 = DSC_DTYPE_U32,
        /// `i64`
        I64 = DSC_DTYPE_I64,
        /// `u64`
        U64 = DSC_DTYPE_U64,
        /// IEEE binary16
        F16 = DSC_DTYPE_F16,
        /// `f32`
        F32 = DSC_DTYPE_F32,
        /// `f64`
        F64 = DSC_DTYPE_F64,
        /// bfloat16
        Bf16 = DSC_DTYPE_BF16,
        /// 8-bit float with 4 exponent bits
        F8E4M3 = DSC_DTYPE_F8E4M3,
        /// 8-bit float with 5 exponent bits
        F8E5M2 = DSC_DTYPE_F8E5M2,
        /// One byte, 0 or 1
        Bool = DSC_DTYPE_BOOL,
    }
}

numbers! {
    /// What happens when an input of a reduction is NaN or infinite.
    NonFiniteCheck {
        /// Inputs are not checked.
        Off = DSC_NONFINITE_CHECK_OFF,
        /// [`Comm::nonfinite`](crate::Comm::nonfinite) reports such inputs.
        Count = DSC_NONFINITE_CHECK_COUNT,
        /// The operation also fails with [`ErrorCode::NonFinite`]. Its output still holds the result.
        Fail = DSC_NONFINITE_CHECK_FAIL,
    }
}

numbers! {
    /// How operations combine elements.
    Op {
        /// The sum, in rank order.
        Sum = DSC_OP_SUM,
        /// The product, in rank order.
        Prod = DSC_OP_PROD,
        /// The maximum; NaN if any input is NaN.
        Max = DSC_OP_MAX,
        /// The minimum; NaN if any input is NaN.
        Min = DSC_OP_MIN,
        /// The sum, divided once by the group's size; floating-point types only.
        Avg = DSC_OP_AVG,
        /// Bitwise and.
        BitAnd = DSC_OP_BAND,
        /// Bitwise or.
        BitOr = DSC_OP_BOR,
        /// Bitwise exclusive or.
        BitXor = DSC_OP_BXOR,
    }
}

numbers! {
    /// The backend that moves the data.
    Backend {
        /// The best backend that is available.
        Auto = DSC_BACKEND_AUTO,
        /// Host memory of one host, through shared memory.
        Host = DSC_BACKEND_HOST,
        /// GPU memory, through NCCL.
        Device = DSC_BACKEND_DEVICE,
        /// Host memory of several hosts, through libdsc_gloo.so.
        InterHost = DSC_BACKEND_INTER_HOST,
    }
}

numbers! {
    /// How a [`BucketReducer`](crate::BucketReducer) averages gradients.
    Average {
        /// Each input is multiplied by 1/n when it is read, summed in rank order, and rounded once.
        Pre = DSC_AVERAGE_PRE,
        /// The sum is divided once, and rounded once.
        Post = DSC_AVERAGE_POST,
        /// The sum without a division.
        None = DSC_AVERAGE_NONE,
        /// PyTorch's two rules: a copied gradient is multiplied by 1/n and rounded; a gradient in its view is divided
        /// by n.
        Pytorch = DSC_AVERAGE_PYTORCH,
    }
}

numbers! {
    /// The rule for when a [`BucketReducer`](crate::BucketReducer) rebuilds its buckets. The new buckets have the order
    /// in which gradients become ready.
    Rebuild {
        /// Buckets are never rebuilt.
        Never = DSC_REBUILD_NEVER,
        /// Buckets are rebuilt once, after the first iteration that is reduced.
        Once = DSC_REBUILD_ONCE,
        /// Buckets are rebuilt after the first reduced iteration, and again when the order has changed for several
        /// iterations.
        Repeated = DSC_REBUILD_REPEATED,
    }
}

numbers! {
    /// How [`sync_buffers`](crate::BucketReducer::sync_buffers) makes buffers equal.
    BufferSync {
        /// Buffers become equal to those of rank 0, or under a [`Join`](crate::Join) to those of the lowest rank that
        /// has batches.
        Broadcast = DSC_BUFFER_SYNC_BROADCAST,
        /// Floating-point buffers become their mean over the ranks, or under a join over the ranks that have batches.
        /// Other buffers are treated as with `Broadcast`.
        Mean = DSC_BUFFER_SYNC_MEAN,
    }
}

numbers! {
    /// The norm that [`ClipOptions`](crate::ClipOptions) limits.
    Norm {
        /// The square root of the sum of squares.
        Two = DSC_NORM_TWO,
        /// The largest magnitude.
        Max = DSC_NORM_MAX,
    }
}

numbers! {
    /// Selects the rows that an expert drops beyond its capacity; see [`MoeOptions`](crate::MoeOptions).
    MoeDrop {
        /// The expert drops the rows of the last tokens.
        Latest = DSC_MOE_DROP_LATEST,
        /// The expert drops the rows with the lowest router weights; among equal weights, those of the last tokens.
        Lightest = DSC_MOE_DROP_LIGHTEST,
    }
}

numbers! {
    /// How rows are sent to the experts; see [`MoePlan::dispatch`](crate::MoePlan::dispatch).
    MoePayload {
        /// Rows are sent unchanged.
        Plain = DSC_MOE_PAYLOAD_PLAIN,
        /// Rows are sent as 8-bit floats, with one f32 scale for each 128 elements.
        F8E4M3 = DSC_MOE_PAYLOAD_F8E4M3,
    }
}

numbers! {
    /// How sharded parameters are laid out in flat buffers.
    ShardLayout {
        /// The parameters of a unit are one after another, as in FSDP.
        Unit = DSC_SHARD_LAYOUT_UNIT,
        /// The buckets of Megatron's distributed optimizer, with the last parameter first.
        Megatron = DSC_SHARD_LAYOUT_MEGATRON,
        /// The flat buffers of DeepSpeed's stages 1 and 2.
        Deepspeed = DSC_SHARD_LAYOUT_DEEPSPEED,
        /// Each parameter is divided separately, as in DeepSpeed's stage 3.
        Partitioned = DSC_SHARD_LAYOUT_PARTITIONED,
    }
}

numbers! {
    /// The kind of an instruction of a pipeline schedule.
    PipeOp {
        /// Load inputs (first stage) or labels (last stage).
        LoadMicroBatch = DSC_PIPE_OP_LOAD_MICRO_BATCH,
        /// Forward pass of one micro-batch.
        Forward = DSC_PIPE_OP_FORWARD,
        /// Backward pass of one micro-batch.
        Backward = DSC_PIPE_OP_BACKWARD,
        /// The part of a backward pass that gives gradients of the inputs.
        BackwardInput = DSC_PIPE_OP_BACKWARD_INPUT,
        /// The part of a backward pass that gives gradients of the weights.
        BackwardWeight = DSC_PIPE_OP_BACKWARD_WEIGHT,
        /// Send the outputs to the next stage.
        SendActivation = DSC_PIPE_OP_SEND_ACTIVATION,
        /// Receive the inputs from the previous stage.
        RecvActivation = DSC_PIPE_OP_RECV_ACTIVATION,
        /// Send the gradients of the inputs to the previous stage.
        SendGrad = DSC_PIPE_OP_SEND_GRAD,
        /// Receive the gradients of the outputs from the next stage.
        RecvGrad = DSC_PIPE_OP_RECV_GRAD,
        /// Sum the gradients of weights that several stages share.
        ReduceTiedGrads = DSC_PIPE_OP_REDUCE_TIED_GRADS,
        /// Reduce gradients over the data-parallel ranks.
        ReduceGrads = DSC_PIPE_OP_REDUCE_GRADS,
        /// Update the weights.
        OptimizerStep = DSC_PIPE_OP_OPTIMIZER_STEP,
        /// A forward and a backward pass that overlap.
        Overlap = DSC_PIPE_OP_OVERLAP,
    }
}

numbers! {
    /// How the parts of a model are placed on stages. Data flows through parts 0, 1, 2 and so on.
    PipePlacement {
        /// Part p is on stage p modulo stages: from the first stage to the last, repeatedly.
        Loop = DSC_PIPE_PLACEMENT_LOOP,
        /// Parts are placed from the first stage to the last, then back: two chunks make a V.
        Zigzag = DSC_PIPE_PLACEMENT_ZIGZAG,
        /// Every stage has a whole model; stages exchange no data.
        Apart = DSC_PIPE_PLACEMENT_APART,
    }
}

numbers! {
    /// When a stage sends and receives messages, relative to its computations.
    PipeMessages {
        /// Messages are exchanged when the receiver needs them for its next computation. This needs the fewest buffers.
        WhenNeeded = DSC_PIPE_MESSAGES_WHEN_NEEDED,
        /// Messages are sent right after they are computed, and received as early as possible, as in PyTorch 2.7.
        AtOnce = DSC_PIPE_MESSAGES_AT_ONCE,
    }
}

numbers! {
    /// A text format for schedules; docs/schedules.md of libdsc describes each.
    PipeFormat {
        /// PyTorch's CSV without communication: a row per stage, a cell per step.
        PyTorch = DSC_PIPE_FORMAT_PYTORCH,
        /// PyTorch's CSV with sends and receives.
        PyTorchComms = DSC_PIPE_FORMAT_PYTORCH_COMMS,
        /// DeepSpeed's instructions, a line per step.
        DeepSpeed = DSC_PIPE_FORMAT_DEEPSPEED,
        /// Megatron-LM's lists, a line per stage. A forward pass is chunk + 1, a backward pass is -(chunk + 1).
        Megatron = DSC_PIPE_FORMAT_MEGATRON,
        /// The complete schedule.
        Json = DSC_PIPE_FORMAT_JSON,
    }
}

numbers! {
    /// A picture format for schedules.
    PipePicture {
        /// A line per stage, for a terminal.
        Text = DSC_PIPE_PICTURE_TEXT,
        /// A line per stage with colors, by ANSI escape sequences.
        Color = DSC_PIPE_PICTURE_COLOR,
        /// A complete SVG drawing.
        Svg = DSC_PIPE_PICTURE_SVG,
        /// A trace for ui.perfetto.dev, in which a unit of time is a microsecond.
        Perfetto = DSC_PIPE_PICTURE_PERFETTO,
    }
}

numbers! {
    /// The level of a log record.
    Level {
        /// No records.
        Off = DSC_LOG_LEVEL_OFF,
        /// Something failed.
        Error = DSC_LOG_LEVEL_ERROR,
        /// Something looks wrong, but work continues.
        Warn = DSC_LOG_LEVEL_WARN,
        /// Decisions of the library, with reasons.
        Info = DSC_LOG_LEVEL_INFO,
        /// Every step of the library.
        Debug = DSC_LOG_LEVEL_DEBUG,
    }
}

impl Dtype {
    /// The size of one element in bytes; 0 for an unknown type.
    pub fn bytes(self) -> usize {
        let mut bytes = 0;
        // SAFETY: any number is a valid argument, and bytes outlives the call.
        unsafe { sys::dsc_dtype_bytes(self.number(), &mut bytes) };
        bytes
    }
}
