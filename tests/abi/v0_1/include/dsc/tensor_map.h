/**
 * @file tensor_map.h
 * @brief The exchanges of tensor, sequence and context parallelism: each with a forward and a backward step.
 *
 * The ranks of a communicator divide a tensor along one dimension, and layers need now the parts and now the
 * whole. The mappings are those of Megatron-LM (tensor_parallel/mappings.py, commit d98e8a6), with one name
 * for both directions, for any dimension, and for parts of different sizes.
 *
 * **Shape.** A tensor is seen as [outer, dim, inner] in row-major order: dim is the size of the dimension
 * that the ranks divide, outer the product of the sizes before it and inner of those after it. For the first
 * dimension outer is 1, for the last one inner is 1; a column-major tensor is a row-major one with its
 * dimensions reversed. All sizes are those of the **whole** tensor, so they are equal on all ranks and in
 * both directions. Rank r has part r of dim: the whole is [outer, dim, inner], a part [outer, dim/n, inner].
 * Nothing has to be transposed: parts that are columns of the whole are packed while they move, or read and
 * written where they are.
 *
 * | mapping | forward | backward |
 * |---|---|---|
 * | COPY | whole -> whole: identity | whole -> whole: sum over the ranks |
 * | REDUCE | whole -> whole: sum over the ranks | whole -> whole: identity |
 * | SCATTER | whole -> part: the rank's own slice | part -> whole: all-gather |
 * | GATHER | part -> whole: all-gather | whole -> part: the rank's own slice |
 * | GATHER_REDUCE | part -> whole: all-gather | whole -> part: sum of the rank's slice (reduce-scatter) |
 * | REDUCE_SCATTER | whole -> part: sum of the rank's slice | part -> whole: all-gather |
 * | ALL_TO_ALL | part p of dim goes to rank p | the reverse |
 * | SEQUENCE_TO_HIDDEN | [outer/n, dim, inner] -> [outer, dim/n, inner] | the reverse |
 * | HIDDEN_TO_SEQUENCE | [outer, dim/n, inner] -> [outer/n, dim, inner] | the reverse |
 *
 * Megatron's names for them: COPY is copy_to_tensor_model_parallel_region and REDUCE reduce_from_...; SCATTER
 * is scatter_to_tensor_model_parallel_region on the last and scatter_to_sequence_parallel_region on the first
 * dimension; GATHER is gather_from_tensor_model_parallel_region on the last one, and
 * gather_from_sequence_parallel_region with tensor_parallel_output_grad=False on the first; GATHER_REDUCE is
 * gather_from_sequence_parallel_region on the first and all_gather_last_dim_from_tensor_parallel_region on
 * the last one; REDUCE_SCATTER is reduce_scatter_to_sequence_parallel_region on the first and
 * reduce_scatter_last_dim_to_tensor_parallel_region on the last one; the others are all_to_all,
 * all_to_all_sp2hp and all_to_all_hp2sp. DeepSpeed-Ulysses exchanges sequence and heads in the same way.
 */
#ifndef DSC_TENSOR_MAP_H
#define DSC_TENSOR_MAP_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief One step of a mapping, with equal parts.
 *
 * Sums are taken in rank order as in collectives.h. Memory of dsc_mem_alloc() is read and written in place on
 * one host. Between hosts, parts that are columns (outer above 1) are packed in memory of the library: up to
 * the size of send and recv together, for its time. On devices kernels pack them in the order of the stream.
 *
 * A step that is an identity or a slice does not communicate: it copies, or does nothing if the result is
 * there already. It is no operation of the communicator: it is refused in a batch (DSC_ERR_STATE), and on a
 * device, where it is put on the stream itself, with work (DSC_ERR_UNSUPPORTED). In a group of one rank recv
 * may always be send.
 *
 * @param[in] comm the ranks that divide the tensor
 * @param[in] mapping a ::dsc_tensor_mapping
 * @param[in] direction a ::dsc_map_direction
 * @param[in] send what goes in, in the shape of the table above
 * @param[out] recv what comes out. In place (recv == send): sums and identities. With outer 1 also an
 * all-gather with send == recv + own part, a reduce-scatter and a slice with recv == send + own part.
 * Otherwise in and out must not overlap
 * @param[in] outer product of the sizes before the dimension; for SEQUENCE_TO_HIDDEN and HIDDEN_TO_SEQUENCE
 * the size of the other divided dimension, then a multiple of the number of ranks
 * @param[in] dim size of the divided dimension, a multiple of the number of ranks (any for COPY and REDUCE)
 * @param[in] inner product of the sizes after it
 * @param[in] dtype a ::dsc_dtype
 * @param[in] stream see collectives.h
 * @param[out] work NULL to block, else the new work object; see collectives.h
 *
 * Collective: yes, all ranks give the same mapping step and sizes (DSC_ERR_MISMATCH naming the shapes, before
 * anything is written); identities and slices are local. Blocking, ownership, failures: see the head of
 * collectives.h. Threads: one at a time per communicator.
 * @return as collectives.h says; DSC_ERR_INVALID_ARG also for a size that the ranks do not divide;
 * DSC_ERR_UNSUPPORTED on a device if libdsc was built without kernels; DSC_ERR_STATE if the kernels would
 * have to be loaded during a stream capture
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tensor_map(dsc_comm_t* comm, dsc_tensor_mapping_t mapping,
                                    dsc_map_direction_t direction, const void* send, void* recv, size_t outer,
                                    size_t dim, size_t inner, dsc_dtype_t dtype, void* stream,
                                    dsc_work_t** work);

/**
 * @brief One chunk of a step of a mapping, so that computation overlaps with it.
 *
 * A gather of several chunks is started at once, with a work object for each; the caller multiplies a chunk
 * as soon as its work is complete, while the next ones travel. A reduce-scatter starts each chunk when it has
 * been computed. Together the chunks do what dsc_tensor_map() does. With outer above 1, chunk c is rows of
 * outer and contiguous in both buffers. With outer 1 it is a range of every rank's part: in the whole, one
 * piece of each rank's part. Ranges are those of dsc_split_range().
 *
 * @param[in] comm the ranks that divide the tensor
 * @param[in] mapping a ::dsc_tensor_mapping; not ALL_TO_ALL, SEQUENCE_TO_HIDDEN or HIDDEN_TO_SEQUENCE
 * @param[in] direction a ::dsc_map_direction
 * @param[in] send the whole buffer, of which this call reads its chunk; see dsc_tensor_map()
 * @param[out] recv the whole buffer, of which this call writes its chunk
 * @param[in] outer see dsc_tensor_map()
 * @param[in] dim see dsc_tensor_map()
 * @param[in] inner see dsc_tensor_map()
 * @param[in] chunk 0 to chunks - 1; all ranks take the chunks in the same order, each once
 * @param[in] chunks number of chunks, 1 or more; may exceed the elements, then some chunks are empty
 * @param[in] dtype a ::dsc_dtype
 * @param[in] stream see collectives.h
 * @param[out] work NULL to block, else the new work object
 *
 * Collective: yes. Blocking, ownership: as dsc_tensor_map(); a chunk's memory is final when its work is
 * complete, whatever happens to later chunks. Threads: one at a time per communicator.
 * @return as dsc_tensor_map()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tensor_map_chunk(dsc_comm_t* comm, dsc_tensor_mapping_t mapping,
                                          dsc_map_direction_t direction, const void* send, void* recv,
                                          size_t outer, size_t dim, size_t inner, size_t chunk, size_t chunks,
                                          dsc_dtype_t dtype, void* stream, dsc_work_t** work);

/**
 * @brief One step of a mapping, with parts of any sizes.
 *
 * Like dsc_tensor_map(), but part r of dim has parts[r] elements, which may be 0.
 *
 * @param[in] comm the ranks that divide the tensor
 * @param[in] mapping a ::dsc_tensor_mapping
 * @param[in] direction a ::dsc_map_direction
 * @param[in] send what goes in
 * @param[out] recv what comes out; see dsc_tensor_map()
 * @param[in] outer product of the sizes before the dimension. For SEQUENCE_TO_HIDDEN and
 * HIDDEN_TO_SEQUENCE the product of the sizes between the first dimension and dim (often 1): the first one is
 * divided by other_parts
 * @param[in] parts one size per rank: how dim is divided; equal on all ranks. For ALL_TO_ALL: what this rank
 * sends to each rank in the forward direction
 * @param[in] other_parts for SEQUENCE_TO_HIDDEN and HIDDEN_TO_SEQUENCE one size per rank: how the first
 * dimension is divided, equal on all ranks; for ALL_TO_ALL what this rank receives from each rank in the
 * forward direction; NULL for all others
 * @param[in] inner product of the sizes after dim
 * @param[in] dtype a ::dsc_dtype
 * @param[in] stream see collectives.h
 * @param[out] work NULL to block, else the new work object
 *
 * Collective: yes. Blocking, ownership: as dsc_tensor_map(). Threads: one at a time per communicator.
 * @return as dsc_tensor_map()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tensor_map_v(dsc_comm_t* comm, dsc_tensor_mapping_t mapping,
                                      dsc_map_direction_t direction, const void* send, void* recv,
                                      size_t outer, const size_t* parts, const size_t* other_parts,
                                      size_t inner, dsc_dtype_t dtype, void* stream, dsc_work_t** work);

/**
 * @brief Divides a range as evenly as possible: the first count % parts parts are one longer.
 *
 * With a multiple of parts this is Megatron's vocabulary range, [part x count / parts, (part + 1) x count /
 * parts); otherwise it is the division of numpy.array_split.
 *
 * @param[in] count elements of the range
 * @param[in] parts 1 or more
 * @param[in] part 0 to parts - 1
 * @param[out] begin first element of the part
 * @param[out] length elements of the part, may be 0
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_split_range(size_t count, size_t parts, size_t part, size_t* begin, size_t* length);

#ifdef __cplusplus
}
#endif

#endif /* DSC_TENSOR_MAP_H */
