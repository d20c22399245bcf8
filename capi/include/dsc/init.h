/**
 * @file init.h
 * @brief Start-up: joins the processes of a job into one world of ranks.
 */
#ifndef DSC_INIT_H
#define DSC_INIT_H

#include <dsc/store.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Options of dsc_init_distributed(). Fill with dsc_init_options_init(), then change what is needed.
 */
typedef struct dsc_init_options {
  size_t struct_size;      /**< size of this struct as the caller compiled it */
  const char* init_method; /**< "env://", "pmix://" (a PMIx server only), "tcp://HOST:PORT" or "file:///PATH"
                              (on a file system shared by all hosts); NULL: env:// */
  const char* job_id;      /**< distinguishes jobs on one host; NULL: from the launcher, or none */
  const char* token;       /**< secret of a multi-host job, 64 hexadecimal digits; NULL: DSC_TOKEN_FD,
                              DSC_TOKEN_FILE, DSC_TOKEN, or none */
  dsc_store_t* store; /**< multi-host jobs: rank 0 publishes its address in this store. Any store works, also
                         a user-defined one (dsc_store_from_callbacks()). The world keeps a reference to it.
                         NULL (default): none */
  const dsc_setting_t*
      settings;          /**< of backends; NULL (default): none. "nccl.library" and "cuda.library" (files of
                            NCCL and of CUDA's driver library) are read when a device is bound; one
                            value for all ranks of a process. Without them see docs/gpu.md */
  size_t n_settings;     /**< entries of settings; default 0 */
  dsc_backend_t backend; /**< default DSC_BACKEND_AUTO */
  dsc_sources_t sources; /**< allowed sources of rank and size, bits of ::dsc_source; 0 (default): all */
  int32_t rank; /**< 0 to world_size - 1, set together with world_size; -1 (default): from the environment or
                   the launcher */
  int32_t world_size; /**< 1 or more, set together with rank; -1 (default): from the environment or the
                         launcher */
  int32_t local_rank; /**< rank on this host; -1 (default): from the environment, or derived */
  int32_t port;       /**< 1 to 65535; 0 (default): DSC_PORT, MASTER_PORT, or 29500 */
  int32_t device; /**< CUDA's number of the GPU to bind, in this process; -1 (default): that of the current
                     CUDA context; without a context DSC_BACKEND_DEVICE chooses by local_rank, and
                     DSC_BACKEND_AUTO binds none */
  int32_t init_timeout_ms; /**< deadline of this call in milliseconds, 1 or more; default 300,000 */
  int32_t timeout_ms; /**< deadline of every operation in milliseconds, 1 or more; default 300,000; inherited
                         by groups */
  int32_t stall_timeout_ms; /**< if a process has not run for this many milliseconds, its groups fail; 0:
                               never; default 30,000 */
  int32_t progress_thread;  /**< 1 (default): a library thread drives operations in the background; 0: the
                               program calls dsc_comm_progress() instead; may differ between ranks */
  int32_t rank_per_thread;  /**< 1: this process has several ranks, one call per rank; default 0. With 1, a
                               rank that is stuck in a user-defined operation (op.h) cannot be abandoned */
  int32_t require_existing; /**< 1: return the existing world, never create one, and ignore other options and
                               the environment; default 0 */
  int32_t reserved;         /**< must be 0 */
} dsc_init_options_t;

/**
 * @brief Fills options with their defaults.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_init_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG if options is NULL or struct_size is smaller than that of the first
 * release
 * @since 0.1
 */
DSC_API dsc_result_t dsc_init_options_init(dsc_init_options_t* options, size_t struct_size);

/**
 * @brief Joins all ranks of the job into one world.
 *
 * Rank and size come from, in this order: the options; RANK and WORLD_SIZE; PMIx; the variables of another
 * launcher; otherwise the process is a world of one rank. Ranks of one host find each other without a
 * network. Ranks of several hosts connect to a store that rank 0 serves. Its address is MASTER_ADDR and
 * MASTER_PORT, or rank 0 publishes it through PMIx, torchrun's agent, a file or the store of the options.
 *
 * A world is bound to one GPU per rank, or to none. With DSC_BACKEND_DEVICE or a device in the options, the
 * call binds it or fails on all ranks. With DSC_BACKEND_AUTO it is bound if every rank already has a current
 * CUDA context and NCCL is available; otherwise the log says why not.
 *
 * A second call with NULL or matching options returns the existing world. Options at their defaults are not
 * compared; another value is DSC_ERR_STATE, naming the first option that differs. A call after dsc_finalize()
 * creates a new world. With rank_per_thread every call creates a new rank; only its handle and, on the
 * calling thread, dsc_world() refer to it.
 *
 * @param[in] options NULL: all defaults
 * @param[out] world the world; stays NULL on failure
 *
 * Collective: yes, every rank of the job. Blocking: until all ranks have called it or init_timeout_ms passed.
 * Ownership: options are read during the call only; the world is valid until dsc_finalize() or
 * dsc_comm_destroy(). Threads: any; a call waits for one that already runs in this process (without
 * rank_per_thread).
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_STATE; DSC_ERR_CONFIG (impossible or differing settings, on
 * all ranks); DSC_ERR_TIMEOUT (naming the missing ranks); DSC_ERR_ADDR_IN_USE (another job uses the name);
 * DSC_ERR_UNSUPPORTED; DSC_ERR_NO_BACKEND; DSC_ERR_PEER_DEAD; DSC_ERR_NOSPACE; DSC_ERR_AUTH (token missing or
 * different); DSC_ERR_PROTOCOL; DSC_ERR_VERSION; DSC_ERR_SYSTEM; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_init_distributed(const dsc_init_options_t* options, dsc_comm_t** world);

/**
 * @brief Reports as JSON what dsc_init_distributed() would do here, without connecting to other ranks.
 *
 * The text is one JSON object; docs/bootstrap.md describes it. "sources": every source of rank and size in
 * order of precedence, the variables that it reads, and why it is used or not. "start": rank, sizes, address,
 * port and job id with the source of each, how the ranks would connect, and what else to set ("advice"); null
 * if rank or address could not be found. "error": code and text of the error that dsc_init_distributed()
 * would return before it contacts other ranks, or null.
 *
 * @param[in] options as for dsc_init_distributed(); NULL: all defaults
 * @param[out] text the JSON; may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Collective: no. Blocking: up to 10 s if a PMIx server or a name server must be asked. Threads: any.
 * @return DSC_OK or DSC_TRUNCATED, also when the report has an error; DSC_ERR_INVALID_ARG;
 * DSC_ERR_UNSUPPORTED; DSC_ERR_NOMEM; DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_launch_json(const dsc_init_options_t* options, char* text, size_t capacity,
                                     size_t* needed);

/**
 * @brief Returns the world of this process, or of this thread if it created one with rank_per_thread.
 * @param[out] world [existing] the world; set to NULL on failure
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_STATE before dsc_init_distributed() and after dsc_finalize(); DSC_ERR_INVALID_ARG;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_world(dsc_comm_t** world);

/**
 * @brief Returns whether dsc_world() would return a world.
 * @param[out] initialized 1 or 0
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK or DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_is_initialized(int32_t* initialized);

/**
 * @brief Ends the world that dsc_world() returns: waits for all ranks, then releases it.
 *
 * If the world failed before, the call waits for the ranks of the communicator that dsc_comm_shrink() made
 * from it, if this still exists, and otherwise for no rank. Handles of its groups stay valid, but every
 * operation on them returns DSC_ERR_STATE; batches that are open on them never run.
 *
 * A rank in this call no longer takes part in operations of the world's groups: ranks that wait for it there
 * get DSC_ERR_PEER_LEFT at once, and this rank gets DSC_ERR_STATE. A group in which operations of this rank
 * still run is not affected.
 *
 * Collective: yes. Blocking: until all ranks called it, or the world's time-out. Threads: any.
 * @return DSC_OK; DSC_ERR_STATE without a world or if a batch is open on it, and DSC_ERR_BUSY if another
 * thread is in a call on it (in both cases nothing happened); DSC_ERR_TIMEOUT, DSC_ERR_PEER_DEAD and similar
 * errors if not all ranks have called it: the world is released nevertheless; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_finalize(void);

#ifdef __cplusplus
}
#endif

#endif /* DSC_INIT_H */
