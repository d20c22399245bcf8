// The CUDA driver library, loaded at run time.
#pragma once

#include <string>

#include "device/cuda_declarations.hpp"
#include "device/search.hpp"

namespace dsc {

struct CudaLibrary {
  std::string path;     // path of the loaded file
  std::string version;  // CUDA version that the driver supports, such as "13.0"
  int devices = 0;      // number of visible devices, at least 1
  CudaFunctions functions;

  // Describes a result by name and text, such as "CUDA_ERROR_NO_DEVICE, no CUDA-capable device is detected";
  // gives the number if the driver has no name for it.
  std::string words(CudaResult result) const;
  // Throws BACKEND with the description of the result unless it is success.
  void check(CudaResult result, const char* function) const {
    if (result != CudaResult::success) fail_with(result, function);
  }

 private:
  [[noreturn]] void fail_with(CudaResult result, const char* function) const;
};

// Returns whether CUDA is unusable after this result: every later CUDA call in this process fails.
bool ends_cuda(CudaResult result) noexcept;

// Loads and initializes the driver. The library is taken from `path`; if that is empty, from the path in
// DSC_CUDA_LIBRARY; otherwise from the system. Processes forked afterwards cannot use CUDA. Throws NO_BACKEND
// if there is no library, no driver or no device, if the driver is too old, or if it does not answer within
// `patience_ms`.
CudaLibrary load_cuda(const std::string& path, const Environment& environment, const Loader& loader,
                      int patience_ms = 60'000);

}  // namespace dsc
