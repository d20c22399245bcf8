// The operations of the dynamic loader and the file system that a search needs, as functions, so that tests
// can replace them.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dsc {

enum class OpenMode { load, only_if_loaded };

struct Loader {
  // Returns the files loaded in this process that themselves define the symbol, each once.
  std::function<std::vector<std::string>(const char* symbol)> loaded;

  // Opens a path, or a name without '/' that the system searches for. A library stays loaded until the
  // process ends. Returns NULL with the reason in `why` if it cannot be opened; the same file always gives
  // the same handle.
  std::function<void*(const std::string& file, OpenMode mode, std::string& why)> open;

  std::function<std::string(void* handle)> path_of;
  std::function<void*(void* handle, const char* symbol)> symbol;

  // Returns the sorted names in a folder, or nothing if it cannot be read.
  std::function<std::vector<std::string>(const std::string& folder)> list;
};

Loader process_loader();

}  // namespace dsc
