// The GPU that a world is bound to.
#pragma once

#include <memory>
#include <string>

#include "device/cuda_library.hpp"

namespace dsc {

class Device {
 public:
  // By its number, which is at least 0. Retains its primary context. Throws INVALID_ARG when there are not so
  // many, BACKEND when CUDA fails.
  static std::shared_ptr<const Device> bind(std::shared_ptr<const CudaLibrary> cuda, int number);
  // That of the calling thread's context; -1 without one.
  static int current(const CudaLibrary& cuda);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const CudaFunctions& cuda() const noexcept { return library_->functions; }
  const std::shared_ptr<const CudaLibrary>& library() const noexcept { return library_; }
  int number() const noexcept { return number_; }
  const std::string& name() const noexcept { return name_; }
  // Of the card, or the part of one: equal in all processes, which may number what they see differently.
  const CudaUuid& uuid() const noexcept { return uuid_; }
  int compute_capability() const noexcept { return compute_capability_; }  // 90 is 9.0
  int multiprocessors() const noexcept { return multiprocessors_; }

  // Throws BACKEND with CUDA's words, unless it is a success.
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

// While it lives, the calling thread works on the device, and may do so beside a capture of its own. Inside
// another one of the same device it costs nothing; none is held while code of the caller's runs.
class DeviceScope {
 public:
  explicit DeviceScope(const Device& device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const Device& device_;
  const Device* const outer_;  // of the thread's scope around this one
  CudaCaptureMode mode_ = CudaCaptureMode::relaxed;
};

// Where memory lives: the number of its device, or kHostMemory.
inline constexpr int kHostMemory = -1;
int device_of_memory(const Device& device, const void* memory);

// Why an event cannot be asked now: some stream is being captured in another way than this thread's.
bool is_of_capture(CudaResult result) noexcept;

// Whether what is put on a stream is kept for later runs instead of being run.
bool is_capturing(const Device& device, CudaStream* stream);

}  // namespace dsc
