#include "transport/library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <string>
#include <vector>

#include "base/error.hpp"

namespace dsc {
namespace {

constexpr const char* kFile = "libdsc_gloo.so";

// Returns the folder with its trailing slash, or an empty text if it is unknown.
std::string folder_of_this_library() {
  Dl_info here{};
  if (!dladdr(reinterpret_cast<const void*>(&load_transport), &here) || !here.dli_fname) return {};
  const std::string path = here.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

// Distributions install modules into a subfolder of the library folder, which is tried second.
std::vector<std::string> candidates() {
  const std::string folder = folder_of_this_library();
  if (folder.empty()) return {kFile};
  return {folder + kFile, folder + "libdsc/" + kFile, kFile};
}

// RTLD_NODELETE, because the module's thread may run until the process ends.
void* open(const std::string& path, std::string& tried) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) tried += (tried.empty() ? "" : "; ") + std::string(dlerror());
  return handle;
}

void* open_library(const Environment& environment) {
  std::string tried;
  if (const auto path = environment("DSC_GLOO_LIBRARY")) {
    if (void* handle = open(*path, tried)) return handle;
    fail(DSC_ERR_NO_BACKEND, "Gloo's module cannot be loaded from DSC_GLOO_LIBRARY: %s", tried.c_str());
  }
  for (const std::string& path : candidates())
    if (void* handle = open(path, tried)) return handle;
  fail(DSC_ERR_NO_BACKEND, "Gloo's module cannot be loaded: %s; DSC_GLOO_LIBRARY may say where it is",
       tried.c_str());
}

std::string path_of(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : kFile;
}

}  // namespace

TransportLibrary load_transport(const Environment& environment) {
  void* const handle = open_library(environment);
  TransportLibrary library{.path = path_of(handle)};
  const auto table_of =
      reinterpret_cast<dsc_transport_table_function>(dlsym(handle, DSC_TRANSPORT_TABLE_SYMBOL));
  if (!table_of)
    fail(DSC_ERR_NO_BACKEND, "%s has no %s; it is not libdsc's module for Gloo", library.path.c_str(),
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
