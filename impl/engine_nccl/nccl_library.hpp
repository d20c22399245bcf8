// NCCL, as a library that is found at run time.
#pragma once

#include <string>
#include <vector>

#include "device/search.hpp"
#include "engine_nccl/declarations.hpp"

namespace dsc {

struct NcclLibrary {
  std::string path;                   // path of the file
  int number = 0;                     // 22809
  std::string version;                // "2.28.9"
  std::string warning;                // known problem of this version; empty: none
  std::vector<const char*> features;  // features of declarations.hpp that it has
  NcclFunctions functions;
};

// Searches in this order: `path` unless it is empty, the path in DSC_NCCL_LIBRARY, the copy that this process
// has loaded, wheels and conda's folder (see find_library), the system. Throws NO_BACKEND if there is no
// library, if there are two copies, or if it is too old. Needs no driver and no device.
NcclLibrary load_nccl(const std::string& path, const Environment& environment, const Loader& loader);

// Formats a version as NCCL numbers it: 2804 is "2.8.4", 22809 is "2.28.9".
std::string nccl_version(int number);

// Returns the known problem of a version in one sentence; empty: none.
std::string nccl_warning(int number);

}  // namespace dsc
