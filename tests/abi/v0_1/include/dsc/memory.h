/**
 * @file memory.h
 * @brief Memory that operations move without copying, because all ranks of a host can reach it.
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
 * @param[in] kind DSC_MEMORY_KIND_HOST, or DSC_MEMORY_KIND_DEVICE for memory of the GPU that comm is bound
 * to, allocated by NCCL and registered with comm if NCCL supports it
 * @param[out] memory [bytes of byte] this rank's memory, zeroed and page-aligned; NULL on failure
 *
 * A child made by fork() inherits host memory. Collective: yes. Blocking: until all ranks have called it.
 * Ownership: the caller's; memory is valid until dsc_mem_free(). Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_NOSPACE on all ranks (the error says how many bytes are needed and available);
 * DSC_ERR_UNSUPPORTED for DSC_MEMORY_KIND_DEVICE in a communicator without a GPU; DSC_ERR_BACKEND;
 * DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mem_alloc(dsc_comm_t* comm, size_t bytes, dsc_memory_kind_t kind, void** memory);

/**
 * @brief Registers memory of the program, so that operations on comm, and on all groups made from it, move it
 * without copying, like memory of dsc_mem_alloc().
 * @param[in] comm communicator
 * @param[in,out] memory [bytes of byte] memory that the program has allocated, at any address
 * @param[in] bytes 1 or more; equal on all ranks
 *
 * Its pages are replaced by pages that all ranks of the host can reach; that copies them once. Addresses and
 * contents do not change. A page that also holds other data stays as it is, and every operation copies its
 * part of memory: at most two pages. Large operations (zero_copy_min_bytes of dsc_comm_tuning())
 * gain if every rank that sends does so from registered memory. An all-reduce also needs registered receive
 * buffers; a message needs only one of its two buffers. While ranks register, no other thread and no running
 * operation may access the memory.
 *
 * Refused is memory that a file backs, the stack of the main thread, memory that the program may not read and
 * write, or may execute, and memory that is shared or registered already. Settings of mlock(), madvise() and
 * mbind() for these pages are lost. Do not register memory that a driver has pinned, for example with
 * cudaHostRegister(): the library cannot detect that, and a device would continue with the old pages. A child
 * made by fork() shares the replaced pages instead of getting a copy.
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: the caller's; memory must stay valid
 * until dsc_mem_unregister(), also after the end of the communicator. Threads: one at a time per
 * communicator.
 * @return DSC_OK; DSC_ERR_NOSPACE on all ranks (the error says how many bytes are needed and available);
 * DSC_ERR_UNSUPPORTED for memory of a device; DSC_ERR_NOMEM; DSC_ERR_OVERFLOW; DSC_ERR_INVALID_ARG;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; and the failures of an operation. After an error no memory has changed.
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mem_register(dsc_comm_t* comm, void* memory, size_t bytes);

/**
 * @brief Ends a registration, and makes the memory private again. Call it before you free, move or unmap the
 * memory, because otherwise operations would use the old pages when the address is used again.
 * @param[in] memory [address] as given to dsc_mem_register(); NULL does nothing
 *
 * Wait for asynchronous operations on the memory first. No other thread may access it meanwhile. If the
 * system refuses private pages, the memory stays shared, and a log record says so: it can be used and freed
 * as before, but not registered again. The other ranks may keep their part registered; operations then copy.
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BUSY while an asynchronous operation uses the memory, which stays registered;
 * DSC_ERR_INVALID_ARG when memory is not the start of registered memory, or was unmapped (the registration
 * has then ended); DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mem_unregister(void* memory);

/**
 * @brief Keeps memory that the library owns, such as the buffer of a hook's bucket or a gradient view, beyond
 * the object that it belongs to.
 * @param[in] address [address] an address in memory that was allocated for a communicator: by
 * dsc_mem_alloc(), the buckets of a reducer, the blocks of a ring, the buffers of dsc_pipe_run()
 * @param[out] memory [address] start of that memory, for dsc_mem_free(); NULL on failure
 *
 * The library keeps using the memory as before: this call only extends its lifetime. Each call needs one
 * dsc_mem_free(). Collective: no. Blocking: no. Ownership: the memory is valid until its object has released
 * it and dsc_mem_free() was called. Threads: any, also inside a hook.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for other memory, such as memory that the program allocated;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mem_retain(const void* address, void** memory);

/**
 * @brief Frees memory of dsc_mem_alloc(), or undoes one dsc_mem_retain(). The memory of other ranks stays
 * valid.
 * @param[in] memory [address] start of the memory; NULL does nothing
 *
 * No operation of this rank may still use it, including those queued on a stream. Collective: no. Blocking:
 * no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG when memory is not the start of such memory; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mem_free(void* memory);

#ifdef __cplusplus
}
#endif

#endif /* DSC_MEMORY_H */
