// The operations of the dynamic loader and the file system that a search needs. They are function objects, so
// that tests can replace them.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dsc {

enum class OpenMode { load, only_if_loaded };

struct Loader {
  // Returns the files loaded in this process that define the symbol themselves, each once.
  std::function<std::vector<std::string>(const char* symbol)> loaded;

  // Opens a path, or searches the system for a name without '/'. A library stays loaded until the process
  // ends. Returns NULL and the reason in `why` if it cannot be opened. The same file always gives the same
  // handle.
  std::function<void*(const std::string& file, OpenMode mode, std::string& why)> open;

  std::function<std::string(void* handle)> path_of;
  std::function<void*(void* handle, const char* symbol)> symbol;

  // Returns the sorted names in a folder, or nothing if it cannot be read.
  std::function<std::vector<std::string>(const std::string& folder)> list;
};

Loader process_loader();

}  // namespace dsc
