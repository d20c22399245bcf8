/**
 * @file comm.h
 * @brief Communicators: queries, groups, time-outs, failures, statistics.
 */
#ifndef DSC_COMM_H
#define DSC_COMM_H

#include <dsc/error.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Options of dsc_comm_split() and dsc_comm_create_group(). */
typedef struct dsc_comm_options {
  size_t struct_size;            /**< size of this struct as the caller compiled it */
  const char* name;              /**< shown in errors; the first 31 bytes are kept. NULL: "PARENT/NUMBER" */
  const dsc_setting_t* settings; /**< settings of backends, such as "nccl.max_ctas"; NULL (default): none */
  size_t n_settings;             /**< entries of settings; default 0 */
  int32_t timeout_ms;      /**< deadline of every operation in milliseconds; 0 (default): the parent's */
  int32_t stream_priority; /**< CUDA priority of the streams for operations with a work object: lower is more
                              urgent, 0 (default) is the least urgent; values outside the device's range are
                              clamped */
} dsc_comm_options_t;

/** @brief Running totals of one operation in one size class. */
typedef struct dsc_op_stats {
  size_t struct_size;   /**< in the first element: size of this struct as the caller compiled it */
  uint64_t bytes_class; /**< smallest power of two not below the bytes of a call; 0 for calls without data */
  uint64_t count;       /**< completed calls */
  uint64_t bytes;       /**< sum over the calls of the larger of the two buffers */
  uint64_t waiting_ns;  /**< nanoseconds until the other ranks had arrived, summed over the calls */
  uint64_t moving_ns;   /**< nanoseconds from then until completion, summed over the calls; 0 for blocking
                           calls of up to 104 bytes on one host */
  char operation[32];   /**< such as "all_reduce" */
} dsc_op_stats_t;

/** @brief Inputs of reductions that were NaN or infinite. */
typedef struct dsc_nonfinite_info {
  size_t struct_size;  /**< in: size of this struct as the caller compiled it */
  uint64_t elements;   /**< such elements, over the inputs of all ranks */
  uint64_t operations; /**< reductions that had such inputs */
  uint64_t sequence;   /**< sequence number of the first such reduction, as in dsc_error_info_t */
  uint64_t index;      /**< index of the first such element in the send buffer of the rank below */
  int32_t rank;        /**< the lowest rank with such an input; -1: none */
  int32_t reserved;    /**< 0 */
  char operation[32];  /**< such as "all_reduce"; empty: none */
} dsc_nonfinite_info_t;

/**
 * @brief Returns the calling rank's number in a communicator.
 * @param[in] comm communicator
 * @param[out] rank 0 to size - 1
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_rank(const dsc_comm_t* comm, int32_t* rank);

/**
 * @brief Returns the number of ranks of a communicator.
 * @param[in] comm communicator
 * @param[out] size 1 or more
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_size(const dsc_comm_t* comm, int32_t* size);

/**
 * @brief Returns the calling rank's number among the world's ranks on its host.
 * @param[in] comm communicator
 * @param[out] local_rank 0 to local_size - 1
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_local_rank(const dsc_comm_t* comm, int32_t* local_rank);

/**
 * @brief Returns the number of the world's ranks on the calling rank's host.
 * @param[in] comm communicator
 * @param[out] local_size 1 or more: the ranks found there at start-up, even if the launcher reported fewer
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_local_size(const dsc_comm_t* comm, int32_t* local_size);

/**
 * @brief Returns the number of ranks of the world that a communicator belongs to.
 * @param[in] comm communicator
 * @param[out] world_size 1 or more
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_world_size(const dsc_comm_t* comm, int32_t* world_size);

/**
 * @brief Returns the id of a communicator: the same number on all of its ranks, in dsc_error_info_t and in
 * traces.
 * @param[in] comm communicator
 * @param[out] id 0 for the world; unique among the communicators of the job
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_id(const dsc_comm_t* comm, uint64_t* id);

/**
 * @brief Returns the backend of a communicator: DSC_BACKEND_DEVICE if it is bound to a GPU, otherwise
 * DSC_BACKEND_HOST or DSC_BACKEND_INTER_HOST.
 * @param[in] comm communicator
 * @param[out] backend the backend
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_backend(const dsc_comm_t* comm, dsc_backend_t* backend);

/**
 * @brief Returns the GPU that a communicator is bound to.
 * @param[in] comm communicator
 * @param[out] device CUDA's number of the device in this process; -1: none, the communicator moves host
 * memory only
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_device(const dsc_comm_t* comm, int32_t* device);

/**
 * @brief Writes the name of a communicator; the world's is "world".
 * @param[in] comm communicator
 * @param[out] text the name; may be NULL with capacity 0
 * @param[in] capacity bytes of text; 32 are always enough
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_name(const dsc_comm_t* comm, char* text, size_t capacity, size_t* needed);

/**
 * @brief Writes the host name or address at which the ranks of a multi-host job connected, like MASTER_ADDR.
 * @param[in] comm communicator
 * @param[out] text the name or address; 127.0.0.1 for a job on one host; may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * The call does not set environment variables. Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_master_addr(const dsc_comm_t* comm, char* text, size_t capacity,
                                          size_t* needed);

/**
 * @brief Returns the port at which the ranks of a multi-host job connected, like MASTER_PORT.
 * @param[in] comm communicator
 * @param[out] port 0 to 65535
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_master_port(const dsc_comm_t* comm, int32_t* port);

/**
 * @brief Writes the source of rank and world size, such as "env" or "pmix".
 * @param[in] comm communicator
 * @param[out] text may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_source(const dsc_comm_t* comm, char* text, size_t capacity, size_t* needed);

/**
 * @brief Writes a summary for people of what start-up found and what was missing.
 * @param[in] comm communicator
 * @param[out] text may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_start_summary(const dsc_comm_t* comm, char* text, size_t capacity,
                                            size_t* needed);

/**
 * @brief Writes the size limits by which a communicator chooses its algorithms, in bytes and in the form of
 * the environment variable DSC_TUNING.
 * @param[in] comm communicator
 * @param[out] text may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_tuning(const dsc_comm_t* comm, char* text, size_t capacity, size_t* needed);

/**
 * @brief Returns whether a library thread drives the operations of a communicator.
 * @param[in] comm communicator
 * @param[out] has_progress_thread 1: it does; 0: the program calls dsc_comm_progress()
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_progress_thread(const dsc_comm_t* comm, int32_t* has_progress_thread);

/**
 * @brief Translates a rank of a communicator into the world's rank.
 * @param[in] comm communicator
 * @param[in] group_rank 0 to size - 1
 * @param[out] global_rank rank in the world
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_global_rank(const dsc_comm_t* comm, int32_t group_rank, int32_t* global_rank);

/**
 * @brief Translates a rank of the world into a communicator's rank.
 * @param[in] comm communicator
 * @param[in] global_rank rank in the world
 * @param[out] group_rank rank in the communicator; -1: not a member
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_group_rank(const dsc_comm_t* comm, int32_t global_rank, int32_t* group_rank);

/**
 * @brief Fills group options with their defaults.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_comm_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_options_init(dsc_comm_options_t* options, size_t struct_size);

/**
 * @brief Divides a communicator: ranks of one color form a group, ordered by key, then by rank.
 * @param[in] comm the parent
 * @param[in] color 0 or more; -1: this rank joins no group
 * @param[in] key order inside the group, any value
 * @param[in] options NULL: defaults; the same on all ranks of a group
 * @param[out] group the new communicator; NULL with color -1 and on failure
 *
 * Collective: yes, every rank of comm in the same order as its other collectives. Blocking: until all ranks
 * have called it. Ownership: the caller releases the group with dsc_comm_destroy(); the group keeps what it
 * needs of its parent alive. Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_BUSY; DSC_ERR_MISMATCH; DSC_ERR_TIMEOUT;
 * DSC_ERR_PEER_DEAD; DSC_ERR_PEER_STALLED; DSC_ERR_PEER_LEFT; DSC_ERR_REVOKED; DSC_ERR_NOSPACE;
 * DSC_ERR_SYSTEM; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_split(dsc_comm_t* comm, int32_t color, int32_t key,
                                    const dsc_comm_options_t* options, dsc_comm_t** group);

/**
 * @brief Creates a group of the listed ranks. Every rank of the parent calls it with the same list.
 * @param[in] comm the parent
 * @param[in] ranks ranks of comm, each at most once; their order is the order in the group
 * @param[in] n_ranks 1 to size
 * @param[in] options NULL: defaults; the same on all members
 * @param[out] group the new communicator; NULL on a rank that is not listed and on failure
 *
 * Collective: yes, every rank of comm. Blocking: until all ranks have called it. Ownership, threads: as
 * dsc_comm_split().
 * @return as dsc_comm_split(); DSC_ERR_MISMATCH when the lists differ; DSC_OK on a rank that is not listed
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_create_group(dsc_comm_t* comm, const int32_t* ranks, size_t n_ranks,
                                           const dsc_comm_options_t* options, dsc_comm_t** group);

/**
 * @brief Creates a group that uses an NCCL communicator of the program for collectives on device memory. The
 * group has the ranks of comm, in the order of the NCCL communicator.
 *
 * The NCCL communicator must come from the same copy of NCCL, have exactly the ranks of comm, and be on the
 * device that comm is bound to. It remains the program's: the library never destroys or aborts it. The
 * program must keep it until the group is destroyed on this rank, and must not use it while operations of the
 * group are called or run. Messages between two ranks, and groups made from this one, use NCCL communicators
 * that the library creates.
 *
 * When the group fails, the library ends running operations with ncclCommRevoke() if NCCL has it. With an
 * older NCCL, streams wait until the program calls ncclCommAbort().
 *
 * @param[in] comm communicator that is bound to a device
 * @param[in] library library of the communicator: "nccl"
 * @param[in] communicator [address] an ncclComm_t of that library; must stay valid until the group is
 * destroyed
 * @param[in] options NULL: defaults; the same on all ranks; its settings do not change communicator
 * @param[out] group the new communicator; NULL on failure
 *
 * Collective: yes, every rank of comm. Blocking: until all ranks have called it. Ownership, threads: as
 * dsc_comm_split().
 * @return as dsc_comm_split(); DSC_ERR_INVALID_ARG, on all ranks, for an NCCL communicator of other ranks or
 * of another device, and for an unknown library; DSC_ERR_UNSUPPORTED when comm is not bound to a device;
 * DSC_ERR_BACKEND when NCCL rejects the communicator
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_adopt(dsc_comm_t* comm, const char* library, void* communicator,
                                    const dsc_comm_options_t* options, dsc_comm_t** group);

/**
 * @brief Sets the deadline of operations started from now on.
 * @param[in] comm communicator
 * @param[in] timeout_ms milliseconds, 1 or more
 *
 * An operation's time counts from when the operations before it have finished. When it passes, the
 * communicator is revoked on all ranks. Collective: no (but use the same value on all ranks). Blocking: no.
 * Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_set_timeout(dsc_comm_t* comm, int32_t timeout_ms);

/**
 * @brief Returns the deadline of operations started from now on.
 * @param[in] comm communicator
 * @param[out] timeout_ms milliseconds: the value of dsc_comm_set_timeout(), else of dsc_comm_options_t, else
 * of the parent or the world
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_timeout(const dsc_comm_t* comm, int32_t* timeout_ms);

/**
 * @brief Revokes a communicator on all ranks: pending and later operations fail with DSC_ERR_REVOKED.
 * @param[in] comm communicator
 *
 * Collective: no. Blocking: no. Threads: any, also while another thread is inside an operation on it.
 * @return DSC_OK, also when it failed before; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_abort(dsc_comm_t* comm);

/**
 * @brief Waits until all ranks have called it and all operations are complete. Afterwards operations return
 * DSC_ERR_STATE, and the communicator can only be destroyed.
 * @param[in] comm communicator
 *
 * Collective: yes. Blocking: until all ranks called it, or the time-out. Threads: one at a time per
 * communicator.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; DSC_ERR_STATE if called twice; and the failures of an
 * operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_finalize(dsc_comm_t* comm);

/**
 * @brief Releases a communicator. Ranks that wait for this one get DSC_ERR_PEER_LEFT.
 *
 * Another rank may still be inside the call that made the group, such as dsc_comm_split(), when that call has
 * returned here. dsc_comm_finalize() waits for it.
 *
 * @param[in] comm communicator; NULL does nothing
 *
 * Collective: no. Blocking: no; operations of other threads and work objects that still run end with
 * DSC_ERR_REVOKED. Operations that were queued on a device stream with work NULL and have not run yet are
 * ended too, and their output is undefined: call dsc_comm_finalize() or synchronize the stream first.
 * Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_destroy(dsc_comm_t* comm);

/**
 * @brief Returns the first failure of a communicator, or a stalled rank that an operation waits for.
 * @param[in] comm communicator
 * @param[in,out] info struct_size must be set; filled up to that size
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK (info->code is DSC_OK when nothing failed); DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_error_info(const dsc_comm_t* comm, dsc_error_info_t* info);

/**
 * @brief Sets what happens when an input of a reduction is NaN or infinite.
 * @param[in] comm communicator
 * @param[in] check initially DSC_NONFINITE_CHECK_OFF
 *
 * It applies to reductions that start from now on: on comm, in groups made from comm from now on, and in
 * reducers made from comm. All ranks must set the same check; otherwise reductions return DSC_ERR_MISMATCH.
 * Inputs are checked while they are reduced; one more synchronization of the ranks makes the finding the same
 * on all. With DSC_NONFINITE_CHECK_FAIL the output still holds the result. Collective: no, but see above.
 * Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_set_nonfinite_check(dsc_comm_t* comm, dsc_nonfinite_check_t check);

/**
 * @brief Returns which inputs were NaN or infinite since counting started; the same on all ranks.
 * @param[in] comm communicator; reducers made from it count here too
 * @param[in] clear 1: restart counting from 0; 0: continue
 * @param[in,out] info struct_size must be set; filled up to that size
 *
 * Collective: no. Blocking: no. Threads: any; an operation that ends during the call is counted in it or in
 * the next one.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_nonfinite_info(dsc_comm_t* comm, int32_t clear, dsc_nonfinite_info_t* info);

/**
 * @brief Writes running totals per operation and size class.
 * @param[in] comm communicator
 * @param[in,out] stats the totals; stats[0].struct_size must be set; may be NULL with capacity 0
 * @param[in] capacity entries of stats
 * @param[out] needed number of totals
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_stats(const dsc_comm_t* comm, dsc_op_stats_t* stats, size_t capacity,
                                    size_t* needed);

#ifdef __cplusplus
}
#endif

#endif /* DSC_COMM_H */
