// An operation on a device that was started and not waited for: the event behind it on its stream.
#pragma once

#include <atomic>
#include <string>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "comm/work.hpp"
#include "control/call.hpp"
#include "device/stream.hpp"
#include "engine_nccl/device_records.hpp"

namespace dsc {

class DeviceEngine;

class DeviceWork final : public Work {
 public:
  DeviceWork(std::shared_ptr<DeviceEngine> engine, const Call& call)
      : engine_(std::move(engine)), call_(call) {}

  bool done() const noexcept override { return done_.load(std::memory_order_acquire); }
  bool test() override;
  bool wait(Deadline deadline) override;
  bool wait_on(void* stream, Deadline deadline) override;
  uint64_t number() const noexcept override { return number_; }
  Failure failure() const override;
  int event_fd() override;
  void close_event_fd() noexcept override;
  void notify(std::shared_ptr<Countdown> countdown) override;

  // For the engine.
  const Call& call() const noexcept { return call_; }
  void set_number(uint64_t number) noexcept { number_ = number; }
  // Somebody wants to hear of its end soon.
  bool has_listener() const noexcept { return has_listener_.load(std::memory_order_relaxed); }
  // Recorded with that code; the watch keeps failures of works that nobody has to itself.
  void complete(Failure failure, dsc_result_t recorded) noexcept;
  // Everything up to `end` is on the stream.
  void set_launched() noexcept { launched_.store(true, std::memory_order_release); }
  bool launched() const noexcept { return launched_.load(std::memory_order_acquire); }

  // Written before anybody else has it.
  PooledEvent begin, end;     // what it waits for, and what waits for it
  DeviceRecords records;      // later written by complete() alone
  bool captured = false;      // part of a graph: it runs whenever that does
  bool untracked = false;     // nobody has it but the watch
  int64_t head_since_ns = 0;  // the engine's: from when its time counts; 0: not yet

 private:
  const std::shared_ptr<DeviceEngine> engine_;
  const Call call_;
  uint64_t number_ = 0;
  std::atomic<bool> launched_{false};
  std::atomic<bool> done_{false};
  std::atomic<bool> has_listener_{false};
  mutable Mutex mutex_;
  Failure failure_ DSC_GUARDED_BY(mutex_);
  UniqueFd event_fd_ DSC_GUARDED_BY(mutex_);
  std::shared_ptr<Countdown> countdown_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
