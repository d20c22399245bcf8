/**
 * @file types.h
 * @brief Constants, handle types and rules that all other headers share.
 *
 * Values never change: enumerations only grow at their end. Enumerations name the values. Functions take and
 * return the 32-bit integer types declared beside them, so that any bit pattern that a caller passes is well
 * defined.
 *
 * **Rules of all headers.**
 *
 * - *Structs* begin with struct_size, sizeof the struct as the caller compiled it. Pointers, 64-bit numbers,
 * 32-bit numbers and texts follow, in this order and without holes. Later releases add fields at the end.
 * "reserved" must be 0 and is used only where a struct would have padding. Each struct of options has an
 * _init function that fills in the defaults. dsc_setting_t and dsc_pipe_compute_t never change and have no
 * struct_size.
 * - *Arrays of structs*: in a list of dsc_tensor_t or dsc_tied_key_t, set the struct_size of every element,
 * always to the same value; otherwise the call returns DSC_ERR_INVALID_ARG and names the element. In all
 * other arrays, which are those that a call fills in and the instructions of dsc_pipe_validate(), the
 * struct_size of the first element is used for all. The call reads it, so such an output is [in,out].
 * - *Texts that a call writes* are UTF-8. The call takes a buffer, its `capacity` in bytes, and `needed`, to
 * which it writes the size of the whole text in bytes, the final zero included. It writes as many whole
 * characters as fit and always a final zero. It returns DSC_OK, or DSC_TRUNCATED if the text did not fit. To
 * ask only for the size, pass NULL and capacity 0; that returns DSC_OK. Only dsc_log_read() requires a
 * buffer, because it removes what it returns.
 * - *Lists that a call writes* follow the same rule, with entries instead of bytes and without the zero.
 * - *Handles* that a call only reads are const.
 * - *Groups* are subsets of ranks, each with a communicator. *Batches* are operations that are started
 * together (dsc_batch_begin()).
 *
 * **Rules of names and arguments.** The generator of the bindings checks them.
 *
 * - Enumerators begin with the name of their enumeration: DSC_DTYPE_F32 is a value of dsc_dtype. The
 * exception is dsc_result.
 * - Options are named after a call that takes them, without a verb such as _create, _open, _split or
 * _forward: dsc_shard_plan() takes dsc_shard_plan_options_t, and dsc_store_open() takes dsc_store_options_t.
 * The exceptions are dsc_clip_options_t, dsc_init_options_t and dsc_sequence_heads_options_t.
 * - A call whose name ends with _info fills in a dsc_..._info_t; one that ends with _json writes a JSON text;
 * one that ends with _stats writes a list of dsc_..._stats_t structs.
 * - After `capacity` comes `needed`. Numbers of entries (n, n_...) are size_t. Ranks, stages, chunks and
 * micro-batches are int32_t, and so is how many of them there are.
 * - The order of arguments is: inputs, outputs, stream, work. In calls that move data, recv follows send. The
 * root follows the data and its type.
 * - A callback that fails may write a text to `error`, which has room for error_capacity bytes.
 * - A call has at most 10 arguments, except dsc_shard_copies(), which takes two layouts.
 * - No field or argument is a reserved word of Python, Rust or Julia.
 * - The comment of a pointer begins with its length in brackets, unless name and type say it: "[n + 1]" is a
 * list of n + 1 entries, "[1]" one value, "[count of sum_dtype]" elements of a type that bindings/api.json
 * explains. "[address]" is an address that is not read, "[existing]" an object that the call does not create.
 * A capacity, n or n_NAME directly after a pointer is its length. A callback's comment says on which threads
 * it runs, and what it may call.
 */
#ifndef DSC_TYPES_H
#define DSC_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Marks an exported function. */
#if defined(__GNUC__)
#define DSC_API __attribute__((visibility("default")))
#else
#define DSC_API
#endif

/** @brief What a call returned: 0 is success, positive values are states, negative values are errors. */
typedef int32_t dsc_result_t;

/** @brief Values of ::dsc_result_t. */
enum dsc_result {
  DSC_OK = 0,                  /**< success */
  DSC_IN_PROGRESS = 1,         /**< the wait ended, the work continues */
  DSC_DONE = 2,                /**< nothing is left to return */
  DSC_TRUNCATED = 3,           /**< a text or list did not fit; the buffer holds its beginning */
  DSC_ERR_INVALID_ARG = -1,    /**< an argument is wrong; nothing happened */
  DSC_ERR_BAD_HANDLE = -2,     /**< stale, foreign, wrong-kind or NULL handle */
  DSC_ERR_STATE = -3,          /**< the call does not fit the object's state */
  DSC_ERR_FORKED = -4,         /**< called in a child made by fork() */
  DSC_ERR_BUSY = -5,           /**< another thread is inside a call on this handle */
  DSC_ERR_REENTRANT = -6,      /**< called from a callback that must not call it */
  DSC_ERR_NOMEM = -7,          /**< out of memory */
  DSC_ERR_NOSPACE = -8,        /**< shared memory could not be reserved */
  DSC_ERR_SYSTEM = -9,         /**< a system call failed; the message contains errno */
  DSC_ERR_TIMEOUT = -10,       /**< the deadline passed; the message names the missing ranks */
  DSC_ERR_PEER_DEAD = -11,     /**< a rank's process ended without leaving */
  DSC_ERR_PEER_STALLED = -12,  /**< a rank's process no longer runs (stopped, swapped, dumping core) */
  DSC_ERR_PEER_LEFT = -13,     /**< a rank left the group or exited in an orderly way */
  DSC_ERR_MISMATCH = -14,      /**< ranks called different operations, or with different arguments */
  DSC_ERR_REVOKED = -15,       /**< the communicator has failed; the message says why */
  DSC_ERR_AUTH = -16,          /**< authentication failed */
  DSC_ERR_PROTOCOL = -17,      /**< the peer does not speak this protocol */
  DSC_ERR_VERSION = -18,       /**< incompatible versions */
  DSC_ERR_CONFIG = -19,        /**< settings are impossible or differ between ranks */
  DSC_ERR_ADDR_IN_USE = -20,   /**< another job uses the rendezvous name */
  DSC_ERR_NO_BACKEND = -21,    /**< a library, driver or symbol is missing */
  DSC_ERR_BACKEND = -22,       /**< a backend failed; the message has its error */
  DSC_ERR_BACKEND_STUCK = -23, /**< a backend call does not return */
  DSC_ERR_UNSUPPORTED = -24,   /**< valid, but not supported by this version */
  DSC_ERR_OVERFLOW = -25,      /**< a size does not fit */
  DSC_ERR_CALLBACK = -26,      /**< a callback failed or threw */
  DSC_ERR_NONFINITE = -27,     /**< a NaN or an infinity was found */
  DSC_ERR_INTERNAL = -28,      /**< a bug in this library */
  DSC_RESULT_FORCE32 = 0x7fffffff
};

/** @brief Element type of a buffer: NCCL's number plus one; 0 is never valid. */
typedef int32_t dsc_dtype_t;

/** @brief Values of ::dsc_dtype_t. */
enum dsc_dtype {
  DSC_DTYPE_I8 = 1,      /**< signed 8-bit integer */
  DSC_DTYPE_U8 = 2,      /**< unsigned 8-bit integer */
  DSC_DTYPE_I32 = 3,     /**< signed 32-bit integer */
  DSC_DTYPE_U32 = 4,     /**< unsigned 32-bit integer */
  DSC_DTYPE_I64 = 5,     /**< signed 64-bit integer */
  DSC_DTYPE_U64 = 6,     /**< unsigned 64-bit integer */
  DSC_DTYPE_F16 = 7,     /**< IEEE binary16 */
  DSC_DTYPE_F32 = 8,     /**< IEEE binary32 */
  DSC_DTYPE_F64 = 9,     /**< IEEE binary64 */
  DSC_DTYPE_BF16 = 10,   /**< bfloat16 */
  DSC_DTYPE_F8E4M3 = 11, /**< 8-bit float, 4 exponent bits */
  DSC_DTYPE_F8E5M2 = 12, /**< 8-bit float, 5 exponent bits */
  DSC_DTYPE_BOOL = 13,   /**< one byte, 0 or 1 */
  DSC_DTYPE_FORCE32 = 0x7fffffff
};

/** @brief Reduce operation: NCCL's number plus 101. No element type has such a number, so an operation and a
 * type in the wrong order are DSC_ERR_INVALID_ARG. User-defined operations have numbers from 1000 on, see
 * op.h. */
typedef int32_t dsc_op_t;

/** @brief Values of ::dsc_op_t. Rank order applies to host memory; on devices NCCL chooses the order. */
enum dsc_op {
  DSC_OP_SUM = 101,  /**< sum in rank order */
  DSC_OP_PROD = 102, /**< product in rank order */
  DSC_OP_MAX = 103,  /**< maximum; a NaN wins */
  DSC_OP_MIN = 104,  /**< minimum; a NaN wins */
  DSC_OP_AVG = 105,  /**< sum, then one true division by the group size; floating-point types only */
  DSC_OP_BAND = 106, /**< bitwise and */
  DSC_OP_BOR = 107,  /**< bitwise or */
  DSC_OP_BXOR = 108, /**< bitwise exclusive or */
  DSC_OP_FORCE32 = 0x7fffffff
};

/** @brief What happens when an input of a reduction is NaN or infinite. */
typedef int32_t dsc_nonfinite_check_t;

/** @brief Values of ::dsc_nonfinite_check_t. */
enum dsc_nonfinite_check {
  DSC_NONFINITE_CHECK_OFF = 0,   /**< nothing: the value passes through */
  DSC_NONFINITE_CHECK_COUNT = 1, /**< it is counted, see dsc_comm_nonfinite_info() */
  DSC_NONFINITE_CHECK_FAIL = 2,  /**< DSC_ERR_NONFINITE on all ranks; the communicator is not revoked */
  DSC_NONFINITE_CHECK_FORCE32 = 0x7fffffff
};

/** @brief What moves data. */
typedef int32_t dsc_backend_t;

/** @brief Values of ::dsc_backend_t. */
enum dsc_backend {
  DSC_BACKEND_AUTO = 0,       /**< the best one available */
  DSC_BACKEND_HOST = 1,       /**< host memory within one host, through shared memory */
  DSC_BACKEND_DEVICE = 2,     /**< device memory, through NCCL */
  DSC_BACKEND_INTER_HOST = 3, /**< host memory across hosts, through libdsc_gloo.so */
  DSC_BACKEND_FORCE32 = 0x7fffffff
};

/** @brief Where memory is. */
typedef int32_t dsc_memory_kind_t;

/** @brief Values of ::dsc_memory_kind_t. */
enum dsc_memory_kind {
  DSC_MEMORY_KIND_HOST = 1,   /**< host memory that every rank of the host reaches without copying */
  DSC_MEMORY_KIND_DEVICE = 2, /**< memory of a GPU */
  DSC_MEMORY_KIND_FORCE32 = 0x7fffffff
};

/** @brief Sources of rank and world size: the bitwise or of values of ::dsc_source. */
typedef uint32_t dsc_sources_t;

/** @brief Bits of ::dsc_sources_t. */
enum dsc_source {
  DSC_SOURCE_OPTIONS = 1,  /**< the options of the call */
  DSC_SOURCE_ENV = 2,      /**< RANK and WORLD_SIZE */
  DSC_SOURCE_PMIX = 4,     /**< a PMIx server */
  DSC_SOURCE_LAUNCHER = 8, /**< variables of Slurm, Open MPI, MPICH and others */
  DSC_SOURCE_SINGLE = 16,  /**< a single process */
  DSC_SOURCE_FORCE32 = 0x7fffffff
};

/** @brief How urgent a log record is. */
typedef int32_t dsc_log_level_t;

/** @brief Values of ::dsc_log_level_t. */
enum dsc_log_level {
  DSC_LOG_LEVEL_OFF = 0,   /**< nothing */
  DSC_LOG_LEVEL_ERROR = 1, /**< something failed */
  DSC_LOG_LEVEL_WARN = 2,  /**< something looks wrong, but work continues */
  DSC_LOG_LEVEL_INFO = 3,  /**< decisions and their reasons */
  DSC_LOG_LEVEL_DEBUG = 4, /**< every step */
  DSC_LOG_LEVEL_FORCE32 = 0x7fffffff
};

/** @brief How the reducer averages gradients. */
typedef int32_t dsc_average_t;

/** @brief Values of ::dsc_average_t. */
enum dsc_average {
  DSC_AVERAGE_PRE = 1,     /**< each input times 1/n as it is read; summed in rank order, rounded once */
  DSC_AVERAGE_POST = 2,    /**< sum, then one true division, rounded once */
  DSC_AVERAGE_NONE = 3,    /**< the plain sum */
  DSC_AVERAGE_PYTORCH = 4, /**< PyTorch's two rules: a gradient that is copied is multiplied by 1/n and
                              rounded; one in its view is divided by n */
  DSC_AVERAGE_FORCE32 = 0x7fffffff
};

/** @brief When a reducer rebuilds its buckets in the order in which gradients become ready. */
typedef int32_t dsc_rebuild_t;

/** @brief Values of ::dsc_rebuild_t. */
enum dsc_rebuild {
  DSC_REBUILD_NEVER = 1,    /**< the buckets stay as planned */
  DSC_REBUILD_ONCE = 2,     /**< once, after the first reduced iteration, as in PyTorch */
  DSC_REBUILD_REPEATED = 3, /**< also later, after three consecutive iterations with another order */
  DSC_REBUILD_FORCE32 = 0x7fffffff
};

/** @brief How buffers of a model, such as running means, are made equal on all ranks. */
typedef int32_t dsc_buffer_sync_t;

/** @brief Values of ::dsc_buffer_sync_t. */
enum dsc_buffer_sync {
  DSC_BUFFER_SYNC_BROADCAST = 1, /**< all ranks get those of rank 0 */
  DSC_BUFFER_SYNC_MEAN = 2,      /**< floats become their mean over all ranks; other types are broadcast */
  DSC_BUFFER_SYNC_FORCE32 = 0x7fffffff
};

/** @brief Which norm of gradients is limited. */
typedef int32_t dsc_norm_t;

/** @brief Values of ::dsc_norm_t. */
enum dsc_norm {
  DSC_NORM_TWO = 1, /**< square root of the sum of squares */
  DSC_NORM_MAX = 2, /**< largest magnitude */
  DSC_NORM_FORCE32 = 0x7fffffff
};

/** @brief How sharded parameters are laid out in flat buffers. */
typedef int32_t dsc_shard_layout_t;

/** @brief Values of ::dsc_shard_layout_t. */
enum dsc_shard_layout {
  DSC_SHARD_LAYOUT_UNIT = 1,        /**< the parameters of a unit one after another, as in FSDP */
  DSC_SHARD_LAYOUT_MEGATRON = 2,    /**< buckets of Megatron's distributed optimizer, last parameter first */
  DSC_SHARD_LAYOUT_DEEPSPEED = 3,   /**< flat buffers of DeepSpeed's stages 1 and 2 */
  DSC_SHARD_LAYOUT_PARTITIONED = 4, /**< each parameter is divided separately, as in DeepSpeed's stage 3 */
  DSC_SHARD_LAYOUT_FORCE32 = 0x7fffffff
};

/** @brief What ranks that share a tensor exchange; see tensor_map.h. */
typedef int32_t dsc_tensor_mapping_t;

/** @brief Values of ::dsc_tensor_mapping_t: the forward step; the backward step. */
enum dsc_tensor_mapping {
  DSC_TENSOR_MAPPING_COPY = 1,               /**< identity; sum */
  DSC_TENSOR_MAPPING_REDUCE = 2,             /**< sum; identity */
  DSC_TENSOR_MAPPING_SCATTER = 3,            /**< own slice; all-gather */
  DSC_TENSOR_MAPPING_GATHER = 4,             /**< all-gather; own slice */
  DSC_TENSOR_MAPPING_GATHER_REDUCE = 5,      /**< all-gather; reduce-scatter */
  DSC_TENSOR_MAPPING_REDUCE_SCATTER = 6,     /**< reduce-scatter; all-gather */
  DSC_TENSOR_MAPPING_ALL_TO_ALL = 7,         /**< all-to-all along dim; the reverse */
  DSC_TENSOR_MAPPING_SEQUENCE_TO_HIDDEN = 8, /**< from parts of outer to parts of dim; the reverse */
  DSC_TENSOR_MAPPING_HIDDEN_TO_SEQUENCE = 9, /**< from parts of dim to parts of outer; the reverse */
  DSC_TENSOR_MAPPING_FORCE32 = 0x7fffffff
};

/** @brief Selects the rows that an expert drops beyond its capacity; see expert_parallel.h. */
typedef int32_t dsc_moe_drop_t;

/** @brief Values of ::dsc_moe_drop_t. */
enum dsc_moe_drop {
  DSC_MOE_DROP_LATEST = 1,   /**< those of the last tokens */
  DSC_MOE_DROP_LIGHTEST = 2, /**< those with the lowest router weights; if equal, those of the last tokens */
  DSC_MOE_DROP_FORCE32 = 0x7fffffff
};

/** @brief How rows travel to the experts; see expert_parallel.h. */
typedef int32_t dsc_moe_payload_t;

/** @brief Values of ::dsc_moe_payload_t. */
enum dsc_moe_payload {
  DSC_MOE_PAYLOAD_PLAIN = 1,  /**< unchanged */
  DSC_MOE_PAYLOAD_F8E4M3 = 2, /**< as 8-bit floats, with one f32 scale for each 128 elements */
  DSC_MOE_PAYLOAD_FORCE32 = 0x7fffffff
};

/** @brief A setting of a backend, as a pair of texts; docs/gpu.md lists the names. */
typedef struct dsc_setting {
  const char* name;  /**< such as "nccl.max_ctas" */
  const char* value; /**< a decimal number, or a text */
} dsc_setting_t;

/** @brief A communicator: a group of ranks. Its value is an id, never an address. Thread-safety: one thread
 * at a time for its operations, any thread for queries, abort, time-out and destroy. */
typedef struct dsc_comm dsc_comm_t;
/** @brief An operation that was started without waiting for it. Thread-safety: any thread, several at once.
 */
typedef struct dsc_work dsc_work_t;
/** @brief Reduces gradients in buckets while the backward pass computes them. Thread-safety: one thread at a
 * time for creation, begin and finish, any thread, several at once, for marking gradients and for queries. */
typedef struct dsc_bucket_reducer dsc_bucket_reducer_t;

#ifdef __cplusplus
}
#endif

#endif /* DSC_TYPES_H */
