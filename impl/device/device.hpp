// A GPU to which a world is bound. It retains the GPU's primary context as long as it exists. Any thread may
// use it.
#pragma once

#include <memory>
#include <string>

#include "device/cuda_library.hpp"
#include "device/handles.hpp"

namespace dsc {

class Device {
 public:
  // Binds the device with this ordinal (0 or more) and retains its primary context. Throws INVALID_ARG if
  // CUDA shows fewer devices, BACKEND if CUDA fails.
  static std::shared_ptr<const Device> bind(std::shared_ptr<const CudaLibrary> cuda, int number);
  // Returns the ordinal of the device of the calling thread's current context, or -1 if it has none.
  static int current(const CudaLibrary& cuda);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const CudaFunctions& cuda() const noexcept { return library_->functions; }
  const std::shared_ptr<const CudaLibrary>& library() const noexcept { return library_; }
  int number() const noexcept { return number_; }
  const std::string& name() const noexcept { return name_; }
  // UUID of the card, or of the MIG instance. It is equal in all processes, although they may number their
  // visible devices differently.
  const CudaUuid& uuid() const noexcept { return uuid_; }
  int compute_capability() const noexcept { return compute_capability_; }  // 10 * major + minor: 90 is 9.0
  int multiprocessors() const noexcept { return multiprocessors_; }

  // These functions put work on a stream without waiting for it, and throw BACKEND. The device's context must
  // be current.
  void copy(DeviceAddress to, DeviceAddress from, size_t bytes, DeviceStream* stream) const;
  void zero(DeviceAddress address, size_t bytes, DeviceStream* stream) const;
  void record(DeviceEvent* event, DeviceStream* stream) const;
  // `stream` waits for the work that `event` recorded last
  void wait(DeviceStream* stream, DeviceEvent* event) const;

  // Throws BACKEND with CUDA's description unless the result is success.
  void check(CudaResult result, const char* function) const { library_->check(result, function); }

 private:
  friend class DeviceScope;
  Device(std::shared_ptr<const CudaLibrary> library, int number) noexcept
      : library_(std::move(library)), number_(number) {}
  int ask(CudaDeviceAttribute attribute) const;

  const std::shared_ptr<const CudaLibrary> library_;
  const int number_;
  CudaDevice handle_ = 0;
  CudaContext* context_ = nullptr;
  std::string name_;
  CudaUuid uuid_{};
  int compute_capability_ = 0;
  int multiprocessors_ = 0;
};

// While a scope exists, the device's context is current in the calling thread. The thread's CUDA calls are
// allowed even while it captures a stream. Nested scopes of the same device cost nothing. User code must not
// run inside a scope.
class DeviceScope {
 public:
  explicit DeviceScope(const Device& device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const Device& device_;
  const Device* const outer_;  // device of the enclosing scope of this thread
  CudaCaptureMode mode_ = CudaCaptureMode::relaxed;
};

// Returns the ordinal of the device that holds the memory, or kHostMemory.
inline constexpr int kHostMemory = -1;
int device_of_memory(const Device& device, const void* memory);

// Returns whether a call failed because a stream is being captured, in a mode that does not allow this call.
bool is_of_capture(CudaResult result) noexcept;

// Returns whether the stream is being captured: work put on it is recorded into a graph instead of being run.
bool is_capturing(const Device& device, CudaStream* stream);

}  // namespace dsc
