// A queue of operations between hosts, which block: one after another, on a thread that starts with the first
// one that nobody waits for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "comm/work.hpp"
#include "comm/work_set.hpp"
#include "control/call.hpp"
#include "wire/pulse.hpp"

namespace dsc {

class WideWork final : public Work {
 public:
  explicit WideWork(const Call& call, uint64_t group) : call_(call), group_(group) {}

  bool done() const noexcept override { return done_.load(std::memory_order_acquire); }
  bool wait(Deadline deadline) override;
  Failure failure() const override;
  int event_fd() override;
  void close_event_fd() noexcept override;
  void notify(std::shared_ptr<Countdown> countdown) override;

  const Call& call() const noexcept { return call_; }
  void complete(Failure failure) noexcept;

 private:
  const Call call_;
  const uint64_t group_;
  std::atomic<bool> done_{false};
  mutable Mutex mutex_;
  Condition completed_;
  Failure failure_ DSC_GUARDED_BY(mutex_);
  UniqueFd event_fd_ DSC_GUARDED_BY(mutex_);
  std::shared_ptr<Countdown> countdown_ DSC_GUARDED_BY(mutex_);
};

class WideLane {
 public:
  // Runs one operation to its end; code DSC_OK after success. Never throws.
  using Execute = std::function<Failure(const Call& call, uint64_t number)>;

  // Every completion beats the pulse.
  WideLane(Execute execute, Pulse& pulse) : execute_(std::move(execute)), pulse_(pulse) {}
  // The group has failed or was left: what is queued ends soon.
  ~WideLane();
  WideLane(const WideLane&) = delete;
  WideLane& operator=(const WideLane&) = delete;

  // After those that are queued.
  Failure run(const Call& call);
  std::shared_ptr<Work> start(const Call& call, uint64_t group);
  void drain();
  void restart_numbers() noexcept { number_.store(0); }
  bool busy() const noexcept { return pending_.load() > 0; }

 private:
  void work();
  void end_one();

  const Execute execute_;
  Pulse& pulse_;
  std::atomic<int> pending_{0};      // queued or running
  std::atomic<uint64_t> number_{0};  // of the driver
  Mutex mutex_;
  Condition changed_;
  std::deque<std::shared_ptr<WideWork>> queue_ DSC_GUARDED_BY(mutex_);
  bool ending_ DSC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace dsc
