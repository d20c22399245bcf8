#include "device/kernel_store.hpp"

#include "base/guard.hpp"

namespace dsc {

KernelStore::~KernelStore() {
  call_out([&] {
    const DeviceScope scope(*device_);
    const MutexLock lock(mutex_);
    kernels_.reset();
  });
}

bool KernelStore::is_loaded() {
  const MutexLock lock(mutex_);
  return kernels_ != nullptr;
}

const Kernels& KernelStore::get() {
  const MutexLock lock(mutex_);
  if (kernels_) return *kernels_;
  const DeviceScope scope(*device_);
  kernels_ = std::make_unique<Kernels>(device_->library(), device_->multiprocessors());
  return *kernels_;
}

}  // namespace dsc
