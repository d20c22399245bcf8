/**
 * @file join.h
 * @brief Uneven inputs: ranks that have run out of batches contribute zeros to the others' reductions.
 */
#ifndef DSC_JOIN_H
#define DSC_JOIN_H

#include <dsc/reducer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Joins ranks with different numbers of batches. Thread-safety: one thread at a time, destroy from
 * any. */
typedef struct dsc_join dsc_join_t;

/** @brief Options of dsc_join_create(). Fill with dsc_join_options_init(). */
typedef struct dsc_join_options {
  size_t struct_size;         /**< size of this struct as the caller compiled it */
  int32_t divide_by_initial;  /**< 1 (default): means are over all ranks, and those without batches contribute
                                 zeros; 0: over the ranks that still have batches */
  int32_t throw_on_early_end; /**< 1: as soon as a rank has no more batches, all ranks get DSC_ERR_STATE;
                                 default 0 */
} dsc_join_options_t;

/**
 * @brief Fills options with their defaults.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_join_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_join_options_init(dsc_join_options_t* options, size_t struct_size);

/**
 * @brief Puts reducers under a join.
 *
 * From then on dsc_bucket_reducer_begin() of a reduced iteration, and dsc_bucket_reducer_sync_buffers(), are
 * collective: they announce the next operations to the ranks that have run out of batches. Such a rank calls
 * dsc_join_finish(). The algorithm is that of PyTorch's Join context manager.
 *
 * @param[in] comm communicator of the reducers
 * @param[in] reducers n_reducers reducers that were made from it, in the same order on all ranks
 * @param[in] n_reducers 1 or more
 * @param[in] options NULL: defaults; the same on all ranks
 * @param[out] join the new join; NULL on failure
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: the reducers are kept alive. Threads:
 * one at a time per communicator.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_STATE on all ranks if a reducer is inside an iteration or
 * under another join on any rank; the text names this rank; DSC_ERR_CONFIG when options differ between ranks;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_join_create(dsc_comm_t* comm, dsc_bucket_reducer_t* const* reducers,
                                     size_t n_reducers, const dsc_join_options_t* options, dsc_join_t** join);

/**
 * @brief Declares that this rank has no more batches, and takes part in the others' operations until no rank
 * has any.
 *
 * Then the tensors of the last rank to finish (the highest rank if several did) are copied to all ranks, and
 * the reducers leave the join.
 *
 * @param[in] join join
 * @param[in] params n_params tensors to make equal at the end, usually the parameters; as for
 * dsc_broadcast_coalesced(). NULL with n_params 0: none
 * @param[in] n_params number of tensors, the same on all ranks
 * @param[out] last_rank the last rank to finish; may be NULL
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: nothing is kept. Threads: one at a
 * time per join.
 * @return DSC_OK; DSC_ERR_STATE when the join has ended already, with throw_on_early_end, or when a reducer
 * is inside an iteration; DSC_ERR_MISMATCH when the other ranks call different operations;
 * DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_join_finish(dsc_join_t* join, const dsc_tensor_t* params, size_t n_params,
                                     int32_t* last_rank);

/**
 * @brief Releases a join; its reducers are no longer under it.
 * @param[in] join join; NULL does nothing
 *
 * Collective: no, but the others notice if it was not finished. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_join_destroy(dsc_join_t* join);

#ifdef __cplusplus
}
#endif

#endif /* DSC_JOIN_H */
