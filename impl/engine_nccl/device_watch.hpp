// The thread that looks after everything that runs on devices: completions that somebody waits for by
// descriptor, time-outs, errors that NCCL reports late, and failures of other ranks.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.hpp"

namespace dsc {

class DeviceEngine;

class DeviceWatch {
 public:
  // Made at the first call and kept until the process is gone.
  static DeviceWatch& get();

  // Looks after it for as long as it exists. Starts the thread.
  void add(const std::shared_ptr<DeviceEngine>& engine);
  // There is news to look at. Any thread.
  void wake() noexcept;

 private:
  void run();

  Mutex mutex_;
  Condition news_;
  bool has_thread_ DSC_GUARDED_BY(mutex_) = false;
  bool has_news_ DSC_GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<DeviceEngine>> engines_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
