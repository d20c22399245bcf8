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

// Keeps the memory that contains an address and returns its start. The memory stays until drop_memory() was
// called as often as this, whoever releases it. Throws INVALID_ARG for other memory. Any thread.
void* retain_memory(const void* address);

// Notes that a caller may free this memory, and returns it. Any thread.
void* give_memory(void* memory);

// Undoes one retain_memory(), or releases memory of give_memory(). Throws INVALID_ARG for other memory, such
// as memory of the library. Any thread.
void drop_memory(void* memory);

}  // namespace dsc
