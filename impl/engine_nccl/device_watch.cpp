#include "engine_nccl/device_watch.hpp"

#include <algorithm>
#include <chrono>

#include "base/clock.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "engine_nccl/device_monitor.hpp"

namespace dsc {

DeviceWatch& DeviceWatch::get() {
  static DeviceWatch* const instance = new DeviceWatch;
  return *instance;
}

void DeviceWatch::add(const std::shared_ptr<DeviceMonitor>& engine) {
  const MutexLock lock(mutex_);
  std::erase_if(engines_, [](const auto& known) { return known.expired(); });
  engines_.push_back(engine);
  if (!has_thread_) {
    start_thread("dsc-device", [this] {
      for (;;)  // an exception (for lack of memory) must not end DeviceWatch
        guard_thread([this] { run(); },
                     [](const char* text) { log(DSC_LOG_LEVEL_ERROR, "device thread: %s", text); });
    }).detach();
    has_thread_ = true;
  }
  has_news_ = true;
  news_.notify_one();
}

void DeviceWatch::wake() noexcept {
  const MutexLock lock(mutex_);
  has_news_ = true;
  news_.notify_one();
}

void DeviceWatch::run() {
  int64_t pause_ns = 0;
  std::vector<std::weak_ptr<DeviceMonitor>> engines;
  for (;;) {
    {
      MutexLock lock(mutex_);
      const Deadline next{now_ns() + pause_ns};
      while (!has_news_ && !next.passed() && !(engines_.empty() && pause_ns == 0))
        news_.wait_for(mutex_, std::chrono::nanoseconds(next.remaining_ns()));
      has_news_ = false;
      engines = engines_;
    }
    pause_ns = kNsPerSecond;
    for (const auto& known : engines)
      if (const auto engine = known.lock()) pause_ns = std::min(pause_ns, engine->poll());
  }
}

}  // namespace dsc
