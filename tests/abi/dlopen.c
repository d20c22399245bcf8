/* A plain C program that loads the library by name, uses it, unloads it, and does all of this again: dlopen
 * LIBRARY */
#include <dlfcn.h>
#include <dsc/dsc.h>
#include <stdio.h>
#include <string.h>

/* ISO C has no conversion from an object pointer to a function pointer. POSIX guarantees that the bits fit.
 */
static int load(void* library, const char* name, void* function) {
  void* address = dlsym(library, name);
  if (!address) {
    fprintf(stderr, "%s: %s\n", name, dlerror());
    return -1;
  }
  memcpy(function, &address, sizeof address);
  return 0;
}

static int use(void* library) {
  dsc_result_t (*version)(int32_t*, int32_t*, int32_t*);
  const char* (*result_name)(dsc_result_t);
  dsc_result_t (*init_distributed)(const dsc_init_options_t*, dsc_comm_t**);
  dsc_result_t (*options_init)(dsc_init_options_t*, size_t);
  dsc_result_t (*finalize)(void);
  if (load(library, "dsc_version", &version) || load(library, "dsc_result_name", &result_name) ||
      load(library, "dsc_init_distributed", &init_distributed) || load(library, "dsc_finalize", &finalize) ||
      load(library, "dsc_init_options_init", &options_init))
    return 1;

  int32_t major = -1, minor = -1;
  if (version(&major, &minor, NULL) != DSC_OK || major != DSC_VERSION_MAJOR || minor != DSC_VERSION_MINOR) {
    fprintf(stderr, "expected version %d.%d, got %d.%d\n", DSC_VERSION_MAJOR, DSC_VERSION_MINOR, major,
            minor);
    return 1;
  }
  dsc_init_options_t options;
  dsc_comm_t* world = NULL;
  dsc_result_t result = options_init(&options, sizeof options);
  options.rank = 0;
  options.world_size = 1;
  if (result == DSC_OK) result = init_distributed(&options, &world);
  if (result == DSC_OK) result = finalize();
  if (result != DSC_OK) fprintf(stderr, "one-process world: %s\n", result_name(result));
  return result != DSC_OK;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  for (int round = 0; round < 3; round++) {
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    if (use(library)) return 1;
    if (dlclose(library)) return 1;
  }
  return 0;
}
