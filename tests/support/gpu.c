#include "gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct driver {
  const char* trouble;
  int (*init)(unsigned);
  int (*device_get_count)(int*);
  int (*device_get)(int*, int);
  int (*retain)(void**, int);
  int (*push_current)(void*);
  int (*alloc)(unsigned long long*, size_t);
  int (*release)(unsigned long long);
  int (*set)(unsigned long long, unsigned char, size_t, void*);
  int (*copy)(unsigned long long, unsigned long long, size_t, void*);
  int (*synchronize)(void*);
  int (*stream_create)(void**, unsigned, int);
  int (*stream_destroy)(void*);
  int (*begin_capture)(void*, int);
  int (*end_capture)(void*, void**);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*graph_destroy)(void*);
  int (*graph_launch)(void*, void*);
  int (*executable_destroy)(void*);
  int (*misuses)(void);
} driver_t;

static driver_t driver;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static pthread_once_t started = PTHREAD_ONCE_INIT;
static pthread_once_t counted = PTHREAD_ONCE_INIT;
static int count_apart;
static _Thread_local char trouble[160];

static void* need(void* library, const char* symbol) {
  void* const found = dlsym(library, symbol);
  if (found == NULL) driver.trouble = symbol;
  return found;
}

static void load(void) {
  const char* const named = getenv("DSC_CUDA_LIBRARY");
  void* const library = dlopen(named != NULL ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    driver.trouble = "no CUDA driver";
    return;
  }
  *(void**)&driver.misuses = dlsym(library, "fake_gpu_misuses"); /* only the fake driver has it */
  *(void**)&driver.init = need(library, "cuInit");
  *(void**)&driver.device_get_count = need(library, "cuDeviceGetCount");
  *(void**)&driver.device_get = need(library, "cuDeviceGet");
  *(void**)&driver.retain = need(library, "cuDevicePrimaryCtxRetain");
  *(void**)&driver.push_current = need(library, "cuCtxPushCurrent_v2");
  *(void**)&driver.alloc = need(library, "cuMemAlloc_v2");
  *(void**)&driver.release = need(library, "cuMemFree_v2");
  *(void**)&driver.set = need(library, "cuMemsetD8Async");
  *(void**)&driver.copy = need(library, "cuMemcpyAsync");
  *(void**)&driver.synchronize = need(library, "cuStreamSynchronize");
  *(void**)&driver.stream_create = need(library, "cuStreamCreateWithPriority");
  *(void**)&driver.stream_destroy = need(library, "cuStreamDestroy_v2");
  *(void**)&driver.begin_capture = need(library, "cuStreamBeginCapture_v2");
  *(void**)&driver.end_capture = need(library, "cuStreamEndCapture");
  *(void**)&driver.instantiate = need(library, "cuGraphInstantiateWithFlags");
  *(void**)&driver.graph_destroy = need(library, "cuGraphDestroy");
  *(void**)&driver.graph_launch = need(library, "cuGraphLaunch");
  *(void**)&driver.executable_destroy = need(library, "cuGraphExecDestroy");
}

static void start(void) {
  pthread_once(&loaded, load);
  if (driver.trouble == NULL && driver.init(0) != 0) driver.trouble = "cuInit failed: no device?";
}

static void count_in_child(void) {
  const pid_t child = fork();
  if (child == 0) {
    const char* why = NULL;
    _exit(gpu_count(&why));
  }
  int status = 0;
  if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status))
    count_apart = WEXITSTATUS(status);
}

static bool went_well(int result, const char* function) {
  if (result != 0) snprintf(trouble, sizeof trouble, "%s gave %d", function, result);
  return result == 0;
}

bool gpu_wanted(void) { return getenv("DSC_TEST_DEVICE") != NULL; }

const char* gpu_trouble(void) { return driver.trouble != NULL ? driver.trouble : trouble; }

bool gpu_is_real(void) {
  pthread_once(&loaded, load);
  return driver.misuses == NULL;
}

int gpu_misuses(void) { return gpu_is_real() ? 0 : driver.misuses(); }

int gpu_count_apart(void) {
  pthread_once(&counted, count_in_child);
  return count_apart;
}

int gpu_count(const char** why) {
  pthread_once(&started, start);
  int count = 0;
  *why = driver.trouble;
  if (driver.trouble == NULL && driver.device_get_count(&count) != 0) *why = "cuDeviceGetCount failed";
  return count;
}

bool gpu_bind(int device) {
  const char* why = NULL;
  void* context = NULL;
  int handle = 0;
  return gpu_count(&why) > device && went_well(driver.device_get(&handle, device), "cuDeviceGet") &&
         went_well(driver.retain(&context, handle), "cuDevicePrimaryCtxRetain") &&
         went_well(driver.push_current(context), "cuCtxPushCurrent");
}

void* gpu_alloc(size_t bytes) {
  unsigned long long address = 0;
  if (!went_well(driver.alloc(&address, bytes), "cuMemAlloc")) return NULL;
  const bool zeroed =
      went_well(driver.set(address, 0, bytes, NULL), "cuMemsetD8Async") && gpu_synchronize(NULL);
  return zeroed ? (void*)(uintptr_t)address : NULL;
}

void gpu_free(void* memory) {
  if (memory != NULL) driver.release((uintptr_t)memory);
}

static bool copy(const void* to, const void* from, size_t bytes) {
  return bytes == 0 ||
         (went_well(driver.copy((uintptr_t)to, (uintptr_t)from, bytes, NULL), "cuMemcpyAsync") &&
          gpu_synchronize(NULL));
}

bool gpu_upload(void* to, const void* from, size_t bytes) { return copy(to, from, bytes); }

bool gpu_download(void* to, const void* from, size_t bytes) { return copy(to, from, bytes); }

bool gpu_copy(void* to, const void* from, size_t bytes, void* stream) {
  return went_well(driver.copy((uintptr_t)to, (uintptr_t)from, bytes, stream), "cuMemcpyAsync");
}

bool gpu_synchronize(void* stream) { return went_well(driver.synchronize(stream), "cuStreamSynchronize"); }

void* gpu_stream(void) {
  void* stream = NULL;
  return went_well(driver.stream_create(&stream, 1, 0), "cuStreamCreateWithPriority") ? stream : NULL;
}

void gpu_stream_free(void* stream) { driver.stream_destroy(stream); }

bool gpu_begin_capture(void* stream) {
  /* a capture of this thread only */
  return went_well(driver.begin_capture(stream, 1), "cuStreamBeginCapture");
}

void* gpu_end_capture(void* stream) {
  void *graph = NULL, *executable = NULL;
  if (!went_well(driver.end_capture(stream, &graph), "cuStreamEndCapture")) return NULL;
  went_well(driver.instantiate(&executable, graph, 0), "cuGraphInstantiateWithFlags");
  driver.graph_destroy(graph);
  return executable;
}

bool gpu_run_graph(void* graph, void* stream) {
  return went_well(driver.graph_launch(graph, stream), "cuGraphLaunch");
}

void gpu_graph_free(void* graph) {
  if (graph != NULL) driver.executable_destroy(graph);
}
