// The handle of an operation that was started on a device. It is complete when the event behind it on its
// stream has passed.
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

  // The following functions are for the engine.
  const Call& call() const noexcept { return call_; }
  void set_number(uint64_t number) noexcept { number_ = number; }
  // True if a descriptor or a countdown waits for the end, so that the watch looks often.
  bool has_listener() const noexcept { return has_listener_.load(std::memory_order_relaxed); }
  // Ends the work; the recorder gets the code `recorded`, which may differ from that of `failure`.
  void complete(Failure failure, dsc_result_t recorded) noexcept;
  // Called when everything up to the event `end` is on the stream.
  void set_launched() noexcept { launched_.store(true, std::memory_order_release); }
  bool launched() const noexcept { return launched_.load(std::memory_order_acquire); }

  // These fields are written before other threads can see the work.
  PooledEvent begin, end;     // the work waits for `begin`; others wait for `end`
  DeviceRecords records;      // later written by complete() only
  bool captured = false;      // part of a graph, so it runs when the graph does
  bool untracked = false;     // only the watch refers to it
  int64_t head_since_ns = 0;  // used by the engine: start of its time-out; 0: not started

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
