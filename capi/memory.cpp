#include "comm/memory.hpp"
#include "dsc/memory.h"

#include "base/guard.hpp"
#include "checks.hpp"
#include "comm_call.hpp"

dsc_result_t dsc_mem_alloc(dsc_comm_t* comm, size_t bytes, int32_t kind, void** memory) {
  return dsc::guard(__func__, [&] {
    if (memory) *memory = nullptr;
    dsc::CommCall inside(comm);
    dsc::require(memory, "memory");
    if (bytes == 0) dsc::fail(DSC_ERR_INVALID_ARG, "bytes is 0, expected 1 or more");
    if (bytes > SIZE_MAX / 2)
      dsc::fail(DSC_ERR_OVERFLOW, "bytes is %zu, more than the address space holds", bytes);
    if (kind != DSC_MEMORY_KIND_HOST && kind != DSC_MEMORY_KIND_DEVICE)
      dsc::fail(DSC_ERR_INVALID_ARG, "kind is %d, expected 1 (host) or 2 (device)", kind);
    *memory = dsc::give_memory(kind == DSC_MEMORY_KIND_HOST ? inside->allocate_memory(bytes)
                                                            : inside->allocate_on_device(bytes));
  });
}

dsc_result_t dsc_mem_free(void* memory) {
  return dsc::guard(__func__, [&] {
    if (memory) dsc::drop_memory(memory);
  });
}

dsc_result_t dsc_mem_register(dsc_comm_t* comm, void* memory, size_t bytes) {
  return dsc::guard(__func__, [&] {
    dsc::CommCall inside(comm);
    if (!memory) dsc::fail(DSC_ERR_INVALID_ARG, "memory is NULL");
    if (bytes == 0) dsc::fail(DSC_ERR_INVALID_ARG, "bytes is 0, expected 1 or more");
    if (bytes > SIZE_MAX / 2 || reinterpret_cast<uintptr_t>(memory) > UINTPTR_MAX - bytes)
      dsc::fail(DSC_ERR_OVERFLOW, "%zu bytes at %p exceed the address space", bytes, memory);
    inside->register_memory(memory, bytes);
  });
}

dsc_result_t dsc_mem_unregister(void* memory) {
  return dsc::guard(__func__, [&] {
    if (memory) dsc::unregister_memory(memory);
  });
}

dsc_result_t dsc_mem_retain(const void* address, void** memory) {
  return dsc::guard(__func__, [&] {
    if (memory) *memory = nullptr;
    dsc::require(memory, "memory");
    if (!address) dsc::fail(DSC_ERR_INVALID_ARG, "address is NULL");
    *memory = dsc::retain_memory(address);
  });
}
