// The thread that supervises operations on devices: completions for programs that wait on a descriptor,
// time-outs, NCCL's asynchronous errors, and failures of other ranks.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.hpp"

namespace dsc {

class DeviceMonitor;

class DeviceWatch {
 public:
  // DeviceWatch is made by the first call and never destroyed.
  static DeviceWatch& get();

  // Supervises an engine as long as it exists. Starts the thread. Any thread may call this.
  void add(const std::shared_ptr<DeviceMonitor>& engine);
  // Wakes the thread to poll all engines now. Any thread may call this.
  void wake() noexcept;

 private:
  void run();

  Mutex mutex_;
  Condition news_;
  bool has_thread_ DSC_GUARDED_BY(mutex_) = false;
  bool has_news_ DSC_GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<DeviceMonitor>> engines_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
