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
};

// Looks at `path` unless it is empty, the path DSC_CUDA_LIBRARY, or in the system; initialises the driver,
// after which forked children cannot use it. Throws NO_BACKEND: no library, no driver behind it, too old a
// one, or no device.
CudaLibrary load_cuda(const std::string& path, const Environment& environment, const Loader& loader);

}  // namespace dsc
