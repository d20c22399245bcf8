#include "device/loader.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <filesystem>

namespace dsc {
namespace {

std::vector<std::string> all_loaded() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* out) {
        // The entry of the main program has an empty name.
        if (object->dlpi_name && *object->dlpi_name)
          static_cast<std::vector<std::string>*>(out)->emplace_back(object->dlpi_name);
        return 0;
      },
      &paths);
  return paths;
}

// Returns the file that is mapped at the address.
std::string file_at(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

std::vector<std::string> loaded_with(const char* symbol) {
  std::vector<std::string> found;
  for (const std::string& path : all_loaded()) {
    void* const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (!handle) continue;  // the library was unloaded meanwhile, or is the kernel's vDSO
    // dlsym() also searches the dependencies of this library, so the address of the symbol decides which file
    // defines it.
    if (const void* address = dlsym(handle, symbol))
      if (std::string file = file_at(address); std::ranges::find(found, file) == found.end())
        found.push_back(std::move(file));
    dlclose(handle);
  }
  return found;
}

void* open_file(const std::string& file, OpenMode mode, std::string& why) {
  // With NODELETE, because threads of the library may run until the process ends.
  const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  void* const handle = dlopen(file.c_str(), mode == OpenMode::load ? flags : flags | RTLD_NOLOAD);
  if (handle) return handle;
  const char* reason = dlerror();  // dlerror() is null if RTLD_NOLOAD finds that the library is not loaded
  why = reason ? reason : file + " is not loaded";
  return nullptr;
}

std::string path_of_handle(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename());
  std::ranges::sort(names);
  return names;
}

}  // namespace

Loader process_loader() {
  return {.loaded = loaded_with,
          .open = open_file,
          .path_of = path_of_handle,
          .symbol = [](void* handle, const char* symbol) { return dlsym(handle, symbol); },
          .list = names_in};
}

}  // namespace dsc
