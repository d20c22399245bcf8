// A registry of memory from dsc_mem_alloc(). One function frees the memory, no matter which engine allocated
// it.
#pragma once

#include <cstddef>
#include <memory>

namespace dsc {

// Keeps `owner` alive, and with it the memory, until release_memory() is called. Any thread.
void keep_memory(void* memory, size_t bytes, std::shared_ptr<void> owner);

// Frees memory of Comm::allocate_memory(). Throws INVALID_ARG if `memory` is not the start of such memory.
// Any thread.
void release_memory(void* memory);

// Undoes Comm::register_memory(). Throws BUSY while a queued operation uses the memory. Throws INVALID_ARG if
// `memory` is not the start of such memory, or if the program has unmapped it. Any thread.
void unregister_memory(void* memory);

// Keeps the memory that contains an address alive, and returns its start. It stays allocated until
// drop_memory() was called as often as retain_memory(), even if it is released in between. Throws INVALID_ARG
// for other memory. Any thread.
void* retain_memory(const void* address);

// Records that a caller may free this memory, and returns its address. Any thread.
void* give_memory(void* memory);

// Undoes one retain_memory(), or releases memory that was passed to give_memory(). Throws INVALID_ARG for
// other memory, such as internal memory of the library. Any thread.
void drop_memory(void* memory);

}  // namespace dsc
