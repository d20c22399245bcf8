// The GPU of the kernel tests: the fake GPU, or the GPU of the driver that DSC_CUDA_LIBRARY names.
#pragma once

#include <dlfcn.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "device/kernels.hpp"
#include "device/loader.hpp"
#include "dtype_reference.hpp"

namespace support {

using dsc::CudaResult;

inline constexpr uint8_t kUntouched = 0xa5;

inline void need(CudaResult result, const char* what) {
  if (result != CudaResult::success)
    throw std::runtime_error(std::string(what) + ": " + std::to_string(static_cast<unsigned>(result)));
}

// The first device, with its context current and a stream.
struct Gpu {
  dsc::CudaLibrary library;
  dsc::CudaStream* stream = nullptr;

  Gpu() {
    const auto environment = [](const char* name) {
      const auto value = dsc::process_environment()(name);
      return value || std::strcmp(name, "DSC_CUDA_LIBRARY") != 0 ? value : FAKE_CUDA;
    };
    library = dsc::load_cuda("", environment, dsc::process_loader());
    dsc::CudaDevice device = 0;
    dsc::CudaContext* context = nullptr;
    need(library.functions.device_get(&device, 0), "cuDeviceGet");
    need(library.functions.device_primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain");
    need(library.functions.ctx_push_current(context), "cuCtxPushCurrent");
    need(library.functions.stream_create_with_priority(&stream, dsc::kCudaStreamNonBlocking, 0),
         "cuStreamCreateWithPriority");
  }

  template <class Function>
  Function* symbol(const char* name) const {
    void* const handle = ::dlopen(library.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    return handle == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(handle, name));
  }
  const dsc::CudaFunctions& cuda() const { return library.functions; }
  void synchronize() const { need(cuda().stream_synchronize(stream), "cuStreamSynchronize"); }
  void copy(uint64_t to, uint64_t from, size_t bytes) const {
    need(cuda().memcpy_async(to, from, bytes, stream), "cuMemcpyAsync");
    synchronize();
  }
};

inline const Gpu& gpu() {
  static const Gpu one;
  return one;
}

inline uint64_t address(const void* p) { return reinterpret_cast<uint64_t>(p); }

// Memory of the GPU and a copy of it on the host. at() sends the host's copy to the GPU, and finish() brings
// it back. Guard bytes around it must not change. It begins at a chosen distance from a multiple of 64.
class Memory {
 public:
  explicit Memory(size_t bytes, size_t skew = 0)
      : state_(new State(bytes)), bytes_(bytes), begin_(64 + skew) {}
  uint8_t* data() { return state_->host.data() + begin_; }
  size_t size() const { return bytes_; }
  uint64_t at() {
    gpu().copy(state_->device, address(state_->host.data()), state_->host.size());
    given().insert(state_.get());
    return state_->device + begin_;
  }
  bool frame_is_untouched() const {
    for (size_t i = 0; i < state_->host.size(); ++i)
      if ((i < begin_ || i >= begin_ + bytes_) && state_->host[i] != kUntouched) return false;
    return true;
  }

  static void finish() {
    gpu().synchronize();
    for (State* state : given()) gpu().copy(address(state->host.data()), state->device, state->host.size());
    given().clear();
  }

 private:
  struct State {
    explicit State(size_t bytes) : host(bytes + 192, kUntouched), device(take(host.size())) {}
    ~State() {
      given().erase(this);
      spare().emplace(std::bit_ceil(host.size()), device);
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    std::vector<uint8_t> host;
    dsc::CudaAddress device;
  };

  // Memory that is kept for the next use, because allocation is slow.
  static std::multimap<size_t, dsc::CudaAddress>& spare() {
    static std::multimap<size_t, dsc::CudaAddress> all;
    return all;
  }
  static dsc::CudaAddress take(size_t bytes) {
    const auto found = spare().find(std::bit_ceil(bytes));
    dsc::CudaAddress device = 0;
    if (found != spare().end()) {
      device = found->second;
      spare().erase(found);
    } else {
      need(gpu().cuda().mem_alloc(&device, std::bit_ceil(bytes)), "cuMemAlloc");
    }
    return device;
  }
  static std::set<State*>& given() {
    static std::set<State*> states;
    return states;
  }

  std::unique_ptr<State> state_;
  size_t bytes_, begin_;
};

// Options that a test sets for the driver, and what the driver recorded.
struct Watch {
  std::vector<unsigned> grids;  // the grid of each launch
  std::string lacking;          // the name of a kernel that the driver shall not find
  bool refuses_image = false;
  bool refuses_launch = false;
  int modules = 0;
};
inline Watch watch;

inline std::shared_ptr<const dsc::CudaLibrary> watched_cuda() {
  auto library = std::make_shared<dsc::CudaLibrary>(gpu().library);
  auto& cuda = library->functions;
  cuda.module_load_data = [](dsc::CudaModule** module, const void* image) {
    if (watch.refuses_image) return CudaResult::no_binary_for_gpu;
    ++watch.modules;
    return gpu().cuda().module_load_data(module, image);
  };
  cuda.module_unload = [](dsc::CudaModule* module) {
    --watch.modules;
    return gpu().cuda().module_unload(module);
  };
  cuda.module_get_function = [](dsc::CudaFunction** function, dsc::CudaModule* module, const char* name) {
    return gpu().cuda().module_get_function(function, module, watch.lacking == name ? "dsc_none" : name);
  };
  cuda.launch_kernel = [](dsc::CudaFunction* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                          dsc::CudaStream* stream, void** params, void** extra) {
    if (watch.refuses_launch) return CudaResult::invalid_value;
    watch.grids.push_back(grid_x);
    return gpu().cuda().launch_kernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                      shared_bytes, stream, params, extra);
  };
  return library;
}

// Every call waits for its kernel.
class Kernels {
 public:
  explicit Kernels(int multiprocessors = 2) : kernels_(watched_cuda(), multiprocessors) {
    watch.grids.clear();
  }

  void gather(const dsc::BucketCopy& copy) const { kernels_.gather(copy, gpu().stream), Memory::finish(); }
  void scatter(const dsc::BucketCopy& copy) const { kernels_.scatter(copy, gpu().stream), Memory::finish(); }
  void copy(const dsc::ScaledCopy& copy) const { kernels_.copy(copy, gpu().stream), Memory::finish(); }
  void copy_strided(const dsc::StridedCopy& copy) const {
    kernels_.copy_strided(copy, gpu().stream), Memory::finish();
  }
  void sum_parts(const dsc::PartsSum& sum) const { kernels_.sum_parts(sum, gpu().stream), Memory::finish(); }
  const dsc::Kernels& unfinished() const { return kernels_; }

 private:
  dsc::Kernels kernels_;
};

// A comparison with NaN is false, so NaNs are ignored.
inline double largest(int32_t dtype, const void* values, uint64_t count) {
  double most = 0;
  for (uint64_t i = 0; i < count; ++i)
    if (const double each = std::fabs(reference::accessors(dtype).value(values, i)); each > most) most = each;
  return most;
}

}  // namespace support
