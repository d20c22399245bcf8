// Registry of memory from dsc_mem_alloc(), so that one function frees it whichever engine allocated it.
#pragma once

#include <cstddef>
#include <memory>

namespace dsc {

// Keeps `owner`, and with it the memory, until release_memory() is called. Any thread.
void keep_memory(void* memory, size_t bytes, std::shared_ptr<void> owner);

// Frees memory of Comm::allocate_memory(). Throws INVALID_ARG if `memory` is not the start of such memory.
// Any thread.
void release_memory(void* memory);

// Keeps the memory that contains an address, whoever releases it meanwhile, until its start, which is
// returned, was passed to drop_memory() as often. Throws INVALID_ARG for other memory. Any thread.
void* retain_memory(const void* address);

// Undoes one retain_memory(), or else releases the memory. Any thread.
void drop_memory(void* memory);

}  // namespace dsc
