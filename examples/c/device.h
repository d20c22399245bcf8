/* The functions of CUDA that 13_device needs, from the driver itself, so that no toolkit is needed to
 * compile it. A program that has cuda_runtime.h uses that instead. */
#ifndef EXAMPLES_DEVICE_H
#define EXAMPLES_DEVICE_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct cuda {
  int (*device_get)(int*, int);
  int (*retain)(void**, int);
  int (*push_current)(void*);
  int (*stream_create)(void**, unsigned, int);
  int (*stream_synchronize)(void*);
  int (*stream_destroy)(void*);
  int (*copy)(unsigned long long to, unsigned long long from, size_t bytes, void* stream);
} cuda_t;

/* Ends the program if a call of CUDA fails. */
#define CHECK_CUDA(call)                                                             \
  do {                                                                               \
    const int check_cuda = (call);                                                   \
    if (check_cuda != 0) {                                                           \
      fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, check_cuda); \
      exit(EXIT_FAILURE);                                                            \
    }                                                                                \
  } while (0)

static void* cuda_symbol(void* library, const char* name) {
  void* const found = library == NULL ? NULL : dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "the CUDA driver has no %s\n", name);
    exit(EXIT_FAILURE);
  }
  return found;
}

/* Loads the driver, which libdsc has already loaded and initialized. */
static cuda_t cuda_load(void) {
  const char* const named = getenv("DSC_CUDA_LIBRARY");
  void* const library = dlopen(named != NULL ? named : "libcuda.so.1", RTLD_NOW);
  cuda_t cuda;
  *(void**)&cuda.device_get = cuda_symbol(library, "cuDeviceGet");
  *(void**)&cuda.retain = cuda_symbol(library, "cuDevicePrimaryCtxRetain");
  *(void**)&cuda.push_current = cuda_symbol(library, "cuCtxPushCurrent_v2");
  *(void**)&cuda.stream_create = cuda_symbol(library, "cuStreamCreateWithPriority");
  *(void**)&cuda.stream_synchronize = cuda_symbol(library, "cuStreamSynchronize");
  *(void**)&cuda.stream_destroy = cuda_symbol(library, "cuStreamDestroy_v2");
  *(void**)&cuda.copy = cuda_symbol(library, "cuMemcpyAsync");
  return cuda;
}

/* From now on, the calling thread works on this device, as with cudaSetDevice(). */
static void cuda_use(const cuda_t* cuda, int32_t number) {
  int device = 0;
  void* context = NULL;
  CHECK_CUDA(cuda->device_get(&device, number));
  CHECK_CUDA(cuda->retain(&context, device));
  CHECK_CUDA(cuda->push_current(context));
}

static void cuda_copy(const cuda_t* cuda, void* to, const void* from, size_t bytes, void* stream) {
  CHECK_CUDA(cuda->copy((uintptr_t)to, (uintptr_t)from, bytes, stream));
}

#endif /* EXAMPLES_DEVICE_H */
