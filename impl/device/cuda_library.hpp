// The CUDA driver, found at run time.
#pragma once

#include <string>

#include "device/cuda_declarations.hpp"
#include "device/search.hpp"

namespace dsc {

struct CudaLibrary {
  std::string path;     // of the file
  std::string version;  // of CUDA that the driver serves: "13.0"
  int devices = 0;      // 1 or more
  CudaFunctions functions;

  // "CUDA_ERROR_NO_DEVICE, no CUDA-capable device is detected"; the number where the driver has no words.
  std::string words(CudaResult result) const;
  // Throws BACKEND with these words, unless it is a success.
  void check(CudaResult result, const char* function) const {
    if (result != CudaResult::success) fail_with(result, function);
  }

 private:
  [[noreturn]] void fail_with(CudaResult result, const char* function) const;
};

// After such a result every call of CUDA in this process fails.
bool ends_cuda(CudaResult result) noexcept;

// Looks at `path` unless it is empty, the path DSC_CUDA_LIBRARY, or in the system; initialises the driver,
// after which forked children cannot use it. Throws NO_BACKEND: no library, no driver behind it, one that
// does not answer in time, too old a one, or no device.
CudaLibrary load_cuda(const std::string& path, const Environment& environment, const Loader& loader,
                      int patience_ms = 60'000);

}  // namespace dsc
