// The dynamic loader and the folders of wheels, as functions, so that tests pass their own.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dsc {

enum class OpenMode { load, only_if_loaded };

struct Loader {
  // Files in this process that define a symbol themselves, each once.
  std::function<std::vector<std::string>(const char* symbol)> loaded;

  // A path, or a name without '/' for the system to find. What was opened stays loaded. NULL with the reason
  // in `why`; equal files give equal handles.
  std::function<void*(const std::string& file, OpenMode mode, std::string& why)> open;

  std::function<std::string(void* handle)> path_of;
  std::function<void*(void* handle, const char* symbol)> symbol;

  // Names in a folder, sorted; none if it cannot be read.
  std::function<std::vector<std::string>(const std::string& folder)> list;
};

Loader process_loader();

}  // namespace dsc
