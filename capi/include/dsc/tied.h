/**
 * @file tied.h
 * @brief Tied layers: weights that several stages of a pipeline share, such as the embedding of the first and
 * last stage.
 *
 * Each stage keeps a copy. The copies are equal at first and stay equal, because every stage updates its copy
 * with the sum of all stages' gradients.
 */
#ifndef DSC_TIED_H
#define DSC_TIED_H

#include <dsc/comm.h>
#include <dsc/tensor.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief The tied layers of a pipeline, on one rank. Thread-safety: one thread at a time for reduce; any
 * thread for the rest. */
typedef struct dsc_tied_layers dsc_tied_layers_t;

/** @brief Layers that share their weights. Set the struct_size of every element of a list, always to the same
 * value. */
typedef struct dsc_tied_key {
  size_t struct_size; /**< size of this struct as the caller compiled it; needed in every element */
  const char* key;    /**< name of the layers, one line; unique in the list */
  const int32_t*
      stages; /**< [n_stages] stages that hold the layers, in any order, each once; see dsc_tied_plan() */
  const dsc_tensor_t* weights; /**< [n_weights] this rank's copy; NULL if its stage holds none */
  size_t n_stages;             /**< 1 or more */
  size_t n_weights; /**< entries of weights; 0 if this rank's stage holds none, otherwise 1 or more */
} dsc_tied_key_t;

/** @brief Options of dsc_tied_layers_create(), the same on all ranks. Fill with
 * dsc_tied_layers_options_init(). */
typedef struct dsc_tied_layers_options {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  const int32_t*
      ranks; /**< [n_pipelines * n_stages] rank of stage s of pipeline p at p * n_stages + s, each rank of the
                communicator once; NULL (default): one pipeline, and rank s is stage s */
  size_t n_stages;    /**< stages of a pipeline; 0 without ranks */
  size_t n_pipelines; /**< number of pipelines, which are independent here; 0 without ranks */
  int32_t sync;       /**< 1 (default): copy each key's weights from its first stage to the others */
  int32_t reserved;   /**< 0 */
} dsc_tied_layers_options_t;

/**
 * @brief Finds which stages hold which key, without communication.
 * @param[in] keys [n_entries] key of each entry; an entry is a layer that shares weights
 * @param[in] layers [n_entries] layer of each entry, below boundaries[n_parts]; a layer has each key at most
 * once
 * @param[in] n_entries entries of keys and layers, 0 or more
 * @param[in] boundaries [n_parts + 1] entries, as written by dsc_pipe_partition()
 * @param[in] n_parts 1 to 2^31 - 1
 * @param[out] entries [n_entries] entries, of which n_keys are written: the first entry with each key, in the
 * order of the keys' bytes
 * @param[out] starts [n_entries + 1] entries, of which n_keys + 1 are written: key k is on stages[starts[k]]
 * to stages[starts[k + 1] - 1]
 * @param[out] stages [n_entries] entries, ascending for each key. The first stage of a key is the owner, the
 * only stage that counts the weights in a norm
 * @param[out] n_keys number of different keys
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_NOMEM
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tied_plan(const char* const* keys, const size_t* layers, size_t n_entries,
                                   const size_t* boundaries, size_t n_parts, size_t* entries, size_t* starts,
                                   int32_t* stages, size_t* n_keys);

/**
 * @brief Fills options with their defaults: one pipeline, rank s is stage s, weights are copied.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_tied_layers_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tied_layers_options_init(dsc_tied_layers_options_t* options, size_t struct_size);

/**
 * @brief Ties layers: checks that all ranks agree, creates a group for each set of stages that share weights,
 * and copies each key's weights from its first stage to the others.
 *
 * Every rank of comm lists every key, in any order, also the keys that its stage does not hold. Groups are
 * created in the order of the keys' bytes. Keys with the same stages share a group; a key of one stage needs
 * none. The weights are all in host memory, or all on the device that comm is bound to.
 *
 * @param[in] comm communicator; the object creates its own groups from it
 * @param[in] keys all keys
 * @param[in] n_keys 0 or more
 * @param[in] options NULL: defaults
 * @param[out] tied the new object; NULL on failure
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: descriptions are copied; data is used
 * during the call only. Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_INVALID_ARG and DSC_ERR_UNSUPPORTED naming the rank, on all ranks; DSC_ERR_MISMATCH
 * on all ranks, naming the ranks that differ in keys, stages, options, or the weights of a key; comm keeps
 * working; DSC_ERR_NOSPACE; DSC_ERR_NOMEM; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tied_layers_create(dsc_comm_t* comm, const dsc_tied_key_t* keys, size_t n_keys,
                                            const dsc_tied_layers_options_t* options,
                                            dsc_tied_layers_t** tied);

/**
 * @brief Sums the gradients of tied weights over the stages that hold them, in place, without division.
 *
 * Inputs are added in the order of the stages, so all stages get the same bits. Sets of stages are reduced in
 * the order of their first keys, with all gradients of one set in one pass. Call it once per batch, for
 * example from reduce_tied_grads of dsc_pipe_run(), before gradients are reduced over replicas.
 *
 * @param[in] tied tied layers
 * @param[in] grads one for each weight of this rank, in the order of the keys and weights that this rank
 * passed at creation. Counts are those of the weights; types are the same on all stages; all are in one kind
 * of memory and do not overlap
 * @param[in] n_grads number of this rank's weights, 0 or more
 * @param[in] stream for device memory, NULL: the default stream; must be NULL for host memory
 *
 * Collective: yes, over the ranks of a pipeline that share weights. Blocking: until the sums are complete; on
 * a device: no, and the next call reports a later failure. Ownership: nothing is kept; on a device the
 * data of grads must stay valid until the stream has completed the call's work. Threads: one at a time per
 * tied layers.
 * @return DSC_OK; DSC_ERR_INVALID_ARG and DSC_ERR_UNSUPPORTED, on this rank alone; DSC_ERR_BUSY;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED; and the failures of an operation, after which other ranks get the cause
 * or DSC_ERR_REVOKED, and the object can only be destroyed
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tied_layers_reduce(dsc_tied_layers_t* tied, const dsc_tensor_t* grads,
                                            size_t n_grads, void* stream);

/**
 * @brief Returns the stage that owns a key's weights, and whether this rank counts them in a norm.
 * @param[in] tied tied layers
 * @param[in] key any key, also one that this stage does not hold
 * @param[out] stage the first stage that holds it
 * @param[out] is_counted 1 on the ranks of that stage, otherwise 0; so a norm over all stages counts each
 * weight once; may be NULL
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for an unknown key (the error lists the known ones);
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tied_layers_owner(const dsc_tied_layers_t* tied, const char* key, int32_t* stage,
                                           int32_t* is_counted);

/**
 * @brief Releases tied layers.
 * @param[in] tied tied layers; NULL does nothing
 *
 * Collective: no; other ranks that wait in a sum get DSC_ERR_PEER_LEFT. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tied_layers_destroy(dsc_tied_layers_t* tied);

#ifdef __cplusplus
}
#endif

#endif /* DSC_TIED_H */
