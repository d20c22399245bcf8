/**
 * @file broadcast_data.h
 * @brief Named tensors of one rank for all, such as a batch that the first tensor-parallel rank has loaded.
 */
#ifndef DSC_BROADCAST_DATA_H
#define DSC_BROADCAST_DATA_H

#include <dsc/comm.h>
#include <dsc/tensor.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Tells all ranks type and shapes of tensors that the root has, so that they can allocate them and
 * receive them by dsc_broadcast_coalesced(). Both together are Megatron-LM's broadcast_data
 * (core/tensor_parallel/data.py).
 *
 * All ranks give the same names, the keys, in the same order. Elsewhere than on the root the call fills
 * dtype, ndim, shape and count of each tensor, and shape then points into shapes; the caller sets data, and
 * device where that is not -1, and passes the same list on:
 *
 *     dsc_broadcast_shapes(comm, tensors, n, DSC_DTYPE_I64, 0, shapes);
 *     for (size_t i = 0; rank != 0 && i < n; ++i) tensors[i].data = malloc(8 * tensors[i].count);
 *     dsc_broadcast_coalesced(comm, tensors, n, 0, SIZE_MAX);
 *
 * A buffer_bytes of SIZE_MAX sends all in one broadcast. Sizes may be 0; Megatron-LM ends a shape at the
 * first 0 and takes four dimensions. The root's tensors are checked before anything is sent, including what
 * dsc_broadcast_coalesced() needs of them, and if they are wrong all ranks get the root's failure.
 *
 * @param[in] comm communicator
 * @param[in,out] tensors n_tensors descriptions with their names. On the root complete, with data; one whose
 * dtype is 0 says that the root has none of that name, which fails on all ranks; one without shape has one
 * dimension. Elsewhere only struct_size and name are read
 * @param[in] n_tensors number of tensors, 0 or more
 * @param[in] dtype element type that all of them must have, the same on all ranks
 * @param[in] root rank that has the tensors
 * @param[out] shapes room for n_tensors times 16 sizes, where the shapes of the ranks other than the root
 * are; ignored on the root, where it may be NULL
 *
 * Collective: yes. Blocking: until the shapes are there. Ownership: tensors refer to shapes and to their
 * names as long as the caller uses them. Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_MISMATCH on all ranks if keys, dtype or root differ, naming the first difference;
 * DSC_ERR_INVALID_ARG, DSC_ERR_OVERFLOW or DSC_ERR_UNSUPPORTED on all ranks if the root has no tensor of a
 * key, one of another type or of more than 16 dimensions, without data, too large, or on another device; in
 * these cases the communicator keeps working; DSC_ERR_INVALID_ARG for an argument of this rank alone;
 * DSC_ERR_STATE in a batch; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_broadcast_shapes(dsc_comm_t* comm, dsc_tensor_t* tensors, size_t n_tensors,
                                          dsc_dtype_t dtype, int32_t root, int64_t* shapes);

#ifdef __cplusplus
}
#endif

#endif /* DSC_BROADCAST_DATA_H */
