// The handle of an operation that was started on a device. It is complete when the event after it on its
// stream has passed.
#pragma once

#include <atomic>
#include <memory>

#include "base/mutex.hpp"
#include "comm/operation_work.hpp"
#include "device/stream.hpp"
#include "engine_nccl/device_records.hpp"

namespace dsc {

class DeviceWorks;

class DeviceWork final : public OperationWork {
 public:
  // `works` also keeps the engine alive until the work is forgotten.
  DeviceWork(std::shared_ptr<DeviceWorks> works, uint64_t group, const Call& call);

  bool test() override;
  bool wait(Deadline deadline) override;
  bool wait_on(void* stream, Deadline deadline) override;
  uint64_t sequence() const noexcept override { return sequence_; }
  Failure failure() const override;

  // The engine calls the following functions.
  void set_sequence(uint64_t sequence) noexcept { sequence_ = sequence; }
  // True if a descriptor or a countdown waits for the end, so that DeviceWatch polls often.
  bool has_listener() const noexcept { return has_listener_.load(std::memory_order_relaxed); }
  // Ends the work; the flight recorder gets the code `recorded`, which may differ from that of `failure`.
  void complete(const std::optional<Failure>& failure, dsc_result_t recorded) noexcept;
  // Called when everything up to `end_event` is on the stream.
  void set_launched() noexcept { launched_.store(true, std::memory_order_release); }
  bool launched() const noexcept { return launched_.load(std::memory_order_acquire); }

  // These fields are written before other threads can see the work.
  PooledEvent begin_event;    // the work runs after it
  PooledEvent end_event;      // passes when the work has ended
  DeviceRecords records;      // later, only complete() writes them
  bool captured = false;      // part of a graph, so it runs when the graph does
  bool untracked = false;     // only DeviceWatch refers to it
  int64_t head_since_ns = 0;  // used by the engine: start of its time-out; 0: not started

 private:
  void await_end(Deadline deadline) override;
  void on_listener() override;

  const std::shared_ptr<DeviceWorks> works_;
  uint64_t sequence_ = 0;
  std::atomic<bool> launched_{false};
  std::atomic<bool> has_listener_{false};
  Mutex records_mutex_;  // DeviceWatch and a waiting thread may both have detected the end
};

}  // namespace dsc
