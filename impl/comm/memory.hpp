// Registry of memory from dsc_mem_alloc(), so that one function frees it whichever engine allocated it.
#pragma once

#include <memory>

namespace dsc {

// Keeps `owner`, and with it the memory, until release_memory() is called. Any thread.
void keep_memory(void* memory, std::shared_ptr<void> owner);

// Frees memory of Comm::allocate_memory(). Throws INVALID_ARG if `memory` is not the start of such memory.
// Any thread.
void release_memory(void* memory);

}  // namespace dsc
