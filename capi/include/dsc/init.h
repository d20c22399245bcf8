/**
 * @file init.h
 * @brief Start-up: from "I was started by something" to a working group of ranks.
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
  const char* init_method; /**< "env://", "pmix://" (a PMIx server and nobody else), "tcp://HOST:PORT" or
                              "file:///PATH" (on a file system that all hosts share); NULL: env:// */
  const char* job_id;      /**< keeps jobs on one host apart; NULL: from the launcher, or none */
  const char* token;       /**< secret of a job of several hosts, 64 hexadecimal digits; NULL: DSC_TOKEN_FD,
                              DSC_TOKEN_FILE, DSC_TOKEN, or none */
  dsc_store_t* store;      /**< through which rank 0 tells the others where it listens, if the job has several
                              hosts: a store of the program's own (dsc_store_from_callbacks()) or any other; kept
                              by the call. NULL (default): none */
  const dsc_setting_t*
      settings;          /**< of backends: "nccl.library" and "cuda.library" are files of NCCL's and of
                            CUDA's driver library, looked at when a device is bound; one for all ranks
                            of a process. Without them DSC_NCCL_LIBRARY and DSC_CUDA_LIBRARY, the copy
                            of NCCL that this process has loaded, or where docs/gpu.md says */
  size_t n_settings;     /**< entries of settings; default 0 */
  dsc_backend_t backend; /**< default DSC_BACKEND_AUTO */
  dsc_sources_t sources; /**< which sources of rank and size may be used, bits of ::dsc_source; 0
                            (default): all */
  int32_t rank; /**< 0 to world_size - 1, given together with world_size; -1 (default): from the environment
                   or the launcher */
  int32_t world_size;      /**< 1 or more, given together with rank; -1 (default): from the environment or the
                              launcher */
  int32_t local_rank;      /**< rank on this host; -1 (default): from the environment, or derived */
  int32_t port;            /**< 1 to 65535; 0 (default): DSC_PORT, MASTER_PORT, or 29500 */
  int32_t device;          /**< number of the GPU to bind, as CUDA counts in this process; -1 (default): with
                              DSC_BACKEND_DEVICE that of the current context, or else by local_rank; with
                              DSC_BACKEND_AUTO that of the current context, or none */
  int32_t init_timeout_ms; /**< deadline of this call in milliseconds, 1 or more; default 300,000 */
  int32_t timeout_ms; /**< deadline of every operation in milliseconds, 1 or more; default 300,000; inherited
                         by groups */
  int32_t stall_timeout_ms; /**< a process that has not run for this many milliseconds fails its groups; 0:
                               never; default 30,000 */
  int32_t
      progress_thread;      /**< 1 (default): a thread of the library drives operations that nobody waits for;
                               0: none does, and the program calls dsc_comm_progress(); may differ between ranks */
  int32_t rank_per_thread;  /**< 1: several ranks live in this process, one call per rank; default 0. A rank
                               that is stuck in a user-defined operation (op.h) cannot be given up then */
  int32_t require_existing; /**< 1: return the world that exists, never make one, and look neither at other
                               options nor at the environment; default 0 */
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
 * launcher; otherwise the process is a world of one rank. Ranks of one host meet without a network. Those of
 * several hosts meet at a store that rank 0 serves at MASTER_ADDR and MASTER_PORT, or wherever it says
 * through PMIx, torchrun's agent, a file or the store of the options.
 *
 * A world is bound to one GPU per rank, or to none. With DSC_BACKEND_DEVICE or a device in the options it is
 * bound or the call fails on all ranks; with DSC_BACKEND_AUTO it is bound if every rank works in a CUDA
 * context already and NCCL can be had, and the log says why not.
 *
 * A second call with NULL or options that fit returns the world that exists: an option at its default is not
 * compared. Another value is DSC_ERR_STATE, naming the first option that differs. A call after dsc_finalize()
 * makes a new world. With rank_per_thread every call makes a new rank, which only its handle and, on the
 * calling thread, dsc_world() reach.
 *
 * @param[in] options NULL: all defaults
 * @param[out] world the world; stays NULL on failure
 *
 * Collective: yes, every rank of the job. Blocking: until all ranks have called it or init_timeout_ms passed.
 * Ownership: options are read during the call only; the world lives until dsc_finalize() or
 * dsc_comm_destroy(). Threads: any; a call while another one runs on the same process (without
 * rank_per_thread) waits for it.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_STATE; DSC_ERR_CONFIG (settings that are impossible or differ,
 * on all ranks); DSC_ERR_TIMEOUT (naming the ranks that did not come); DSC_ERR_ADDR_IN_USE (another job holds
 * the name); DSC_ERR_UNSUPPORTED; DSC_ERR_NO_BACKEND; DSC_ERR_PEER_DEAD; DSC_ERR_NOSPACE; DSC_ERR_AUTH (no
 * token, or another one); DSC_ERR_PROTOCOL; DSC_ERR_VERSION; DSC_ERR_SYSTEM; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_init_distributed(const dsc_init_options_t* options, dsc_comm_t** world);

/**
 * @brief Says what dsc_init_distributed() would do here, without joining anybody.
 *
 * The text is one JSON object; docs/bootstrap.md describes it. "sources": every source of rank and size in
 * order of precedence, the variables that it looks at, and why it counts or not. "start": rank, sizes,
 * address, port and job id, and who said each, how the ranks would meet, and what to set besides ("advice");
 * null if rank or address could not be found. "error": code and text of the error that
 * dsc_init_distributed() would return before it looks for the other ranks, or null.
 *
 * @param[in] options as for dsc_init_distributed(); NULL: all defaults
 * @param[out] text the JSON; may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed needed bytes, the final zero included
 *
 * Collective: no. Blocking: up to 10 s for a PMIx server or a name server, where one has to be asked.
 * Threads: any.
 * @return DSC_OK or DSC_TRUNCATED, also when the report has an error; DSC_ERR_INVALID_ARG;
 * DSC_ERR_UNSUPPORTED; DSC_ERR_NOMEM; DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_launch_json(const dsc_init_options_t* options, char* text, size_t capacity,
                                     size_t* needed);

/**
 * @brief Gives the world of this process, or of this thread if it made one with rank_per_thread.
 * @param[out] world the world; set to NULL on failure
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_STATE before dsc_init_distributed() and after dsc_finalize(); DSC_ERR_INVALID_ARG;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_world(dsc_comm_t** world);

/**
 * @brief Says whether dsc_world() has a world to give.
 * @param[out] initialized 1 or 0
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK or DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_is_initialized(int32_t* initialized);

/**
 * @brief Ends the world that dsc_world() gives: waits for all ranks, then releases it.
 *
 * If the world failed before, it waits for the ranks of what dsc_comm_shrink() made of it, if that is still
 * there, and else for nobody. Its groups stay valid as handles but every operation on them is
 * DSC_ERR_STATE; batches that are open on them never run.
 *
 * A rank in this call takes part in no further operation of the world's other groups: ranks that wait for it
 * there get DSC_ERR_PEER_LEFT at once, and this rank gets DSC_ERR_STATE there. A group in which operations of
 * this rank still run is left alone.
 *
 * Collective: yes. Blocking: until all ranks called it, or the world's time-out. Threads: any.
 * @return DSC_OK; DSC_ERR_STATE if there is no world, or if a batch is open on it, and DSC_ERR_BUSY if
 * another thread is in a call on it (nothing happened then); DSC_ERR_TIMEOUT, DSC_ERR_PEER_DEAD and the like
 * if not all ranks came: the world is released all the same; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_finalize(void);

#ifdef __cplusplus
}
#endif

#endif /* DSC_INIT_H */
