// Modules and kernels. The code in a module is ignored, because kernels are functions on the host.
#include <cstring>

#include "cuda_api.hpp"
#include "cuda_state.hpp"

namespace fake_gpu {
namespace {

constexpr unsigned kMostThreads = 1024, kMostSharedBytes = 227 * 1024;

// Accepts a fatbin, its wrapper, an ELF file, or PTX.
bool is_image(const void* image) {
  const auto* const text = static_cast<const char*>(image);
  unsigned magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  return magic == 0xba55ed50 || magic == 0x466243b1 || magic == 0x464c457f ||
         std::strncmp(text, ".version", 8) == 0 || std::strncmp(text, "//", 2) == 0;
}

// The arguments of one launch, copied at the time of the launch.
struct Arguments {
  std::vector<std::vector<char>> copies;
  unsigned grid[3], block[3];
};

std::shared_ptr<Arguments> copy_arguments(const Kernel& kernel, void** params) {
  auto copied = std::make_shared<Arguments>();
  for (size_t i = 0; i < kernel.param_bytes.size(); ++i) {
    const auto* const begin = static_cast<const char*>(params[i]);
    copied->copies.emplace_back(begin, begin + kernel.param_bytes[i]);
  }
  return copied;
}

// Every parameter that looks like an address of device memory is treated as one.
CudaResult find_uses(const Call& call, const Arguments& arguments, std::vector<Range>& uses) {
  for (const std::vector<char>& param : arguments.copies)
    for (size_t at = 0; at + sizeof(uintptr_t) <= param.size(); at += sizeof(uintptr_t)) {
      uintptr_t word = 0;
      std::memcpy(&word, &param[at], sizeof word);
      if (const MemoryLocation location = location_of(call.driver, word); location.block)
        uses.push_back({location.base, location.block->bytes});
      else if (param.size() == sizeof word && word && check_range(call, word, 1) != kOk)
        return kInvalidValue;
    }
  return kOk;
}

CudaResult check_shape(const unsigned (&grid)[3], const unsigned (&block)[3], unsigned shared_bytes,
                       void** extra) {
  for (const unsigned size : {grid[0], grid[1], grid[2], block[0], block[1], block[2]})
    if (size == 0) return misused(kInvalidValue, "cuLaunchKernel of nothing");
  if (uint64_t{block[0]} * block[1] * block[2] > kMostThreads || block[2] > 64 || grid[1] > 65535 ||
      grid[2] > 65535 || grid[0] > 0x7fffffff || shared_bytes > kMostSharedBytes)
    return misused(kInvalidValue, "cuLaunchKernel of more than fits");
  return extra ? kNotSupported : kOk;
}

}  // namespace
}  // namespace fake_gpu

using namespace fake_gpu;

extern "C" {

CudaResult cuModuleLoadData(CudaModule** module, const void* image) {
  return enter("cuModuleLoadData", kCurrent | kNoCapture, [&](Call& call) {
    if (!image || !is_image(image)) return kInvalidImage;
    const auto made = std::make_shared<Module>();
    made->context = call.context;
    *module = call.driver.modules.add(made);
    return kOk;
  });
}

CudaResult cuModuleUnload(CudaModule* module) {
  return enter("cuModuleUnload", kCurrent | kNoCapture, [&](Call& call) {
    return call.driver.modules.remove(module)
               ? kOk
               : misused(kInvalidHandle, "cuModuleUnload of what is no module");
  });
}

CudaResult cuModuleGetFunction(CudaFunction** function, CudaModule* handle, const char* name) {
  return enter("cuModuleGetFunction", kCurrent, [&](Call& call) {
    const auto module = call.driver.modules.find(handle);
    if (!module) return misused(kInvalidHandle, "cuModuleGetFunction of what is no module (any more)");
    const auto kernel = call.driver.kernels.find(name);
    if (kernel == call.driver.kernels.end()) return kNotFound;
    *function = call.driver.functions.add(
        std::make_shared<Function>(Function{module->context, handle, kernel->second}));
    return kOk;
  });
}

CudaResult cuLaunchKernel(CudaFunction* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                          CudaStream* stream_handle, void** params, void** extra) {
  return enter("cuLaunchKernel", kCurrent, [&](Call& call) {
    const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
    const auto function = call.driver.functions.find(handle);
    if (!function || !call.driver.modules.find(function->module))
      return misused(kInvalidHandle, "cuLaunchKernel of what is no function (any more)");
    const auto stream = stream_of(call, stream_handle, call.context);
    if (!stream) return kInvalidHandle;
    if (function->context != stream->context || stream->context != call.context)
      return misused(kInvalidHandle, "cuLaunchKernel with function, stream and context of different devices");
    if (const CudaResult bad = check_shape(grid, block, shared_bytes, extra); bad != kOk) return bad;
    const auto arguments = copy_arguments(function->kernel, params);
    std::memcpy(arguments->grid, grid, sizeof grid);
    std::memcpy(arguments->block, block, sizeof block);
    Action action;
    if (const CudaResult bad = find_uses(call, *arguments, action.uses); bad != kOk) return bad;
    action.run = [arguments, run = function->kernel.run] {
      std::vector<std::vector<char>> own = arguments->copies;  // a kernel may write to its parameters
      std::vector<void*> pointers;
      for (std::vector<char>& copy : own) pointers.push_back(copy.data());
      run(pointers.data(), arguments->grid, arguments->block);
    };
    return enqueue_counted(call, stream, std::move(action));
  });
}

}  // extern "C"
