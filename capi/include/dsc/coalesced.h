/**
 * @file coalesced.h
 * @brief Operations on lists of tensors: they are compared, copied and reduced together.
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
 * Tensors on a device are read and written behind the work that is on its default stream.
 *
 * @param[in] comm communicator
 * @param[in] tensors same counts and types on all ranks, else DSC_ERR_MISMATCH, in host memory before any is
 * written; data is written on the other ranks
 * @param[in] n_tensors number of tensors, 0 or more; equal on all ranks
 * @param[in] root rank whose tensors are copied
 * @param[in] buffer_bytes a buffer is sent as soon as it holds so many bytes; 0: 262,144,000 (250 MiB), as
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
 * As dsc_all_reduce() of each tensor in fewer operations, with the same bits in memory of the host: for what
 * a model has left to sum after its backward pass, such as gradients of layer norms under sequence
 * parallelism and of tied embeddings. Tensors on a device are read and written behind the work that is on its
 * default stream. Lists that differ in length, types, counts or packing are DSC_ERR_MISMATCH, with lengths
 * and first counts, in host memory before anything is written; dsc_comm_verify_params() names the tensor.
 *
 * @param[in] comm communicator
 * @param[in,out] tensors same counts and types in the same order on all ranks; data is replaced by the
 * result. Their memory must not overlap
 * @param[in] n_tensors number of tensors, 0 or more; equal on all ranks
 * @param[in] op reduction, see dsc_all_reduce(); it must exist for the type of each tensor
 * @param[in] buffer_bytes a buffer is sent as soon as it holds so many bytes; 0: 262,144,000 (250 MiB), as
 * PyTorch. Equal on all ranks
 *
 * Collective: yes. Blocking: until all results are there. Ownership: nothing is kept. Threads: one at a time
 * per communicator.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_UNSUPPORTED for an operation that a type does not have;
 * DSC_ERR_MISMATCH; DSC_ERR_NOMEM; and the failures of an operation, after which the elements are
 * unspecified, but for DSC_ERR_NONFINITE: all tensors are reduced then, and the element that is told counts
 * within its buffer
 * @since 0.1
 */
DSC_API dsc_result_t dsc_all_reduce_coalesced(dsc_comm_t* comm, const dsc_tensor_t* tensors, size_t n_tensors,
                                              dsc_op_t op, size_t buffer_bytes);

#ifdef __cplusplus
}
#endif

#endif /* DSC_COALESCED_H */
