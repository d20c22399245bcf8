// The part of cuda.h (CUDA 13) that libdsc uses, declared here so that building needs no CUDA toolkit. Values
// and prototypes are those of cuda.h. The test unit/device_declarations compares them with the real header if
// it is installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/handles.hpp"

namespace dsc {

struct CudaContext;
using CudaStream = DeviceStream;  // the same as CUstream_st, to which cudaStream_t points too
using CudaEvent = DeviceEvent;
struct CudaModule;
struct CudaFunction;
using CudaDevice = int;
using CudaAddress = DeviceAddress;  // same type as CUdeviceptr

struct CudaUuid {
  char bytes[16];
};

enum class CudaResult : uint32_t {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  no_device = 100,
  invalid_device = 101,
  invalid_context = 201,
  no_binary_for_gpu = 209,
  not_ready = 600,
  not_supported = 801,
  captured_event = 907,
};

enum class CudaPointerAttribute : uint32_t { memory_type = 2, is_managed = 8, device_ordinal = 9 };
enum class CudaMemoryType : uint32_t { unknown = 0, host = 1, device = 2 };
enum class CudaDeviceAttribute : uint32_t {
  multiprocessors = 16,
  compute_capability_major = 75,
  compute_capability_minor = 76,
};
enum class CudaCaptureStatus : uint32_t { none = 0, active = 1, invalidated = 2 };
enum class CudaCaptureMode : uint32_t { global = 0, thread_local_only = 1, relaxed = 2 };

inline constexpr unsigned kCudaStreamNonBlocking = 1;
inline constexpr unsigned kCudaEventDisableTiming = 2;

// Members are named as in cuda.h, without "cu". Where cuda.h maps a name to a versioned symbol (_v2, _v3),
// the member is that version.
struct CudaFunctions {
  CudaResult (*init)(unsigned flags) = nullptr;
  CudaResult (*driver_get_version)(int* version) = nullptr;
  CudaResult (*get_error_name)(CudaResult error, const char** name) = nullptr;
  CudaResult (*get_error_string)(CudaResult error, const char** text) = nullptr;

  CudaResult (*device_get_count)(int* count) = nullptr;
  CudaResult (*device_get)(CudaDevice* device, int ordinal) = nullptr;
  CudaResult (*device_get_name)(char* name, int bytes, CudaDevice device) = nullptr;
  CudaResult (*device_get_uuid)(CudaUuid* uuid, CudaDevice device) = nullptr;
  CudaResult (*device_get_attribute)(int* value, CudaDeviceAttribute attribute, CudaDevice device) = nullptr;
  CudaResult (*device_primary_ctx_retain)(CudaContext** context, CudaDevice device) = nullptr;
  CudaResult (*device_primary_ctx_release)(CudaDevice device) = nullptr;
  CudaResult (*ctx_get_current)(CudaContext** context) = nullptr;
  CudaResult (*ctx_push_current)(CudaContext* context) = nullptr;
  CudaResult (*ctx_pop_current)(CudaContext** context) = nullptr;
  CudaResult (*ctx_get_device)(CudaDevice* device) = nullptr;

  CudaResult (*pointer_get_attributes)(unsigned attributes, CudaPointerAttribute* which, void** values,
                                       CudaAddress address) = nullptr;
  CudaResult (*mem_alloc)(CudaAddress* address, size_t bytes) = nullptr;
  CudaResult (*mem_free)(CudaAddress address) = nullptr;
  CudaResult (*mem_alloc_async)(CudaAddress* address, size_t bytes, CudaStream* stream) = nullptr;
  CudaResult (*mem_free_async)(CudaAddress address, CudaStream* stream) = nullptr;
  CudaResult (*mem_host_alloc)(void** memory, size_t bytes, unsigned flags) = nullptr;
  CudaResult (*mem_free_host)(void* memory) = nullptr;
  CudaResult (*memcpy_async)(CudaAddress to, CudaAddress from, size_t bytes, CudaStream* stream) = nullptr;
  CudaResult (*memset_d8_async)(CudaAddress to, unsigned char value, size_t bytes,
                                CudaStream* stream) = nullptr;

  CudaResult (*stream_create_with_priority)(CudaStream** stream, unsigned flags, int priority) = nullptr;
  CudaResult (*stream_destroy)(CudaStream* stream) = nullptr;
  CudaResult (*stream_wait_event)(CudaStream* stream, CudaEvent* event, unsigned flags) = nullptr;
  CudaResult (*stream_synchronize)(CudaStream* stream) = nullptr;
  CudaResult (*stream_is_capturing)(CudaStream* stream, CudaCaptureStatus* status) = nullptr;
  CudaResult (*thread_exchange_stream_capture_mode)(CudaCaptureMode* mode) = nullptr;

  CudaResult (*event_create)(CudaEvent** event, unsigned flags) = nullptr;
  CudaResult (*event_destroy)(CudaEvent* event) = nullptr;
  CudaResult (*event_record)(CudaEvent* event, CudaStream* stream) = nullptr;
  CudaResult (*event_query)(CudaEvent* event) = nullptr;

  CudaResult (*module_load_data)(CudaModule** module, const void* image) = nullptr;
  CudaResult (*module_unload)(CudaModule* module) = nullptr;
  CudaResult (*module_get_function)(CudaFunction** function, CudaModule* module, const char* name) = nullptr;
  CudaResult (*launch_kernel)(CudaFunction* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                              CudaStream* stream, void** params, void** extra) = nullptr;
};

}  // namespace dsc
