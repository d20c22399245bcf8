/* A fake CUDA driver that answers what start-up asks. FAKE_CUDA_INIT is the result of cuInit,
 * FAKE_CUDA_VERSION and FAKE_CUDA_DEVICES are what it says then. Like the stub of the toolkit it has no words
 * for error 34. */
#include <stdlib.h>

static int number(const char* variable, int usual) {
  const char* const text = getenv(variable);
  return text == NULL ? usual : atoi(text);
}

int cuInit(unsigned flags);
int cuInit(unsigned flags) { return flags == 0 ? number("FAKE_CUDA_INIT", 0) : 1; }

int cuDriverGetVersion(int* version);
int cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_VERSION", 13000);
  return 0;
}

int cuDeviceGetCount(int* count);
int cuDeviceGetCount(int* count) {
  *count = number("FAKE_CUDA_DEVICES", 2);
  return 0;
}

static int say(int error, const char* words, const char** text) {
  *text = error == 34 ? NULL : words;
  return error == 34 ? 34 : 0;
}

int cuGetErrorName(int error, const char** name);
int cuGetErrorName(int error, const char** name) { return say(error, "FAKE_CUDA_ERROR", name); }

int cuGetErrorString(int error, const char** text);
int cuGetErrorString(int error, const char** text) { return say(error, "the fake driver says so", text); }

#define FAKE(function) \
  int function(void);  \
  int function(void) { return 999; }
FAKE(cuDeviceGet)
FAKE(cuDeviceGetName)
FAKE(cuDeviceGetAttribute)
FAKE(cuDevicePrimaryCtxRetain)
FAKE(cuDevicePrimaryCtxRelease_v2)
FAKE(cuCtxGetCurrent)
FAKE(cuCtxPushCurrent_v2)
FAKE(cuCtxPopCurrent_v2)
FAKE(cuCtxGetDevice)
FAKE(cuPointerGetAttributes)
FAKE(cuMemAlloc_v2)
FAKE(cuMemFree_v2)
FAKE(cuMemcpyAsync)
FAKE(cuMemsetD8Async)
FAKE(cuStreamCreateWithPriority)
FAKE(cuStreamDestroy_v2)
FAKE(cuStreamWaitEvent)
FAKE(cuStreamSynchronize)
FAKE(cuStreamIsCapturing)
FAKE(cuThreadExchangeStreamCaptureMode)
FAKE(cuEventCreate)
FAKE(cuEventDestroy_v2)
FAKE(cuEventRecord)
FAKE(cuEventQuery)
FAKE(cuModuleLoadData)
FAKE(cuModuleUnload)
FAKE(cuModuleGetFunction)
FAKE(cuLaunchKernel)
