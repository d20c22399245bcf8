/**
 * @file broadcast_data.h
 * @brief Broadcasts named tensors, such as a batch that the first tensor-parallel rank has loaded.
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
 * @brief Copies the type and shapes of the root's tensors to all ranks. They can then allocate the tensors
 * and receive them with dsc_broadcast_coalesced(). Both calls together are Megatron-LM's broadcast_data
 * (core/tensor_parallel/data.py).
 *
 * All ranks pass the same names (the keys) in the same order. On ranks other than the root the call fills in
 * dtype, ndim, shape and count of each tensor; shape then points into shapes. The caller sets data, and
 * device if it is not -1, and passes the list on:
 *
 *     dsc_broadcast_shapes(comm, tensors, n, DSC_DTYPE_I64, 0, shapes);
 *     for (size_t i = 0; rank != 0 && i < n; ++i) tensors[i].data = malloc(8 * tensors[i].count);
 *     dsc_broadcast_coalesced(comm, tensors, n, 0, SIZE_MAX);
 *
 * A buffer_bytes of SIZE_MAX sends everything in one broadcast. Sizes may be 0; Megatron-LM, in contrast,
 * ends a shape at the first 0 and supports four dimensions. The root's tensors are checked before anything is
 * sent, also for dsc_broadcast_coalesced(); if they are wrong, all ranks get the root's error.
 *
 * @param[in] comm communicator
 * @param[in,out] tensors n_tensors descriptions with names. On the root they are complete, with data; dtype 0
 * means that the root has no tensor of that name, and then the call fails on all ranks; a tensor without
 * shape has one dimension. On other ranks only struct_size and name are read
 * @param[in] n_tensors number of tensors, 0 or more
 * @param[in] dtype element type of all tensors, the same on all ranks
 * @param[in] root rank that has the tensors
 * @param[out] shapes [n_tensors * 16] sizes, to which the call writes the shapes; may be NULL on the root,
 * which ignores it
 *
 * Collective: yes. Blocking: until the shapes have arrived. Ownership: afterwards tensors refer to shapes and
 * to their names; shapes must stay valid while tensors are used. Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_MISMATCH on all ranks if keys, dtype or root differ, naming the first difference;
 * DSC_ERR_INVALID_ARG, DSC_ERR_OVERFLOW or DSC_ERR_UNSUPPORTED on all ranks if a tensor of the root is
 * missing, has another type or more than 16 dimensions, has no data, is too large, or is on another device;
 * in these cases the communicator keeps working; DSC_ERR_INVALID_ARG for an argument of this rank alone;
 * DSC_ERR_STATE in a batch; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_broadcast_shapes(dsc_comm_t* comm, dsc_tensor_t* tensors, size_t n_tensors,
                                          dsc_dtype_t dtype, int32_t root, int64_t* shapes);

#ifdef __cplusplus
}
#endif

#endif /* DSC_BROADCAST_DATA_H */
