#include "transport/library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/joined.hpp"

namespace dsc {
namespace {

// A module, and the environment variable that may contain its path.
struct Module {
  std::string_view name;
  const char* file;
  const char* path_variable;
};

// The first module is the default.
constexpr std::array kModules = {
    Module{"gloo", "libdsc_gloo.so", "DSC_GLOO_LIBRARY"},
};

const Module& chosen(const Environment& environment) {
  const auto name = environment("DSC_TRANSPORT");
  if (!name) return kModules.front();
  const auto found = std::ranges::find(kModules, *name, &Module::name);
  if (found != kModules.end()) return *found;
  fail(DSC_ERR_CONFIG, "DSC_TRANSPORT is \"%.32s\", expected one of: %s", name->c_str(),
       joined(kModules, ", ", &Module::name).c_str());
}

// Returns the folder with a trailing slash, or an empty text if it is unknown.
std::string folder_of_this_library() {
  Dl_info here{};
  if (!dladdr(reinterpret_cast<const void*>(&load_transport), &here) || !here.dli_fname) return {};
  const std::string path = here.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

// Returns the paths to try. Distributions install modules into a subfolder of the library folder, which is
// tried second.
std::vector<std::string> candidates(const Module& module) {
  const std::string folder = folder_of_this_library();
  if (folder.empty()) return {module.file};
  return {folder + module.file, folder + "libdsc/" + module.file, module.file};
}

// The module is never unloaded (RTLD_NODELETE), because its thread may run until the process ends.
void* open(const std::string& path, std::string& tried) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) tried += (tried.empty() ? "" : "; ") + std::string(dlerror());
  return handle;
}

void* open_library(const Module& module, const Environment& environment) {
  std::string tried;
  if (const auto path = environment(module.path_variable)) {
    if (void* handle = open(*path, tried)) return handle;
    fail(DSC_ERR_NO_BACKEND, "%s cannot be loaded from %s: %s", module.file, module.path_variable,
         tried.c_str());
  }
  for (const std::string& path : candidates(module))
    if (void* handle = open(path, tried)) return handle;
  fail(DSC_ERR_NO_BACKEND, "%s cannot be loaded: %s; %s may say where it is", module.file, tried.c_str(),
       module.path_variable);
}

std::string path_of(void* handle, const Module& module) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : module.file;
}

}  // namespace

TransportLibrary load_transport(const Environment& environment) {
  const Module& module = chosen(environment);
  void* const handle = open_library(module, environment);
  TransportLibrary library{.path = path_of(handle, module)};
  const auto table_of =
      reinterpret_cast<dsc_transport_table_function>(dlsym(handle, DSC_TRANSPORT_TABLE_SYMBOL));
  if (!table_of)
    fail(DSC_ERR_NO_BACKEND, "%s has no %s; it is not a transport module of libdsc", library.path.c_str(),
         DSC_TRANSPORT_TABLE_SYMBOL);
  library.table = table_of();
  if (library.table->version < DSC_TRANSPORT_TABLE_VERSION ||
      library.table->struct_size < sizeof(dsc_transport_table))
    fail(DSC_ERR_NO_BACKEND, "%s has a table of version %u and %zu bytes, expected version %u and %zu bytes",
         library.path.c_str(), library.table->version, library.table->struct_size,
         DSC_TRANSPORT_TABLE_VERSION, sizeof(dsc_transport_table));
  return library;
}

}  // namespace dsc
