/* Finds every function of dsc/functions.h in the library, and calls three of them through their types. */
#include <dsc/functions.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct functions {
#define POINTER(name) PFN_##name name;
  DSC_FUNCTIONS(POINTER)
#undef POINTER
};

static int load(void* library, struct functions* all) {
  int missing = 0;
#define LOAD(name)                                               \
  {                                                              \
    void* const address = dlsym(library, #name);                 \
    memcpy(&all->name, &address, sizeof address);                \
    if (!address) missing += printf("%s is not found\n", #name); \
  }
  DSC_FUNCTIONS(LOAD)
#undef LOAD
  return missing;
}

int main(int argc, char** argv) {
  void* const library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  struct functions all;
  if (!library || load(library, &all)) return 1;
  int32_t major = -1;
  size_t bytes = 0;
  if (all.dsc_version(&major, NULL, NULL) != DSC_OK || major != DSC_VERSION_MAJOR) return 2;
  if (all.dsc_dtype_bytes(DSC_DTYPE_F64, &bytes) != DSC_OK || bytes != 8) return 3;
  if (strcmp(all.dsc_result_name(DSC_ERR_TIMEOUT), "DSC_ERR_TIMEOUT") != 0) return 4;
  printf("%zu functions\n", sizeof all / sizeof all.dsc_version);
  return 0;
}
