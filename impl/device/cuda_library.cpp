#include "device/cuda_library.hpp"

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/mutex.hpp"
#include "base/thread.hpp"
#include "device/symbols.hpp"

namespace dsc {
namespace {

// CUDA encodes versions as 1000 * major + 10 * minor: 13.1 is 13010. NVIDIA builds its libraries for two
// major versions; 12 is the older one.
constexpr int kLeastCuda = 12000;
constexpr WantedLibrary kCuda{.name = "CUDA's driver",
                              .file = "libcuda.so.1",
                              .option = "cuda.library",
                              .variable = "DSC_CUDA_LIBRARY"};

CudaFunctions find_cuda_functions(const Symbols& symbols) {
  CudaFunctions found;
  symbols.need("cuInit", found.init);
  symbols.need("cuDriverGetVersion", found.driver_get_version);
  symbols.need("cuGetErrorName", found.get_error_name);
  symbols.need("cuGetErrorString", found.get_error_string);
  symbols.need("cuDeviceGetCount", found.device_get_count);
  symbols.need("cuDeviceGet", found.device_get);
  symbols.need("cuDeviceGetName", found.device_get_name);
  symbols.need("cuDeviceGetUuid_v2", found.device_get_uuid);
  symbols.need("cuDeviceGetAttribute", found.device_get_attribute);
  symbols.need("cuDevicePrimaryCtxRetain", found.device_primary_ctx_retain);
  symbols.need("cuDevicePrimaryCtxRelease_v2", found.device_primary_ctx_release);
  symbols.need("cuCtxGetCurrent", found.ctx_get_current);
  symbols.need("cuCtxPushCurrent_v2", found.ctx_push_current);
  symbols.need("cuCtxPopCurrent_v2", found.ctx_pop_current);
  symbols.need("cuCtxGetDevice", found.ctx_get_device);
  symbols.need("cuPointerGetAttributes", found.pointer_get_attributes);
  symbols.need("cuMemAlloc_v2", found.mem_alloc);
  symbols.need("cuMemFree_v2", found.mem_free);
  symbols.need("cuMemAllocAsync", found.mem_alloc_async);
  symbols.need("cuMemFreeAsync", found.mem_free_async);
  symbols.need("cuMemHostAlloc", found.mem_host_alloc);
  symbols.need("cuMemFreeHost", found.mem_free_host);
  symbols.need("cuMemcpyAsync", found.memcpy_async);
  symbols.need("cuMemsetD8Async", found.memset_d8_async);
  symbols.need("cuStreamCreateWithPriority", found.stream_create_with_priority);
  symbols.need("cuStreamDestroy_v2", found.stream_destroy);
  symbols.need("cuStreamWaitEvent", found.stream_wait_event);
  symbols.need("cuStreamSynchronize", found.stream_synchronize);
  symbols.need("cuStreamIsCapturing", found.stream_is_capturing);
  symbols.need("cuThreadExchangeStreamCaptureMode", found.thread_exchange_stream_capture_mode);
  symbols.need("cuEventCreate", found.event_create);
  symbols.need("cuEventDestroy_v2", found.event_destroy);
  symbols.need("cuEventRecord", found.event_record);
  symbols.need("cuEventQuery", found.event_query);
  symbols.need("cuModuleLoadData", found.module_load_data);
  symbols.need("cuModuleUnload", found.module_unload);
  symbols.need("cuModuleGetFunction", found.module_get_function);
  symbols.need("cuLaunchKernel", found.launch_kernel);
  return found;
}

void need(const CudaLibrary& library, const char* function, CudaResult result) {
  if (result == CudaResult::success) return;
  fail(DSC_ERR_NO_BACKEND, "%s of %.200s failed: %.200s", function, library.path.c_str(),
       library.words(result).c_str());
}

// Calls cuInit() on a detached thread, because a broken or busy driver may never return from it.
CudaResult init_in_time(const CudaLibrary& library, int patience_ms) {
  struct Attempt {
    Mutex mutex;
    Condition ended;
    std::optional<CudaResult> result DSC_GUARDED_BY(mutex);
  };
  const auto attempt = std::make_shared<Attempt>();
  start_thread("dsc-cuda-init", [attempt, init = library.functions.init] {
    const CudaResult result = init(0);
    const MutexLock lock(attempt->mutex);
    attempt->result = result;
    attempt->ended.notify_all();
  }).detach();
  const Deadline deadline = Deadline::after_ms(patience_ms);
  MutexLock lock(attempt->mutex);
  while (!attempt->result && !deadline.passed())
    attempt->ended.wait_for(attempt->mutex, std::chrono::nanoseconds(deadline.remaining_ns()));
  if (!attempt->result)
    fail(DSC_ERR_NO_BACKEND, "cuInit of %.200s did not return within %d ms", library.path.c_str(),
         patience_ms);
  return *attempt->result;
}

std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

[[noreturn]] void fail_without_device(const CudaLibrary& library) {
  fail(DSC_ERR_NO_BACKEND, "the driver %.200s shows no device; CUDA_VISIBLE_DEVICES may hide the devices",
       library.path.c_str());
}

void ask_driver(CudaLibrary& library, int patience_ms) {
  int version = 0;
  const CudaResult begun = init_in_time(library, patience_ms);
  if (begun == CudaResult::no_device) fail_without_device(library);
  need(library, "cuInit", begun);
  need(library, "cuDriverGetVersion", library.functions.driver_get_version(&version));
  library.version = cuda_version(version);
  if (version < kLeastCuda)
    fail(DSC_ERR_NO_BACKEND, "the driver %.200s is too old: CUDA %s, expected %s or newer",
         library.path.c_str(), library.version.c_str(), cuda_version(kLeastCuda).c_str());
  need(library, "cuDeviceGetCount", library.functions.device_get_count(&library.devices));
  if (library.devices < 1) fail_without_device(library);
}

}  // namespace

std::string CudaLibrary::words(CudaResult result) const {
  const char *name = nullptr, *text = nullptr;
  functions.get_error_name(result, &name);
  functions.get_error_string(result, &text);
  std::string words = name ? name : "error " + std::to_string(static_cast<uint32_t>(result));
  return text ? words + ", " + text : words;
}

void CudaLibrary::fail_with(CudaResult result, const char* function) const {
  Failure failure;
  failure.code = DSC_ERR_BACKEND;
  failure.native_code = static_cast<int32_t>(result);
  failure.text.add("%s failed: %.300s%s", function, words(result).c_str(),
                   ends_cuda(result) ? "; this process can no longer use the GPU: restart it" : "");
  throw Error(failure);
}

// CUDA's documentation says that these errors leave the process in an inconsistent state.
bool ends_cuda(CudaResult result) noexcept {
  const auto number = static_cast<uint32_t>(result);
  return number == 214 || number == 220 || number == 700 || number == 702 || number == 710 ||
         (number >= 714 && number <= 719);
}

CudaLibrary load_cuda(const std::string& path, const Environment& environment, const Loader& loader,
                      int patience_ms) {
  const FoundLibrary file = find_library(kCuda, path, environment, loader);
  CudaLibrary library;
  library.path = file.path;
  library.functions = find_cuda_functions(Symbols(loader, file, "a driver of CUDA 12.0 or newer"));
  ask_driver(library, patience_ms);
  return library;
}

}  // namespace dsc
