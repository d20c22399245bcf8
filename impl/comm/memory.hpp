// Memory of dsc_mem_alloc(), whichever engine allocated it: what a program gives back has one door.
#pragma once

#include <memory>

namespace dsc {

// The memory stays until release_memory() gives up its owner. Any thread.
void keep_memory(void* memory, std::shared_ptr<void> owner);

// Frees memory of Comm::allocate_memory(); throws INVALID_ARG when memory is not the start of such memory.
// Any thread.
void release_memory(void* memory);

}  // namespace dsc
