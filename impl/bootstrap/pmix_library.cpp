#include "bootstrap/pmix_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "base/error.hpp"

namespace dsc {
namespace {

// The oldest version of PMIx whose values have the layout used here.
constexpr int kLeastMajor = 3;
constexpr int kLeastMinor = 1;
constexpr const char* kNames[] = {"libpmix.so.2", "libpmix.so"};

struct Loaded {
  void* handle;
  std::string name;
};

// The library is never unloaded, because its threads may run until the process ends.
Loaded open_library(const Environment& environment) {
  std::string tried;
  const auto open = [&tried](const std::string& name) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) tried += (tried.empty() ? "" : "; ") + std::string(dlerror());
    return handle;
  };
  if (const auto path = environment("DSC_PMIX_LIBRARY")) {
    if (void* handle = open(*path)) return {handle, *path};
    fail(DSC_ERR_NO_BACKEND, "libpmix cannot be loaded from DSC_PMIX_LIBRARY: %s", tried.c_str());
  }
  for (const char* name : kNames)
    if (void* handle = open(name)) return {handle, name};
  fail(DSC_ERR_NO_BACKEND, "libpmix cannot be loaded: %s; DSC_PMIX_LIBRARY may say where it is",
       tried.c_str());
}

std::string path_of(const Loaded& library) {
  link_map* map = nullptr;
  return dlinfo(library.handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : library.name;
}

template <typename Function>
void find(const Loaded& library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library.handle, name));
  if (!function)
    fail(DSC_ERR_NO_BACKEND, "%s has no %s; expected PMIx %d.%d or newer", library.name.c_str(), name,
         kLeastMajor, kLeastMinor);
}

// Parses a text such as "OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, ...)".
void check_version(const Loaded& library, const char* text) {
  int major = 0, minor = 0;
  const char* digits = text + std::strcspn(text, "0123456789");
  if (std::sscanf(digits, "%d.%d", &major, &minor) == 2 &&
      (major > kLeastMajor || (major == kLeastMajor && minor >= kLeastMinor)))
    return;
  fail(DSC_ERR_NO_BACKEND, "%s is \"%.60s\", expected PMIx %d.%d or newer", library.name.c_str(), text,
       kLeastMajor, kLeastMinor);
}

}  // namespace

PmixLibrary load_pmix(const Environment& environment) {
  const Loaded library = open_library(environment);
  PmixLibrary found;
  found.path = path_of(library);
  find(library, "PMIx_Get_version", found.version);
  check_version(library, found.version());
  find(library, "PMIx_Init", found.init);
  find(library, "PMIx_Finalize", found.finalize);
  find(library, "PMIx_Get", found.get);
  find(library, "PMIx_Get_nb", found.get_nb);
  find(library, "PMIx_Put", found.put);
  find(library, "PMIx_Commit", found.commit);
  find(library, "PMIx_Register_event_handler", found.register_events);
  find(library, "PMIx_Error_string", found.error_string);
  return found;
}

}  // namespace dsc
