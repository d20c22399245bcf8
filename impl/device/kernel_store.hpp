// The kernels of a device, loaded when they are first needed.
#pragma once

#include <memory>

#include "base/mutex.hpp"
#include "device/device.hpp"
#include "device/kernels.hpp"

namespace dsc {

// Any thread may use a store.
class KernelStore {
 public:
  explicit KernelStore(std::shared_ptr<const Device> device) noexcept : device_(std::move(device)) {}
  ~KernelStore();
  KernelStore(const KernelStore&) = delete;
  KernelStore& operator=(const KernelStore&) = delete;

  // Loads the kernels at the first call and throws what the constructor of Kernels throws. It must not be
  // called during a stream capture.
  const Kernels& get();
  bool is_loaded();

 private:
  const std::shared_ptr<const Device> device_;
  Mutex mutex_;
  std::unique_ptr<Kernels> kernels_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
