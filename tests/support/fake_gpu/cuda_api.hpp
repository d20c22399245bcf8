// The functions of the fake driver, with the names and prototypes of the real driver.
#pragma once

#include "device/cuda_declarations.hpp"

namespace fake_gpu {
struct CudaGraph;
struct CudaGraphExec;
}  // namespace fake_gpu

extern "C" {

dsc::CudaResult cuInit(unsigned flags);
dsc::CudaResult cuDriverGetVersion(int* version);
dsc::CudaResult cuGetErrorName(dsc::CudaResult error, const char** name);
dsc::CudaResult cuGetErrorString(dsc::CudaResult error, const char** text);
dsc::CudaResult cuDeviceGetCount(int* count);
dsc::CudaResult cuDeviceGet(dsc::CudaDevice* device, int ordinal);
dsc::CudaResult cuDeviceGetName(char* name, int bytes, dsc::CudaDevice device);
dsc::CudaResult cuDeviceGetUuid_v2(dsc::CudaUuid* uuid, dsc::CudaDevice device);
dsc::CudaResult cuDeviceGetAttribute(int* value, dsc::CudaDeviceAttribute attribute, dsc::CudaDevice device);
dsc::CudaResult cuDevicePrimaryCtxRetain(dsc::CudaContext** context, dsc::CudaDevice device);
dsc::CudaResult cuDevicePrimaryCtxRelease_v2(dsc::CudaDevice device);
dsc::CudaResult cuDevicePrimaryCtxGetState(dsc::CudaDevice device, unsigned* flags, int* active);
dsc::CudaResult cuCtxGetCurrent(dsc::CudaContext** context);
dsc::CudaResult cuCtxSetCurrent(dsc::CudaContext* context);
dsc::CudaResult cuCtxPushCurrent_v2(dsc::CudaContext* context);
dsc::CudaResult cuCtxPopCurrent_v2(dsc::CudaContext** context);
dsc::CudaResult cuCtxGetDevice(dsc::CudaDevice* device);
dsc::CudaResult cuCtxSynchronize();

dsc::CudaResult cuPointerGetAttributes(unsigned attributes, dsc::CudaPointerAttribute* which, void** values,
                                       dsc::CudaAddress address);
dsc::CudaResult cuMemAlloc_v2(dsc::CudaAddress* address, size_t bytes);
dsc::CudaResult cuMemFree_v2(dsc::CudaAddress address);
dsc::CudaResult cuMemAllocAsync(dsc::CudaAddress* address, size_t bytes, dsc::CudaStream* stream);
dsc::CudaResult cuMemFreeAsync(dsc::CudaAddress address, dsc::CudaStream* stream);
dsc::CudaResult cuMemAllocManaged(dsc::CudaAddress* address, size_t bytes, unsigned flags);
dsc::CudaResult cuMemHostAlloc(void** address, size_t bytes, unsigned flags);
dsc::CudaResult cuMemFreeHost(void* address);
dsc::CudaResult cuMemcpy(dsc::CudaAddress to, dsc::CudaAddress from, size_t bytes);
dsc::CudaResult cuMemcpyHtoD_v2(dsc::CudaAddress to, const void* from, size_t bytes);
dsc::CudaResult cuMemcpyDtoH_v2(void* to, dsc::CudaAddress from, size_t bytes);
dsc::CudaResult cuMemcpyDtoD_v2(dsc::CudaAddress to, dsc::CudaAddress from, size_t bytes);
dsc::CudaResult cuMemcpyAsync(dsc::CudaAddress to, dsc::CudaAddress from, size_t bytes,
                              dsc::CudaStream* stream);
dsc::CudaResult cuMemcpyHtoDAsync_v2(dsc::CudaAddress to, const void* from, size_t bytes,
                                     dsc::CudaStream* stream);
dsc::CudaResult cuMemcpyDtoHAsync_v2(void* to, dsc::CudaAddress from, size_t bytes, dsc::CudaStream* stream);
dsc::CudaResult cuMemcpyDtoDAsync_v2(dsc::CudaAddress to, dsc::CudaAddress from, size_t bytes,
                                     dsc::CudaStream* stream);
dsc::CudaResult cuMemsetD8Async(dsc::CudaAddress to, unsigned char value, size_t bytes,
                                dsc::CudaStream* stream);

dsc::CudaResult cuStreamCreateWithPriority(dsc::CudaStream** stream, unsigned flags, int priority);
dsc::CudaResult cuStreamCreate(dsc::CudaStream** stream, unsigned flags);
dsc::CudaResult cuStreamDestroy_v2(dsc::CudaStream* stream);
dsc::CudaResult cuStreamWaitEvent(dsc::CudaStream* stream, dsc::CudaEvent* event, unsigned flags);
dsc::CudaResult cuStreamSynchronize(dsc::CudaStream* stream);
dsc::CudaResult cuStreamQuery(dsc::CudaStream* stream);
dsc::CudaResult cuStreamIsCapturing(dsc::CudaStream* stream, dsc::CudaCaptureStatus* status);
dsc::CudaResult cuThreadExchangeStreamCaptureMode(dsc::CudaCaptureMode* mode);
dsc::CudaResult cuLaunchHostFunc(dsc::CudaStream* stream, void (*function)(void*), void* argument);

dsc::CudaResult cuEventCreate(dsc::CudaEvent** event, unsigned flags);
dsc::CudaResult cuEventDestroy_v2(dsc::CudaEvent* event);
dsc::CudaResult cuEventRecord(dsc::CudaEvent* event, dsc::CudaStream* stream);
dsc::CudaResult cuEventQuery(dsc::CudaEvent* event);
dsc::CudaResult cuEventSynchronize(dsc::CudaEvent* event);

dsc::CudaResult cuStreamBeginCapture_v2(dsc::CudaStream* stream, dsc::CudaCaptureMode mode);
dsc::CudaResult cuStreamEndCapture(dsc::CudaStream* stream, fake_gpu::CudaGraph** graph);
dsc::CudaResult cuGraphInstantiateWithFlags(fake_gpu::CudaGraphExec** exec, fake_gpu::CudaGraph* graph,
                                            unsigned long long flags);
dsc::CudaResult cuGraphLaunch(fake_gpu::CudaGraphExec* exec, dsc::CudaStream* stream);
dsc::CudaResult cuGraphDestroy(fake_gpu::CudaGraph* graph);
dsc::CudaResult cuGraphExecDestroy(fake_gpu::CudaGraphExec* exec);

dsc::CudaResult cuModuleLoadData(dsc::CudaModule** module, const void* image);
dsc::CudaResult cuModuleUnload(dsc::CudaModule* module);
dsc::CudaResult cuModuleGetFunction(dsc::CudaFunction** function, dsc::CudaModule* module, const char* name);
dsc::CudaResult cuLaunchKernel(dsc::CudaFunction* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                               dsc::CudaStream* stream, void** params, void** extra);

}  // extern "C"
