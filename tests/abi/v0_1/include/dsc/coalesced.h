/**
 * @file coalesced.h
 * @brief Operations on lists of tensors: compare, copy and reduce them together.
 */
#ifndef DSC_COALESCED_H
#define DSC_COALESCED_H

#include <dsc/tensor.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Checks that all ranks have the same parameters: number, types, counts and shapes.
 * @param[in] comm communicator
 * @param[in] params parameters; data is not used
 * @param[in] n_params number of parameters, 0 or more
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: nothing is kept. Threads: one at a
 * time per communicator.
 * @return DSC_OK; DSC_ERR_MISMATCH naming the ranks, the parameter and both descriptions, on all ranks (the
 * communicator keeps working); DSC_ERR_INVALID_ARG; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_verify_params(dsc_comm_t* comm, const dsc_tensor_t* params, size_t n_params);

/**
 * @brief Copies the root's tensors to all ranks, packed into buffers per type, two of them in flight.
 *
 * Tensors on a device are read and written after the work already queued on its default stream.
 *
 * @param[in] comm communicator
 * @param[in] tensors tensors with the same counts and types on all ranks, otherwise DSC_ERR_MISMATCH (for
 * host memory before any is written); data is read on the root and written on the other ranks
 * @param[in] n_tensors number of tensors, 0 or more; equal on all ranks
 * @param[in] root rank whose tensors are copied
 * @param[in] buffer_bytes a buffer is sent when it holds this many bytes; 0: 262,144,000 (250 MiB), as in
 * PyTorch. Equal on all ranks
 *
 * Collective: yes. Blocking: until all tensors are copied. Ownership: nothing is kept. Threads: one at a time
 * per communicator.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_MISMATCH; DSC_ERR_NOMEM; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_broadcast_coalesced(dsc_comm_t* comm, const dsc_tensor_t* tensors, size_t n_tensors,
                                             int32_t root, size_t buffer_bytes);

/**
 * @brief Reduces tensors over all ranks in place, packed into buffers per type, two of them in flight.
 *
 * It works like dsc_all_reduce() of each tensor, in fewer operations; in host memory the results have the
 * same bits. Use it for sums that remain after the backward pass, such as gradients of layer norms under
 * sequence parallelism and of tied embeddings. Tensors on a device are read and written after the work
 * already queued on its default stream. Lists that differ in length, types, counts or packing are
 * DSC_ERR_MISMATCH, for host memory before anything is written. The error has the lengths and first counts;
 * dsc_comm_verify_params() finds the tensor.
 *
 * @param[in] comm communicator
 * @param[in] tensors tensors with the same counts and types in the same order on all ranks; the result
 * replaces data. They must not overlap
 * @param[in] n_tensors number of tensors, 0 or more; equal on all ranks
 * @param[in] op reduction, see dsc_all_reduce(); it must support the type of each tensor
 * @param[in] buffer_bytes a buffer is sent when it holds this many bytes; 0: 262,144,000 (250 MiB), as in
 * PyTorch. Equal on all ranks
 *
 * Collective: yes. Blocking: until all results are complete. Ownership: nothing is kept. Threads: one at a
 * time per communicator.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_UNSUPPORTED for an operation that does not support a type;
 * DSC_ERR_MISMATCH; DSC_ERR_NOMEM; and the failures of an operation, after which the elements are
 * unspecified. The exception is DSC_ERR_NONFINITE: all tensors are reduced, and the index in the error counts
 * from the start of the packed buffer
 * @since 0.1
 */
DSC_API dsc_result_t dsc_all_reduce_coalesced(dsc_comm_t* comm, const dsc_tensor_t* tensors, size_t n_tensors,
                                              dsc_op_t op, size_t buffer_bytes);

#ifdef __cplusplus
}
#endif

#endif /* DSC_COALESCED_H */
