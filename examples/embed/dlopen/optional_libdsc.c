#define _POSIX_C_SOURCE 200809L
#include "optional_libdsc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_OF(number) TEXT(number)
#define TEXT(word) #word
#define SYSTEM_NAME "libdsc.so." TEXT_OF(DSC_SOVERSION)

/* ISO C has no conversion from an object pointer to a function pointer. POSIX guarantees that the bits fit.
 */
static int resolve(void* library, const char* name, void* function) {
  void* const address = dlsym(library, name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

/* The soname says that the ABI is compatible, but not that the library is new enough. */
static int is_new_enough(const struct libdsc* dsc, char* reason, size_t capacity) {
  int32_t major = -1, minor = -1, patch = -1;
  if (dsc->version(&major, &minor, &patch) == DSC_OK && major == DSC_VERSION_MAJOR &&
      minor >= DSC_VERSION_MINOR)
    return 1;
  snprintf(reason, capacity, "it is version %d.%d.%d, expected %d.%d or a newer %d.x", (int)major, (int)minor,
           (int)patch, DSC_VERSION_MAJOR, DSC_VERSION_MINOR, DSC_VERSION_MAJOR);
  return 0;
}

/* The version is checked first, because it explains best why a function is missing. */
static int fill(void* library, struct libdsc* dsc, char* reason, size_t capacity) {
  if (!resolve(library, "dsc_version", &dsc->version)) {
    snprintf(reason, capacity, "it has no function dsc_version");
    return 0;
  }
  if (!is_new_enough(dsc, reason, capacity)) return 0;
#define LIBDSC_RESOLVE(name)                                           \
  if (!resolve(library, "dsc_" #name, &dsc->name)) {                   \
    snprintf(reason, capacity, "it has no function %s", "dsc_" #name); \
    return 0;                                                          \
  }
  LIBDSC_FUNCTIONS(LIBDSC_RESOLVE)
#undef LIBDSC_RESOLVE
  return 1;
}

/* RTLD_NOW reports a dependency that is missing here and not in a later call. */
int libdsc_load(struct libdsc* dsc, char* reason, size_t capacity) {
  const char* const chosen = getenv("DSC_LIBRARY");
  const char* const file = chosen && *chosen ? chosen : SYSTEM_NAME;
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(reason, capacity, "%s", dlerror());
    return 0;
  }
  char problem[128];
  if (fill(library, dsc, problem, sizeof problem)) return 1;
  snprintf(reason, capacity, "%s: %s", file, problem);
  dlclose(library);
  return 0;
}
