#include "device/device.hpp"

#include "base/error.hpp"

namespace dsc {
namespace {

thread_local const Device* scope_of_thread = nullptr;

}  // namespace

std::shared_ptr<const Device> Device::bind(std::shared_ptr<const CudaLibrary> cuda, int number) {
  if (number >= cuda->devices)
    fail(DSC_ERR_INVALID_ARG, "device is %d, expected 0 to %d: the number of devices that CUDA shows is %d",
         number, cuda->devices - 1, cuda->devices);
  const std::shared_ptr<Device> device(new Device(std::move(cuda), number));
  device->check(device->cuda().device_get(&device->handle_, number), "cuDeviceGet");
  char name[128] = {};
  device->check(device->cuda().device_get_name(name, sizeof name - 1, device->handle_), "cuDeviceGetName");
  device->name_ = name;
  device->check(device->cuda().device_get_uuid(&device->uuid_, device->handle_), "cuDeviceGetUuid");
  device->compute_capability_ = device->ask(CudaDeviceAttribute::compute_capability_major) * 10 +
                                device->ask(CudaDeviceAttribute::compute_capability_minor);
  device->multiprocessors_ = device->ask(CudaDeviceAttribute::multiprocessors);
  device->check(device->cuda().device_primary_ctx_retain(&device->context_, device->handle_),
                "cuDevicePrimaryCtxRetain");
  return device;
}

int Device::current(const CudaLibrary& cuda) {
  CudaContext* context = nullptr;
  CudaDevice handle = -1;
  if (cuda.functions.ctx_get_current(&context) != CudaResult::success || !context) return -1;
  return cuda.functions.ctx_get_device(&handle) == CudaResult::success ? handle : -1;
}

void Device::copy(DeviceAddress to, DeviceAddress from, size_t bytes, DeviceStream* stream) const {
  check(cuda().memcpy_async(to, from, bytes, stream), "cuMemcpyAsync");
}

void Device::zero(DeviceAddress address, size_t bytes, DeviceStream* stream) const {
  check(cuda().memset_d8_async(address, 0, bytes, stream), "cuMemsetD8Async");
}

void Device::record(DeviceEvent* event, DeviceStream* stream) const {
  check(cuda().event_record(event, stream), "cuEventRecord");
}

void Device::wait(DeviceStream* stream, DeviceEvent* event) const {
  check(cuda().stream_wait_event(stream, event, 0), "cuStreamWaitEvent");
}

Device::~Device() {
  if (context_) cuda().device_primary_ctx_release(handle_);
}

int Device::ask(CudaDeviceAttribute attribute) const {
  int value = 0;
  check(cuda().device_get_attribute(&value, attribute, handle_), "cuDeviceGetAttribute");
  return value;
}

DeviceScope::DeviceScope(const Device& device) : device_(device), outer_(scope_of_thread) {
  if (outer_ == &device) return;
  device.check(device.cuda().ctx_push_current(device.context_), "cuCtxPushCurrent");
  device.cuda().thread_exchange_stream_capture_mode(&mode_);
  scope_of_thread = &device;
}

DeviceScope::~DeviceScope() {
  if (outer_ == &device_) return;
  scope_of_thread = outer_;
  device_.cuda().thread_exchange_stream_capture_mode(&mode_);
  CudaContext* popped = nullptr;
  device_.cuda().ctx_pop_current(&popped);
}

int device_of_memory(const Device& device, const void* memory) {
  CudaMemoryType type = CudaMemoryType::unknown;
  unsigned managed = 0;
  int number = kHostMemory;
  CudaPointerAttribute which[] = {CudaPointerAttribute::memory_type, CudaPointerAttribute::is_managed,
                                  CudaPointerAttribute::device_ordinal};
  void* values[] = {&type, &managed, &number};
  const DeviceScope scope(device);
  const CudaResult result = device.cuda().pointer_get_attributes(3, which, values, address_of(memory));
  // If CUDA does not know the address, or if no context is current, the memory is host memory.
  if (result == CudaResult::invalid_value || result == CudaResult::invalid_context) return kHostMemory;
  device.check(result, "cuPointerGetAttributes");
  return type == CudaMemoryType::device || managed ? number : kHostMemory;
}

bool is_of_capture(CudaResult result) noexcept {
  const auto number = static_cast<uint32_t>(result);
  return number >= 900 && number <= 908;
}

bool is_capturing(const Device& device, CudaStream* stream) {
  CudaCaptureStatus status = CudaCaptureStatus::none;
  device.check(device.cuda().stream_is_capturing(stream, &status), "cuStreamIsCapturing");
  return status == CudaCaptureStatus::active;
}

}  // namespace dsc
