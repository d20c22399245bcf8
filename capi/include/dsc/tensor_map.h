/**
 * @file tensor_map.h
 * @brief The exchanges of tensor, sequence and context parallelism, each with a forward and a backward step.
 *
 * A tensor is split over the ranks of a communicator along one dimension. Some layers need the parts, others
 * the whole; the mappings convert between them. They are those of Megatron-LM (tensor_parallel/mappings.py,
 * commit d98e8a6), with one name for both directions, for any dimension, and for parts of different sizes.
 *
 * **Shape.** A tensor is viewed as [outer, dim, inner] in row-major order. dim is the size of the divided
 * dimension, outer the product of the sizes before it, and inner the product of the sizes after it. For the
 * first dimension outer is 1, for the last one inner is 1. A column-major tensor is a row-major one with
 * reversed dimensions. All sizes are those of the **whole** tensor, so they are equal on all ranks and in
 * both directions. Rank r has part r of dim: the whole is [outer, dim, inner], a part is [outer, dim/n,
 * inner]. The program need not transpose anything: parts that are columns of the whole are packed while they
 * move, or read and written in place.
 *
 * | mapping | forward | backward |
 * |---|---|---|
 * | COPY | whole -> whole: identity | whole -> whole: sum over the ranks |
 * | REDUCE | whole -> whole: sum over the ranks | whole -> whole: identity |
 * | SCATTER | whole -> part: the rank's own slice | part -> whole: all-gather |
 * | GATHER | part -> whole: all-gather | whole -> part: the rank's own slice |
 * | GATHER_REDUCE | part -> whole: all-gather | whole -> part: the rank's slice of the sum (reduce-scatter) |
 * | REDUCE_SCATTER | whole -> part: the rank's slice of the sum | part -> whole: all-gather |
 * | ALL_TO_ALL | part p of dim goes to rank p | the reverse |
 * | SEQUENCE_TO_HIDDEN | [outer/n, dim, inner] -> [outer, dim/n, inner] | the reverse |
 * | HIDDEN_TO_SEQUENCE | [outer, dim/n, inner] -> [outer/n, dim, inner] | the reverse |
 *
 * Megatron's names for them, by the dimension that is divided:
 *
 * | mapping | last dimension | first dimension |
 * |---|---|---|
 * | COPY | copy_to_tensor_model_parallel_region | the same |
 * | REDUCE | reduce_from_tensor_model_parallel_region | the same |
 * | SCATTER | scatter_to_tensor_model_parallel_region | scatter_to_sequence_parallel_region |
 * | GATHER | gather_from_tensor_model_parallel_region | gather_from_sequence_parallel_region (1) |
 * | GATHER_REDUCE | all_gather_last_dim_from_tensor_parallel_region | the same as GATHER (2) |
 * | REDUCE_SCATTER | reduce_scatter_last_dim_to_tensor_parallel_region | (3) |
 *
 * (1) with tensor_parallel_output_grad=False; (2) with tensor_parallel_output_grad=True;
 * (3) reduce_scatter_to_sequence_parallel_region. ALL_TO_ALL is all_to_all, SEQUENCE_TO_HIDDEN is
 * all_to_all_sp2hp, and HIDDEN_TO_SEQUENCE is all_to_all_hp2sp. DeepSpeed-Ulysses exchanges sequence and
 * heads in the same way.
 */
#ifndef DSC_TENSOR_MAP_H
#define DSC_TENSOR_MAP_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief A mapping and the shape of its tensor. Fill with dsc_tensor_map_options_init(). */
typedef struct dsc_tensor_map_options {
  size_t struct_size;  /**< size of this struct as the caller compiled it */
  const size_t* parts; /**< [size] one size per rank, which divide dim; equal on all ranks, which all give it;
                          a size may be 0. For ALL_TO_ALL: the sizes that this rank sends to each rank in the
                          forward direction. NULL (default): equal parts */
  const size_t* other_parts; /**< [size] only with parts. For SEQUENCE_TO_HIDDEN and HIDDEN_TO_SEQUENCE: one
                                size per rank, which divide the first dimension; equal on all ranks. For
                                ALL_TO_ALL: the sizes that this rank receives from each rank in the forward
                                direction. NULL (default) for all others */
  size_t outer;  /**< product of the sizes before the divided dimension; default 1. For SEQUENCE_TO_HIDDEN and
                    HIDDEN_TO_SEQUENCE without parts: the size of the other divided dimension, a multiple of
                    the number of ranks; with parts: the product of the sizes between the two */
  size_t dim;    /**< size of the divided dimension, a multiple of the number of ranks (any for COPY and
                    REDUCE); must be set. With parts: their sum, or unset */
  size_t inner;  /**< product of the sizes after the divided dimension; default 1 */
  size_t chunk;  /**< chunk that this call moves, 0 to chunks - 1; default 0. All ranks move the chunks in the
                    same order, each once */
  size_t chunks; /**< number of chunks of the step; default 1. If it exceeds the number of elements, some
                    chunks are empty. It must be 1 with parts, and for ALL_TO_ALL, SEQUENCE_TO_HIDDEN and
                    HIDDEN_TO_SEQUENCE */
  dsc_tensor_mapping_t mapping; /**< must be set */
  int32_t reserved;             /**< 0 */
} dsc_tensor_map_options_t;

/**
 * @brief Fills options with their defaults: one whole step with equal parts. mapping and dim are unset.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_tensor_map_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tensor_map_options_init(dsc_tensor_map_options_t* options, size_t struct_size);

/**
 * @brief Performs the forward step of a mapping: moves activations.
 *
 * Sums are taken in rank order, as in collectives.h. On one host, memory of dsc_mem_alloc() is read and
 * written in place. Between hosts, parts that are columns (outer above 1) are packed in memory of the
 * library, up to the size of send and recv together, until the operation ends. On devices kernels pack them
 * in stream order.
 *
 * A step that is an identity or a slice does not communicate: it copies, or does nothing if the result is
 * already in place. Such a step is not an operation of the communicator, so it is refused in a batch
 * (DSC_ERR_STATE). On a device it is queued on the given stream itself, and is refused with work
 * (DSC_ERR_UNSUPPORTED). In a group of one rank recv may always be send.
 *
 * **Chunks** let computation overlap with a step. For a gather, start all chunks at once, each with a work
 * object, and compute with a chunk as soon as its work is complete, while the next ones are still moving. For
 * a reduce-scatter, start each chunk when it has been computed. All chunks together have the result of one
 * whole step. With outer above 1, chunk c is a range of rows of outer, contiguous in both buffers. With outer
 * 1 it is a range of every rank's part, so in the whole it is one piece of each part. Ranges are those of
 * dsc_tensor_map_part(). A chunk's memory is final when its work is complete, whatever happens to later
 * chunks.
 *
 * @param[in] comm the ranks that divide the tensor
 * @param[in] options the mapping, the shape, the parts and the chunk
 * @param[in] send [input_count] input, in the shape of the table above; with chunks the whole buffer, of
 * which this call reads its chunk
 * @param[out] recv [output_count] output; with chunks the whole buffer. In place (recv == send): sums and
 * identities; with outer 1 also an all-gather if send is this rank's part of recv, and a reduce-scatter or
 * slice if recv is this rank's part of send. Otherwise send and recv must not overlap
 * @param[in] dtype element type, a ::dsc_dtype
 * @param[in] stream see collectives.h
 * @param[out] work the new work object, see collectives.h; may be NULL: the call blocks
 *
 * Collective: yes, all ranks pass the same step of a mapping and the same sizes (DSC_ERR_MISMATCH naming the
 * shapes, before anything is written); identities and slices are local. Blocking, failures: see the head of
 * collectives.h. Ownership: options and their lists are used during the call only; buffers as collectives.h
 * says. Threads: one at a time per communicator.
 * @return DSC_OK or a failure, as collectives.h says; DSC_ERR_INVALID_ARG also for a size that is not a
 * multiple of the number of ranks; DSC_ERR_UNSUPPORTED on a device if libdsc was built without kernels;
 * DSC_ERR_STATE if the kernels would have to be loaded during a stream capture
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tensor_map_forward(dsc_comm_t* comm, const dsc_tensor_map_options_t* options,
                                            const void* send, void* recv, dsc_dtype_t dtype, void* stream,
                                            dsc_work_t** work);

/**
 * @brief Performs the backward step of a mapping: moves gradients of activations.
 *
 * It takes the same options as dsc_tensor_map_forward() and follows the same rules.
 *
 * @param[in] comm the ranks that divide the tensor
 * @param[in] options as in the forward pass
 * @param[in] send [output_count] input, in the shape of the table above
 * @param[out] recv [input_count] output
 * @param[in] dtype element type, a ::dsc_dtype
 * @param[in] stream see collectives.h
 * @param[out] work the new work object, see collectives.h; may be NULL: the call blocks
 *
 * Collective: yes. Blocking, ownership: as dsc_tensor_map_forward(). Threads: one at a time per communicator.
 * @return as dsc_tensor_map_forward()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tensor_map_backward(dsc_comm_t* comm, const dsc_tensor_map_options_t* options,
                                             const void* send, void* recv, dsc_dtype_t dtype, void* stream,
                                             dsc_work_t** work);

/**
 * @brief Divides a range as evenly as possible: the first count % parts parts have one more element.
 *
 * If count is a multiple of parts, this is Megatron's vocabulary range, [part x count / parts, (part + 1) x
 * count / parts). Otherwise it is the division of numpy.array_split.
 *
 * @param[in] count elements of the range
 * @param[in] parts 1 or more
 * @param[in] part 0 to parts - 1
 * @param[out] start first element of the part
 * @param[out] length elements of the part, may be 0
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tensor_map_part(size_t count, size_t parts, size_t part, size_t* start,
                                         size_t* length);

#ifdef __cplusplus
}
#endif

#endif /* DSC_TENSOR_MAP_H */
