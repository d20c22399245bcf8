// NCCL, found at run time.
#pragma once

#include <string>
#include <vector>

#include "device/search.hpp"
#include "engine_nccl/declarations.hpp"

namespace dsc {

struct NcclLibrary {
  std::string path;                   // of the file
  int number = 0;                     // 22809
  std::string version;                // "2.28.9"
  std::string warning;                // what is known to be wrong with this version; empty: nothing
  std::vector<const char*> features;  // those of declarations.hpp that it has
  NcclFunctions functions;
};

// Looks at `path` unless it is empty, the path DSC_NCCL_LIBRARY, the copy that this process has loaded,
// wheels and conda's folder (see find_library), or in the system. Throws NO_BACKEND: no library, two copies,
// too old a one. Needs no driver and no device.
NcclLibrary load_nccl(const std::string& path, const Environment& environment, const Loader& loader);

// Versions as NCCL numbers them: 2804 is 2.8.4, 22809 is 2.28.9.
std::string nccl_version(int number);

// What is known to be wrong with a version, in one sentence; empty: nothing.
std::string nccl_warning(int number);

}  // namespace dsc
