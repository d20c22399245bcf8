/**
 * @file memory.h
 * @brief Memory that all ranks of a host reach, so that operations move it without copying.
 */
#ifndef DSC_MEMORY_H
#define DSC_MEMORY_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Allocates memory that operations on comm, and on all groups made from it, move without copying.
 * @param[in] comm communicator
 * @param[in] bytes 1 or more; equal on all ranks
 * @param[in] kind DSC_MEMORY_KIND_HOST, or DSC_MEMORY_KIND_DEVICE: of the GPU that comm is bound to, from
 * NCCL and registered with comm where NCCL can
 * @param[out] memory this rank's memory: zeroed, aligned to a page; NULL on failure
 *
 * A child made by fork() inherits memory of the host. Collective: yes. Blocking: until all ranks have called
 * it. Ownership: the caller's, until dsc_mem_free(). Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_NOSPACE (needed and available bytes are named; on all ranks); DSC_ERR_UNSUPPORTED
 * for DSC_MEMORY_KIND_DEVICE in a communicator without a GPU; DSC_ERR_BACKEND; DSC_ERR_INVALID_ARG;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mem_alloc(dsc_comm_t* comm, size_t bytes, dsc_memory_kind_t kind, void** memory);

/**
 * @brief Keeps memory that the library owns, such as the buffer of a hook's bucket or a gradient view, beyond
 * the object that it belongs to.
 * @param[in] address in memory that was allocated for a communicator: that of dsc_mem_alloc(), the buckets of
 * a reducer, the blocks of a ring, the buffers of dsc_pipe_run()
 * @param[out] memory start of that memory, for dsc_mem_free(); NULL on failure
 *
 * The library goes on using the memory as before: this call says only until when it is valid. Each call needs
 * one dsc_mem_free(). Collective: no. Blocking: no. Ownership: the memory is valid until the object that it
 * belongs to has released it and dsc_mem_free() was called. Threads: any, also inside a hook.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for other memory, such as the caller's own; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mem_retain(const void* address, void** memory);

/**
 * @brief Frees memory of dsc_mem_alloc(), or undoes one dsc_mem_retain(). Other ranks keep theirs.
 * @param[in] memory start of the memory; NULL does nothing
 *
 * No operation of this rank may still use it, including those queued on a stream. Collective: no.
 * Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG when memory is not the start of such memory; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mem_free(void* memory);

#ifdef __cplusplus
}
#endif

#endif /* DSC_MEMORY_H */
