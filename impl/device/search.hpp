// Searches for a vendor's library: at a given path, in the process itself, in Python wheels, in a conda
// environment, and in the system's search path.
#pragma once

#include <string>

#include "base/environment.hpp"
#include "device/loader.hpp"

namespace dsc {

// Describes a library and where to search for it.
struct WantedLibrary {
  const char* name;      // for messages
  const char* file;      // file name with its version
  const char* option;    // start-up option that may hold its path
  const char* variable;  // environment variable that may hold its path
  // A symbol of the library, if a process must hold only one copy of it. NULL if the system guarantees that,
  // and for CUDA's driver, because tools that limit a device's memory also define its symbols.
  const char* only_one = nullptr;
  const char* wheel_folder = nullptr;  // folder below site-packages; NULL if no wheels contain the library
};

// A library that was opened, and the path of its file.
struct FoundLibrary {
  void* handle = nullptr;
  std::string path;
};

// Loads the library from the first of these locations:
// - `path` unless it is empty
// - the path in the variable
// - the copy that is already loaded
// - wheels of PYTHONPATH, VIRTUAL_ENV and CONDA_PREFIX
// - the `lib` folder of CONDA_PREFIX if wheels contain the library
// - the system's search path
// If a path is given, no other location is tried. The library stays loaded. Throws NO_BACKEND with the
// locations that were searched and the problem with each, or with the two copies that are loaded.
FoundLibrary find_library(const WantedLibrary& wanted, const std::string& path,
                          const Environment& environment, const Loader& loader);

}  // namespace dsc
