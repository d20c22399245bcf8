// Device memory is memory of the host, with a registry of the device of each block. An address is never
// reused, and freed memory cannot be accessed.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "cuda_api.hpp"
#include "cuda_state.hpp"

namespace fake_gpu {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kArenaBytes = size_t{1} << 38;
constexpr size_t kSoiled = 1 << 20;  // this part of new memory is filled with bytes other than zero

bool overlap(const Range& a, uintptr_t begin, size_t bytes) {
  return a.begin < begin + bytes && begin < a.begin + a.bytes;
}

// Returns whether streams still have work that uses this memory.
bool in_use(Driver& state, uintptr_t begin, size_t bytes) {
  for (const auto& weak : state.all_streams)
    if (const auto stream = weak.lock())
      for (const Task& task : stream->tasks)
        for (const Range& range : task.action.uses)
          if (overlap(range, begin, bytes) && !(task.action.over && *task.action.over)) return true;
  return false;
}

// A range of addresses that nothing else in the process gets.
struct Arena {
  char* begin = static_cast<char*>(
      ::mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  size_t used = 0;
};

Arena& arena() {
  static auto* const the_arena = new Arena;
  return *the_arena;
}

bool was_freed(uintptr_t address) {
  // in the arena, but in no block
  return address - reinterpret_cast<uintptr_t>(arena().begin) < arena().used;
}

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// An inaccessible page is between two blocks.
void* take_pages(size_t bytes) {
  Arena& from = arena();
  if (from.begin == MAP_FAILED || bytes >= kArenaBytes - from.used - 2 * kPage) return nullptr;
  char* const begin = from.begin + from.used;
  if (::mprotect(begin, whole_pages(bytes), PROT_READ | PROT_WRITE) != 0) return nullptr;
  from.used += whole_pages(bytes) + kPage;
  std::memset(begin, 0xa5, std::min(bytes, kSoiled));
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(begin + bytes, whole_pages(bytes) - bytes);
#endif
  return begin;
}

void give_pages(uintptr_t begin, size_t bytes) {
  ::mmap(reinterpret_cast<void*>(begin), whole_pages(bytes), PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

// FAKE_CUDA_MEMORY_MIB is the memory of each device.
bool fits(const Driver& state, int device, size_t bytes) {
  static const auto limit = static_cast<size_t>(number_of("FAKE_CUDA_MEMORY_MIB", 1 << 20)) << 20;
  for (const auto& [begin, block] : state.blocks)
    if (block.device == device && block.kind == dsc::CudaMemoryType::device) bytes += block.bytes;
  return bytes <= limit;
}

void put(void* to, const void* value, size_t bytes) {
  if (to) std::memcpy(to, value, bytes);
}

CudaResult one_attribute(const MemoryLocation& location, int which, uintptr_t address, void* to) {
  const Block none, &block = location.block ? *location.block : none;
  const unsigned kind = static_cast<unsigned>(block.kind), managed = block.managed;
  const uintptr_t known = location.block ? address : 0;
  switch (which) {
    case 2:
      put(to, &kind, sizeof kind);
      return kOk;
    case 3:  // the address for the device and for the host
    case 4:
      put(to, &known, sizeof known);
      return kOk;
    case 7:
      put(to, &block.id, sizeof block.id);
      return kOk;
    case 8:
      put(to, &managed, sizeof managed);
      return kOk;
    case 9:
      put(to, &block.device, sizeof block.device);
      return kOk;
    case 11:
      put(to, &location.base, sizeof location.base);
      return kOk;
    case 12:
      put(to, &block.bytes, sizeof block.bytes);
      return kOk;
    default:
      return kInvalidValue;
  }
}

CudaResult copy_async(Call& call, uintptr_t to, uintptr_t from, size_t bytes, CudaStream* handle,
                      bool waits) {
  const auto stream = stream_of(call, handle, call.context);
  if (!stream) return kInvalidHandle;
  if (bytes == 0) return kOk;
  for (const uintptr_t end : {to, from})
    if (const CudaResult bad = check_range(call, end, bytes); bad != kOk) return bad;
  Action action = action_of({}, {{to, bytes}, {from, bytes}});
  const bool paged_source = !location_of(call.driver, from).block && !stream->capture;
  if (paged_source) {  // the caller may overwrite the source immediately
    const auto* const bytes_of = reinterpret_cast<const char*>(from);
    action.run = [to, copy = std::vector<char>(bytes_of, bytes_of + bytes)] {
      std::memcpy(reinterpret_cast<void*>(to), copy.data(), copy.size());
    };
  } else {
    action.run = [to, from, bytes] {
      std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    };
  }
  waits = waits || (!location_of(call.driver, to).block && !stream->capture);
  const CudaResult result = enqueue_counted(call, stream, std::move(action));
  if (result != kOk || !waits) return result;
  Moment{stream, stream->issued}.wait(call.lock);
  return call.driver.dead;
}

CudaResult copy(const char* name, CudaAddress to, CudaAddress from, size_t bytes) {
  return enter(name, kCurrent | kNoCapture,
               [&](Call& call) { return copy_async(call, to, from, bytes, nullptr, true); });
}

CudaResult copy_on(const char* name, CudaAddress to, CudaAddress from, size_t bytes, CudaStream* stream) {
  return enter(name, kCurrent, [&](Call& call) { return copy_async(call, to, from, bytes, stream, false); });
}

CudaAddress address_of(const void* memory) { return reinterpret_cast<CudaAddress>(memory); }

}  // namespace

MemoryLocation location_of(const Driver& state, uintptr_t address) {
  auto found = state.blocks.upper_bound(address);
  if (found == state.blocks.begin()) return {};
  --found;
  return address - found->first < found->second.bytes ? MemoryLocation{found->first, &found->second}
                                                      : MemoryLocation{};
}

CudaResult check_range(const Call& call, uintptr_t address, size_t bytes) {
  const MemoryLocation location = location_of(call.driver, address);
  if (location.block && address + bytes <= location.base + location.block->bytes) return kOk;
  if (location.block) return misused(kInvalidValue, "%s goes past the end of an allocation", call.name);
  if (was_freed(address)) return misused(kInvalidValue, "%s uses memory that was freed", call.name);
  return address ? kOk : kInvalidValue;
}

CudaResult allocate(Call& call, void** address, size_t bytes, int device, dsc::CudaMemoryType kind,
                    bool managed) {
  if (!address || bytes == 0) return kInvalidValue;
  *address = fits(call.driver, device, bytes) ? take_pages(bytes) : nullptr;
  if (!*address) return kOutOfMemory;
  const auto begin = reinterpret_cast<uintptr_t>(*address);
  call.driver.blocks[begin] = {bytes, device, kind, managed, ++call.driver.blocks_made};
  return kOk;
}

CudaResult check_release(const Call& call, uintptr_t begin, dsc::CudaMemoryType kind) {
  const auto found = call.driver.blocks.find(begin);
  if (found == call.driver.blocks.end() || found->second.kind != kind)
    return misused(kInvalidValue, "%s of what is not allocated (any more)", call.name);
  return in_use(call.driver, begin, found->second.bytes)
             ? misused(kInvalidValue, "%s of memory that a stream still uses", call.name)
             : kOk;
}

CudaResult release(Call& call, void* address, dsc::CudaMemoryType kind) {
  if (!address) return kOk;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (const CudaResult bad = check_release(call, begin, kind); bad != kOk) return bad;
  const auto found = call.driver.blocks.find(begin);
  give_pages(begin, found->second.bytes);
  call.driver.blocks.erase(found);
  return kOk;
}

void release_all(Driver& state, int device) {
  std::erase_if(state.blocks, [&](const auto& entry) {
    const auto& [begin, block] = entry;
    if (block.device != device) return false;
    if (!in_use(state, begin, block.bytes)) give_pages(begin, block.bytes);
    return true;
  });
}

void free_from_stream(CudaAddress address, const Context& context, uint64_t life) {
  enter("cuMemFreeAsync", kNothing, [&](Call& call) {
    if (context.life != life) return kOk;
    return release(call, reinterpret_cast<void*>(address), dsc::CudaMemoryType::device);
  });
}

}  // namespace fake_gpu

using namespace fake_gpu;

extern "C" {

CudaResult cuPointerGetAttributes(unsigned attributes, dsc::CudaPointerAttribute* which, void** values,
                                  CudaAddress address) {
  return enter("cuPointerGetAttributes", kNothing, [&](Call& call) {
    const MemoryLocation location = location_of(call.driver, address);
    for (unsigned i = 0; i < attributes; ++i)
      if (const auto bad = one_attribute(location, static_cast<int>(which[i]), address, values[i]);
          bad != kOk)
        return bad;
    return kOk;
  });
}

CudaResult cuMemAlloc_v2(CudaAddress* address, size_t bytes) {
  return enter("cuMemAlloc", kCurrent | kNoCapture, [&](Call& call) {
    void* memory = nullptr;
    const CudaResult result =
        allocate(call, &memory, bytes, call.context->device, dsc::CudaMemoryType::device, false);
    if (result == kOk) *address = address_of(memory);
    return result;
  });
}

CudaResult cuMemAllocManaged(CudaAddress* address, size_t bytes, unsigned) {
  return enter("cuMemAllocManaged", kCurrent | kNoCapture, [&](Call& call) {
    void* memory = nullptr;
    const CudaResult result =
        allocate(call, &memory, bytes, call.context->device, dsc::CudaMemoryType::device, true);
    if (result == kOk) *address = address_of(memory);
    return result;
  });
}

// Waits for all work of the device, whatever memory it uses.
CudaResult cuMemFree_v2(CudaAddress address) {
  return enter("cuMemFree", kCurrent | kNoCapture, [&](Call& call) {
    if (address == 0) return kOk;
    if (const auto bad = check_release(call, address, dsc::CudaMemoryType::device); bad != kOk) return bad;
    const auto device = static_cast<size_t>(call.driver.blocks[address].device);
    drain(call, *call.driver.contexts[device]);
    return release(call, reinterpret_cast<void*>(address), dsc::CudaMemoryType::device);
  });
}

CudaResult cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  return enter("cuMemHostAlloc", kCurrent | kNoCapture, [&](Call& call) {
    return allocate(call, address, bytes, call.context->device, dsc::CudaMemoryType::host, false);
  });
}

CudaResult cuMemFreeHost(void* address) {
  return enter("cuMemFreeHost", kCurrent | kNoCapture,
               [&](Call& call) { return release(call, address, dsc::CudaMemoryType::host); });
}

CudaResult cuMemcpy(CudaAddress to, CudaAddress from, size_t bytes) {
  return copy("cuMemcpy", to, from, bytes);
}

CudaResult cuMemcpyHtoD_v2(CudaAddress to, const void* from, size_t bytes) {
  return copy("cuMemcpyHtoD", to, address_of(from), bytes);
}

CudaResult cuMemcpyDtoH_v2(void* to, CudaAddress from, size_t bytes) {
  return copy("cuMemcpyDtoH", address_of(to), from, bytes);
}

CudaResult cuMemcpyDtoD_v2(CudaAddress to, CudaAddress from, size_t bytes) {
  return copy("cuMemcpyDtoD", to, from, bytes);
}

CudaResult cuMemcpyAsync(CudaAddress to, CudaAddress from, size_t bytes, CudaStream* stream) {
  return copy_on("cuMemcpyAsync", to, from, bytes, stream);
}

CudaResult cuMemcpyHtoDAsync_v2(CudaAddress to, const void* from, size_t bytes, CudaStream* stream) {
  return copy_on("cuMemcpyHtoDAsync", to, address_of(from), bytes, stream);
}

CudaResult cuMemcpyDtoHAsync_v2(void* to, CudaAddress from, size_t bytes, CudaStream* stream) {
  return copy_on("cuMemcpyDtoHAsync", address_of(to), from, bytes, stream);
}

CudaResult cuMemcpyDtoDAsync_v2(CudaAddress to, CudaAddress from, size_t bytes, CudaStream* stream) {
  return copy_on("cuMemcpyDtoDAsync", to, from, bytes, stream);
}

CudaResult cuMemsetD8Async(CudaAddress to, unsigned char value, size_t bytes, CudaStream* handle) {
  return enter("cuMemsetD8Async", kCurrent, [&](Call& call) {
    const auto stream = stream_of(call, handle, call.context);
    if (!stream) return kInvalidHandle;
    if (bytes == 0) return kOk;
    if (const CudaResult bad = check_range(call, to, bytes); bad != kOk) return bad;
    if (!location_of(call.driver, to).block)
      return misused(kInvalidValue, "cuMemsetD8Async of pageable memory");
    const auto run = [to, value, bytes] { std::memset(reinterpret_cast<void*>(to), value, bytes); };
    return enqueue(call, stream, action_of(run, {{to, bytes}}));
  });
}

}  // extern "C"
