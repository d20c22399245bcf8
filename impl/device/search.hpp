// Where a vendor's library is looked for: a path that somebody names, the process itself, Python wheels, a
// conda environment, the system.
#pragma once

#include <string>

#include "base/environment.hpp"
#include "device/loader.hpp"

namespace dsc {

struct WantedLibrary {
  const char* name;      // for messages: "NCCL"
  const char* file;      // "libnccl.so.2"
  const char* option;    // of start-up, that may hold its path
  const char* variable;  // may hold its path, too
  // Only one copy may be in a process, known by this symbol; NULL: the system sees to that.
  // CUDA's driver has none, because tools that limit a device's memory define its symbols, too.
  const char* only_one = nullptr;
  const char* wheel_folder = nullptr;  // below site-packages; NULL: there are no wheels of it
};

struct FoundLibrary {
  void* handle = nullptr;
  std::string path;
};

// Loads the first of: `path` unless it is empty; the path in the variable; the copy that the process has
// loaded; wheels of PYTHONPATH, VIRTUAL_ENV and CONDA_PREFIX; the `lib` of CONDA_PREFIX if there are wheels
// of it; what the system finds. A path that is named is the only one tried. It stays loaded. Throws
// NO_BACKEND, which says where was looked and what was wrong there, or which two copies there are.
FoundLibrary find_library(const WantedLibrary& wanted, const std::string& path,
                          const Environment& environment, const Loader& loader);

}  // namespace dsc
